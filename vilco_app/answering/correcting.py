"""A correction is a fact: the same question on the same footage returns it first."""

from __future__ import annotations

from collections.abc import Sequence

from vilco_app.values import Correction, Moment, TimedBox, Track, Video

CORRECTED = 1.0  # score and confidence of what a person said


def apply_corrections(
    corrections: Sequence[Correction],
    moments: Sequence[Moment],
    certainty: float,
    videos: Sequence[Video],
    top: int,
    before: float | None,
    category: str | None,
) -> tuple[list[Moment], float]:
    """Put corrected windows first; drop guesses that meet one, and all guesses where a person said "not in here".

    The newest correction of a recording holds (ISO dates sort as text). Returns the moments and the confidence: 1 with a
    corrected window, 0 when every searched recording was said not to show it.
    """
    newest: dict[str, Correction] = {}
    for c in sorted(corrections, key=lambda c: c.created):
        newest[c.video] = c
    if not newest:
        return list(moments), certainty
    paths = {v.id: v for v in videos}
    first: list[Moment] = []
    for c in newest.values():
        video = paths.get(c.video)
        if video is None:
            continue
        first += [
            Moment(video.id, video.path, start, end, CORRECTED, "correction", category)
            for start, end in c.windows
            if before is None or end <= before
        ]
    rest = [m for m in moments if m.video not in newest or _free(m, newest[m.video])]
    if first:
        certainty = CORRECTED
    elif all(v.id in newest for v in videos):
        certainty = 0.0
    return (first + rest)[:top], certainty


def _free(moment: Moment, correction: Correction) -> bool:
    """Whether a guess stays beside a correction of its recording: not if that said "absent", nor where the two meet."""
    return bool(correction.windows) and all(moment.end <= a or moment.start >= b for a, b in correction.windows)


def correct_tracks(
    corrections: Sequence[Correction],
    tracks: Sequence[Track],
    certainty: float,
    videos: Sequence[Video],
    top: int,
    before: float | None,
) -> tuple[tuple[Track, ...], float]:
    """`apply_corrections` for tracks: a corrected window takes the boxes of the tracks found inside it, or, as a person
    said when but not where, the whole frame at its start."""
    moments, certainty = apply_corrections(
        corrections, [t.moment for t in tracks], certainty, videos, top, before, None
    )
    by_moment = {id(t.moment): t for t in tracks}
    out = []
    for m in moments:
        track = by_moment.get(id(m))
        if track is None:
            boxes = [b for t in tracks if t.moment.video == m.video for b in t.boxes if m.start <= b.time <= m.end]
            boxes = boxes or [TimedBox(m.start, 0.0, 0.0, 1.0, 1.0)]
            track = Track(m, tuple(sorted(boxes, key=lambda b: b.time)))
        out.append(track)
    return tuple(out), certainty
