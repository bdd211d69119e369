"""What a person said of an answer, checked and put into the words the library keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vilco_app.values import Answer, Moment, Video, VilcoError
from vilco_app.words import parse_time

Time = float | str


@dataclass(frozen=True)
class Said:
    """One fact: for the question `key`, these windows (seconds) of `video` are right; () means it is not in there.

    query: the question in words, of a moment query the one category that is meant.
    """

    key: str
    query: str
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
    if absent:
        return _absent(answer, rank, start, end)
    if rank is None and (start is None or end is None):
        raise VilcoError(
            "bad-correction", "neither a rank, nor both a start and an end, nor absent was given.",
            "Say which moment is right (rank), its edges (start and end), or that it is absent.",
        )  # fmt: skip
    if rank is not None and not 1 <= rank <= len(answer.moments):
        raise VilcoError(
            "bad-rank", f"rank {rank} is not in the answer ({len(answer.moments)} moments).",
            f"Give a rank from 1 to {len(answer.moments)}.",
        )  # fmt: skip
    moment = answer.moments[(rank or 1) - 1] if answer.moments else _anywhere(answer)
    first = moment.start if start is None else parse_time(start, "start")
    last = moment.end if end is None else parse_time(end, "end")
    duration = resolve(moment.video).duration
    if not 0 <= first < last <= duration + 0.5:  # a person reads the end off a player that rounds
        raise VilcoError(
            "bad-window", f"{first:g} to {last:g} s is not a window of {moment.path} ({duration:.1f} s long).",
            "Give a start before the end, both inside the video.",
        )  # fmt: skip
    query = moment.category or _queries(answer)[0]
    return [Said(_key(answer, query), query, moment.video, ((first, min(last, duration)),))]


def _anywhere(answer: Answer) -> Moment:
    """Where the window of an answer without a single moment belongs: the one recording searched."""
    if len(answer.searched.ids) != 1:
        raise VilcoError(
            "bad-answer", "the answer has no moments, so it is not clear which recording is meant.",
            "Ask again with --video and correct that answer.",
        )  # fmt: skip
    return Moment(answer.searched.ids[0], answer.searched.ids[0], 0.0, 0.0, 0.0)


def _absent(answer: Answer, rank: int | None, start: Time | None, end: Time | None) -> list[Said]:
    if rank is not None or start is not None or end is not None:
        raise VilcoError("bad-correction", "absent was given with a rank or a window.", "Give one or the other.")
    videos = answer.searched.ids or dict.fromkeys(m.video for m in answer.moments)
    return [Said(_key(answer, query), query, video, ()) for video in videos for query in _queries(answer)]


def question_keys(answer: Answer) -> list[str]:
    """The keys under which corrections of this answer are filed."""
    return [_key(answer, query) for query in _queries(answer)]


def _queries(answer: Answer) -> tuple[str, ...]:
    """What was asked, one by one: the categories of a moment query, else the question."""
    return answer.categories or (answer.query,)


def _key(answer: Answer, query: str) -> str:
    from vilco_app.answering.keys import make_key

    return make_key(answer.kind, query, answer.digest)
