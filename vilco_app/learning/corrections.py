"""Corrections as a stage: what a person said of answers is what the model learns from."""

from __future__ import annotations

from collections.abc import Sequence

from vilco_app.stages import Example, Family, Stage
from vilco_app.values import Correction, VilcoError

FAMILY: dict[str, Family] = {"text": "nlq", "moment": "mq"}


def stage_of(corrections: Sequence[Correction], name: str = "corrections") -> Stage:
    """A stage of the corrections; the last one on a question and recording counts. All of them train.

    Questions in words and moments go together as nlq examples when both occur (a category is a question too). Corrections
    of pictures are obeyed, not learnt: they keep a digest of the picture and when the thing is seen, but neither the picture
    nor a box. Raises VilcoError "no-corrections" when there is nothing to learn.
    """
    last: dict[tuple[str, str], Correction] = {}
    for c in corrections:
        if c.kind in FAMILY:
            last[c.key, c.video] = c
    if not last and corrections:
        raise VilcoError(
            "no-corrections", "there is no correction of a question in words to learn from; those of pictures say when the "
            "thing is seen, but neither the picture nor where in the frame it is was kept: they are obeyed, not learnt.",
            'To teach pictures write a stage: "query_frame" and "track" per example (docs/learning.md).',
        )  # fmt: skip
    if not last:
        raise VilcoError(
            "no-corrections", "there is no correction of a question in words to learn from.",
            "Correct an answer first: vilco correct ANSWER.json --rank 1 --start T --end T",
        )  # fmt: skip
    families = {FAMILY[c.kind] for c in last.values()}
    family: Family = "mq" if families == {"mq"} else "nlq"
    examples = tuple(
        Example(c.id, c.video, tuple(sorted((float(a), float(b)) for a, b in c.windows)),
                query=c.query if family == "nlq" else None, category=c.query if family == "mq" else None)
        for c in last.values()
    )  # fmt: skip
    return Stage(name, family, examples)
