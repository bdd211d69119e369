"""Which passages of a large library are worth a closer look: FAISS says, at a cost that hardly grows with the library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from vilco_app.answering.curve import Passage, passages_of
from vilco_app.answering.options import Options
from vilco_app.library.types import Hits, LibraryView


def around_hits(
    library: LibraryView, hits: Sequence[Hits], options: Options, look: Callable[[np.ndarray], np.ndarray] | None = None
) -> list[Passage]:
    """Passages of about `passage_seconds` on each side of the best hits, merged where they meet, `passages` of them.

    hits: results of one question in several indexes; they take turns, since their scores are not comparable.
    look: samples [n, Dg] -> what each looks like [n, Dg], unit length. With it they are of as many looks, so that the
    same picture many times over does not fill the list; `again_passages` more go by rank, so that what recurs is in it.
    """
    spans: dict[str, list[tuple[float, float]]] = {}
    looks = [_looks(library, h, look) for h in hits] if look is not None else []
    seen: list[np.ndarray] = []
    waiting: list[tuple[str, float]] = []
    count, limit = 0, options.passages

    def take(video: str, time: float) -> None:
        nonlocal count
        known = spans.setdefault(video, [])
        if count < limit and not any(a <= time <= b for a, b in known):
            known.append(_aligned(time, options.passage_seconds))
            count += 1

    for rank in range(max((len(h.videos) for h in hits), default=0)):
        for k, h in enumerate(hits):
            if rank >= len(h.videos) or (count >= limit and not looks):
                continue
            video, time = h.videos[rank], float(h.times[rank])
            if any(a <= time <= b for a, b in spans.get(video, [])):
                continue
            if looks:
                here = looks[k][rank]
                if count >= limit or any(float(here @ s) > options.alike for s in seen):
                    waiting.append((video, time))
                    continue
                seen.append(here)
            take(video, time)
    limit += options.again_passages
    for video, time in waiting:
        take(video, time)
    out: list[Passage] = []
    for video, known in spans.items():
        whole = passages_of(library.stored(video))
        for a, b in _merged(known):
            out += [cut for p in whole if (cut := _cut(p, a, b)) is not None]
    return out


def _looks(library: LibraryView, hits: Hits, look: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """What every hit's sample looks like [K, Dg], read a recording at a time."""
    owners = np.array(hits.videos)
    parts = {v: np.flatnonzero(owners == v) for v in dict.fromkeys(hits.videos)}
    rows = [np.asarray(library.stored(v).globals[hits.rows[of]], dtype=np.float32) for v, of in parts.items()]
    if not rows:
        return np.zeros((0, 0), dtype=np.float32)
    found = np.concatenate(rows)
    found[np.concatenate(list(parts.values()))] = look(found)
    return found


def _aligned(time: float, reach: float) -> tuple[float, float]:
    """At least `reach` seconds around a time, on a grid of `reach`, so that other questions meet the same passages."""
    return math.floor((time - reach) / reach) * reach, math.ceil((time + reach) / reach) * reach


def _merged(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    out: list[tuple[float, float]] = []
    for a, b in sorted(spans):
        if out and a <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], b)
        else:
            out.append((a, b))
    return out


def _cut(passage: Passage, start: float, end: float) -> Passage | None:
    """The part of a passage inside [start, end], or None."""
    times = passage.times
    low, high = int(np.searchsorted(times, start)), int(np.searchsorted(times, end))
    if low >= high:
        return None
    whole = high == len(times)
    return Passage(
        passage.stored,
        passage.first + low,
        passage.first + high,
        passage.start if low == 0 else float(times[low]),
        passage.end if whole else min(passage.end, float(times[high])),
    )
