"""What a person said of an answer, checked and put into the words the library keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vilco_app.values import Answer, Moment, Video, VilcoError
from vilco_app.words import parse_time

Time = float | str


@dataclass(frozen=True)
class Said:
    """One fact: for the question `key`, these windows (seconds) of `video` are right; () means it is not in there."""

    key: str
    video: str
    windows: tuple[tuple[float, float], ...]


def corrected(
    answer: Answer,
    resolve: Callable[[str], Video],
    rank: int | None,
    start: Time | None,
    end: Time | None,
    absent: bool,
) -> list[Said]:
    """The facts in `EpisodicMemory.correct`'s arguments. Raises VilcoError where they do not fit the answer."""
    if not answer.moments:
        raise VilcoError("bad-answer", "the answer has no moments to correct.", "Ask again and correct that answer.")
    if absent:
        return _absent(answer, rank, start, end)
    if rank is None and (start is None or end is None):
        raise VilcoError(
            "bad-correction", "neither a rank, nor start and end, nor absent was given.",
            "Say which moment is right (rank), its edges (start, end), or that it is absent.",
        )  # fmt: skip
    if rank is not None and not 1 <= rank <= len(answer.moments):
        raise VilcoError(
            "bad-rank", f"rank {rank} is not in the answer ({len(answer.moments)} moments).",
            f"Give a rank from 1 to {len(answer.moments)}.",
        )  # fmt: skip
    moment = answer.moments[(rank or 1) - 1]
    first = moment.start if start is None else parse_time(start, "start")
    last = moment.end if end is None else parse_time(end, "end")
    duration = resolve(moment.video).duration
    if not 0 <= first < last <= duration + 0.5:  # a person reads the end off a player that rounds
        raise VilcoError(
            "bad-window", f"{first:g} to {last:g} s is not a window of {moment.path} ({duration:.1f} s long).",
            "Give a start before the end, both inside the video.",
        )  # fmt: skip
    return [Said(_key(answer, moment), moment.video, ((first, min(last, duration)),))]


def _absent(answer: Answer, rank: int | None, start: Time | None, end: Time | None) -> list[Said]:
    if rank is not None or start is not None or end is not None:
        raise VilcoError("bad-correction", "absent was given with a rank or a window.", "Give one or the other.")
    from vilco_app.answering.keys import answer_keys

    videos = dict.fromkeys(m.video for m in answer.moments)
    return [Said(key, video, ()) for video in videos for key in answer_keys(answer)]


def _key(answer: Answer, moment: Moment) -> str:
    from vilco_app.answering.keys import answer_keys, make_key

    return make_key("moment", moment.category) if moment.category else answer_keys(answer)[0]
