"""Filling the memory of taught directions, deciding how much it counts, and keeping it in a snapshot."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vilco_app.learning.directions import (
    CAPACITY,
    Directions,
    Footing,
    Taught,
    key_of,
    look,
    spread_of,
    unrelated_questions,
)
from vilco_app.learning.scoring import Probe, Prober, goodness, weigh
from vilco_app.learning.types import Fusion
from vilco_app.stages import Example
from vilco_app.values import SCHEMA, VilcoError

if TYPE_CHECKING:
    from vilco_app.encoders.base import Blocks
    from vilco_app.learning.resolving import Resolved
    from vilco_app.learning.restoring import Restored

STRENGTHS = (1.0, 2.0)  # directions count as much as the question's own words, or twice; 4 did no better
NEARNESS = (0.75, 1.0)  # quantiles of how near questions after other things come; at 0.5 untaught questions were harmed
CAREFUL = (1.0, 1.0)  # where no example can show a gain: only questions nearer than any two taught ones are
LEAST = 5  # taught questions below which nothing is known of how near different ones come
CHECKED = 40  # taught questions, the newest, that are asked again to decide: some seconds on recordings of ten minutes
RECORDINGS = 8  # recordings of a stage the questions' spread is measured on

Choice = tuple[float, float]  # strength, nearness: see Directions.bend


def teach(known: Directions | None, resolved: Resolved, library: Any, profile: Any) -> Directions | None:
    """The memory with a stage's training examples added; `known` as it is for pictures. None while nothing was ever taught.

    A question taught again on the same recording replaces what was known of it; "not in this video" removes it. Above
    CAPACITY the oldest entry of the question with most entries goes.
    """
    stage = resolved.stage
    if stage.family == "vq":
        return known
    prober = Prober(library, profile)
    entries = {(e.family, e.key, e.video): e for e in known.entries} if known else {}
    asked: dict[tuple[str, str, str], tuple[str, list[tuple[float, float]]]] = {}
    for example in stage.part("train"):
        video = resolved.video(example).id
        text = example.text.replace("_", " ")
        asked.setdefault((stage.family, key_of(text), video), (text, []))[1].extend(example.windows)
    footings: dict[str, Footing] = {}
    for key, (text, windows) in asked.items():
        entries.pop(key, None)
        video = key[2]
        stored = library.stored(video)
        if windows and len(stored):
            if video not in footings:
                footings[video] = Footing.of(stored, profile.blocks)
            span = tuple(sorted({(float(s), float(t)) for s, t in windows}))
            sentence = np.asarray(prober.questions.sought(text), np.float32)
            seen = look(stored, span, profile.blocks, footings[video])
            entries[key] = Taught(text, stage.family, video, span, sentence, *seen)
    if not entries:
        return known.only(lambda e: False) if known else None
    unrelated, questions = unrelated_questions(profile)
    footage = [library.stored(v) for v in sorted({v for _, _, v in asked})[:RECORDINGS]]
    spread = spread_of(questions, [s for s in footage if len(s)], profile.blocks)
    if known:
        share = len(asked) / (len(asked) + len(known))
        spread = share * spread + (1 - share) * known.spread
    return Directions(bounded(list(entries.values())), spread, unrelated, profile.blocks)


def bounded(entries: list[Taught], capacity: int = CAPACITY) -> list[Taught]:
    """At most `capacity` entries, in order: of the question with most of them the oldest goes first."""
    entries = list(entries)
    while len(entries) > capacity:
        count = Counter((e.family, e.key) for e in entries)
        most = max(count.values())
        entries.pop(next(i for i, e in enumerate(entries) if count[e.family, e.key] == most))
    return entries


def choose_strength(
    directions: Directions, family: str, library: Any, profile: Any
) -> tuple[Choice | None, str]:  # fmt: skip
    """How much the memory counts for questions of a family, and why; None: not at all.

    Every taught question is asked again twice: with a memory of other recordings only (does it help where the thing comes
    again?), and with a memory without this question (does it harm what was not taught?); of one recording alone, the second.
    Choices are weighed as fusion weights are (`scoring.weigh`). Where none gains beyond one standard error, the careful choice
    is kept as long as it costs nothing beyond one: it speaks where a question comes back in nearly the same words.
    """
    mine = [e for e in directions.entries if e.family == family][-CHECKED:]
    if len({e.key for e in directions.entries}) < LEAST or len(mine) < LEAST:
        return None, f"only {len(mine)} taught questions; {LEAST} are needed to know how near different ones come"
    choices = [(s, n) for s in STRENGTHS for n in NEARNESS]
    prober = Prober(library, profile)
    rows = []
    for entry in mine:
        try:
            rows.append(_asked_again(entry, directions, choices, prober))
        except VilcoError:
            continue  # the recording was removed
    if len(rows) < LEAST:
        return None, f"the footage of only {len(rows)} taught questions is still there; {LEAST} are needed"
    table = np.array(rows)  # [n, 1 + choices]
    index, why = weigh(table, range(table.shape[1]))
    if index > 0:
        return choices[int(index) - 1], why
    loss = table[:, 0] - table[:, 1 + choices.index(CAREFUL)]
    if loss.mean() > loss.std(ddof=1) / np.sqrt(len(loss)) + 1e-9:  # one single loss is exactly one standard error
        return None, f"{why}; used for nearly the same words only, it would still cost {loss.mean():.3f}"
    return CAREFUL, f"{why}, and no loss where it is used for nearly the same words only"


def _asked_again(entry: Taught, directions: Directions, choices: Sequence[Choice], prober: Prober) -> list[float]:
    """[1 + choices] goodness of a taught question: untaught, then by each choice, in the mean over the two memories."""
    others = [directions.only(lambda e: e.key != entry.key and not e.together(entry))]
    if any(e.video != entry.video for e in directions.entries):
        others.append(directions.only(lambda e: e.video != entry.video))
    example = Example("", entry.video, entry.windows, query=entry.text)
    own = goodness(prober.probe(example, entry.family, entry.video, None), 0.0)
    row = [own]
    for choice in choices:
        scores = []
        for memory in others:
            if memory.knows(entry.sentence, choice[1]):
                bent = prober.bent({entry.family: choice}, memory)
                scores.append(goodness(bent.probe(example, entry.family, entry.video, None), 0.0))
            else:
                scores.append(own)
        row.append(float(np.mean(scores)))
    return row


def decide(fusion: Fusion, directions: Directions | None, family: str, library: Any, profile: Any) -> Fusion:
    """The fusion with what `choose_strength` says of the stage's family; other families keep what was decided then."""
    if directions is None or family == "vq":
        return fusion
    choice, why = choose_strength(directions, family, library, profile)
    taught = {k: v for k, v in fusion.taught.items() if k != family} | ({family: choice} if choice else {})
    return replace(fusion, taught=taught, reasons={**fusion.reasons, f"{family} taught": why})


