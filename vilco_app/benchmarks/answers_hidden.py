"""The same questions with each list hidden in hours of other footage: what does that cost?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vilco_app.benchmarks.answers_distractors import given_files, segment_clips
from vilco_app.benchmarks.answers_haystack import Made, Progress, add_distractors, add_given
from vilco_app.benchmarks.answers_scores import Scores, column, rows_of
from vilco_app.evaluation.retrieval import paired_bootstrap

Make = Callable[[Any, str, Progress | None], Made]  # (memory, list, progress) -> the footage that list is hidden in
DEFAULT_HOURS = 2.0


@dataclass(frozen=True)
class Hay:
    """What to hide the lists of `folder` in. hours: of packaged pictures (None: not at all), and of the `given` videos."""

    folder: Path
    scratch: Path
    hours: float | None
    given: Path | None

    def stacks(self) -> dict[str, Make]:
        """By the name of the result, how to add the footage to the library. Made footage is made once per kind."""
        out: dict[str, Make] = {}
        if self.hours:
            out["haystack"] = self._packaged
        if self.given is not None:
            out["haystack_given"] = self._given
        return out

    def _packaged(self, memory: Any, name: str, progress: Progress | None) -> Made:
        return add_distractors(memory, self.scratch, self.hours or DEFAULT_HOURS, progress)

    def _given(self, memory: Any, name: str, progress: Progress | None) -> Made:
        assert self.given is not None
        asked = self.folder / f"{name}.mp4"
        files = given_files(self.given, asked, {asked.name, *segment_clips(asked)})
        return add_given(memory, self.scratch / f"given-{name}", files, self.hours or DEFAULT_HOURS, progress)


def hidden(
    memory: Any,
    folder: Path,
    lists: dict[str, dict[str, Any]],
    make: Make,
    alone: Scores,
    ask: Callable[..., None],
    progress: Progress | None,
) -> dict[str, Any]:
    """Every list asked of its own video and the distractors together; what was added leaves the library again.

    alone: the same questions without distractors. ask: as `answers._ask`.
    """
    scores = Scores()
    made: dict[str, Made] = {}
    new: set[str] = set()
    try:
        for name, data in lists.items():
            made[name] = make(memory, name, progress)
            new |= set(made[name].new)
            video = str(folder / f"{name}.mp4")
            ask(memory, video, name, data, scores, whole=[*made[name].videos, memory.resolve(video).id])
    finally:
        for one in new:
            memory.remove(one)
    for name in made:
        if not made[name].known:  # what is not in the list may well be in there
            scores.present[name], scores.absent[name] = [], []
    said = dict.fromkeys(m.description for m in made.values())
    return {
        "hours": round(min(m.seconds for m in made.values()) / 3600, 3),
        "footage": "; ".join(said),
        "lists": rows_of(scores, list(lists)),
        "lost": lost(alone, scores),
    }


def lost(alone: Scores, scores: Scores) -> dict[str, list[float]]:
    """What hiding the footage costs: R@5 (IoU 0.3) alone minus hidden, [mean, low, high], by family."""
    out = {}
    for family, a, h in (
        ("text", alone.text, scores.text),
        ("moment", alone.moment, scores.moment),
        ("visual", alone.visual, scores.visual),
    ):
        if column(a, 1):
            out[family] = paired_bootstrap(column(a, 1), column(h, 1)).to_json()
    return out