def strangers(start: Restored, resolved: Resolved, library: Any, profile: Any) -> dict[str, Prober]:
    """By recording of a stage: who asks about it with what was taught on other recordings only."""
    memory, prober = start.directions, Prober(library, profile)

    def without(video: str) -> Directions | None:
        return memory.only(lambda e: e.video != video) if memory is not None else None

    videos = {v.id for v in resolved.videos.values()}
    return {video: prober.bent(start.fusion.taught, without(video)) for video in videos}


def compared(
    taught: dict[str, Choice], probes: Sequence[Probe], family: str
) -> tuple[dict[str, Choice], str]:  # fmt: skip
    """In a profile that is not aligned: do directions answer known questions better than the network, neither taught them?

    -> what stays chosen, and why not ("" where nothing changes). Probes then lose what directions said.
    """
    known = [p for p in probes if p.known and p.example.windows and p.network is not None]
    if len(known) < LEAST:
        return taught, ""
    gain = np.array([goodness(p, 0.0) - goodness(replace(p, known=False), 1.0) for p in known])
    if gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)):
        return taught, ""
    for probe in probes:
        if probe.known:
            probe.zero_shot, probe.known = None, False
    return (
        {k: v for k, v in taught.items() if k != family},
        f"the network answers {len(known)} known questions as well ({-gain.mean():+.3f})",
    )


def save_directions(directions: Directions, path: Path) -> None:
    """Write the memory atomically: half-precision tensors, the rest JSON in the file's own metadata.

    Raises VilcoError "cannot-write".
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    rows = directions.entries
    tensors = {
        "sentences": np.stack([e.sentence for e in rows]), "scenes": np.stack([e.scene for e in rows]),
        "things": np.stack([e.thing for e in rows]), "unrelated": directions.unrelated,
    } if rows else {"unrelated": directions.unrelated}  # fmt: skip
    kept = {name: np.ascontiguousarray(t, dtype=np.float16) for name, t in tensors.items()}
    kept["spread"] = directions.spread.astype(np.float32)
    said = [{"text": e.text, "family": e.family, "video": e.video, "windows": e.windows} for e in rows]
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        save_file(kept, temporary, metadata={"schema": str(SCHEMA), "entries": json.dumps(said)})
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise VilcoError("cannot-write", f"{path}: {error}.", "Free some space, or choose another home.") from None
    finally:
        temporary.unlink(missing_ok=True)


def load_directions(path: Path, blocks: Blocks) -> Directions | None:
    """What `save_directions` wrote; None where nothing was taught. Imports no torch. Raises VilcoError "bad-snapshot"."""
    if not path.is_file():
        return None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            said = json.loads((file.metadata() or {})["entries"])
            kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        rows = [
            Taught(
                str(e["text"]), e["family"], e["video"], tuple((float(s), float(t)) for s, t in e["windows"]),
                *(kept[name][k].astype(np.float32) for name in ("sentences", "scenes", "things")),
            )
            for k, e in enumerate(said)
        ]  # fmt: skip
        if not all(np.isfinite(t).all() for t in kept.values()):
            raise ValueError("some of its numbers are none")
        return Directions(rows, kept["spread"], kept["unrelated"], blocks)
    except (OSError, SafetensorError, KeyError, ValueError, IndexError, TypeError, AttributeError) as error:
        raise VilcoError("bad-snapshot", f"{path}: {error}.", "Go back to another snapshot: vilco use ID") from None


def cut_directions(path: Path, video: str, start: float, end: float) -> int:
    """Take entries with a window on the span out of a snapshot's file -> how many."""
    if not path.is_file():
        return 0
    from vilco_app.encoders.base import Blocks

    kept = load_directions(path, Blocks((), (), ()))  # the layout does not matter here
    assert kept is not None
    left = kept.only(lambda e: not e.meets(video, start, end))
    if len(left) < len(kept):
        save_directions(left, path)
    return len(kept) - len(left)


def size_of(directions: Directions | None) -> int:
    """Bytes a snapshot keeps of it, in half precision."""
    if directions is None:
        return 0
    return (
        sum(2 * (e.sentence.size + e.scene.size + e.thing.size) for e in directions.entries)
        + 2 * directions.unrelated.size
    )
