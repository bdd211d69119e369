"""Answers and the library as HTML. Every string that is not ours is escaped here, and only here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from vilco_app.jobs import Job
from vilco_app.values import Answer, Moment, TimedBox, Track, Video, VilcoError
from vilco_app.words import length, span, verdict

SAVED_AS = (
    ("csv", "CSV", "A table"), ("srt", "SRT", "Subtitles"), ("vtt", "VTT", "Subtitles for the web"),
    ("edl", "EDL", "An edit list"), ("otio", "OTIO", "A timeline for editors"), ("clips", "clips", "The moments cut out"),
)  # fmt: skip


def welcome(questions: Sequence[str] = ()) -> str:
    """What stands where answers will be; questions: some to press."""
    tries = "".join(
        f'<button type="button" class="v-chip" data-try="{escape(q)}">{escape(q)}</button>' for q in questions
    )
    offered = f'<div class="v-chips"><span class="v-quiet">Try</span>{tries}</div>' if tries else ""
    return f'<div class="v-empty">Ask something. The answer is a list of moments: press one to see it.</div>{offered}'


def waiting_card() -> str:
    """The question waits for the first footage."""
    return '<div class="v-verdict" role="status">Your footage is being prepared; the answer comes as soon as some of it can be searched.</div>'


def error_card(error: VilcoError) -> str:
    """What went wrong and what to do."""
    return f'<div class="v-verdict v-error" role="alert"><b>{escape(error.message)}</b> {escape(error.remedy)}</div>'


def answer_html(answer: Answer, videos: dict[str, Video], token: str = "", said: bool = False) -> str:
    """Verdict, concepts, and one card per moment; a card carries what the player needs to show it.

    token: by which the server knows the answer; with it, it can be corrected and saved. said: something was said of it.
    """
    kind = "v-found" if answer.found else "v-guess"
    agreed = " You said so." if said and not answer.moments else ""
    parts = [f'<div class="v-verdict {kind}" role="status">{escape(verdict(answer))}{agreed}</div>']
    if answer.concepts:
        chips = "".join(
            f'<span class="v-chip" style="--w:{max(0.0, min(1.0, c.weight)):.2f}">{escape(c.name)}</span>'
            for c in answer.concepts[:6]
        )
        parts.append(f'<div class="v-chips"><span class="v-quiet">Looked for</span>{chips}</div>')
    tracks: Sequence[Track | None] = (
        answer.tracks if len(answer.tracks) == len(answer.moments) else [None] * len(answer.moments)
    )
    cards = [
        _card(rank, moment, track, videos.get(moment.video), answer.found, token)
        for rank, (moment, track) in enumerate(zip(answer.moments, tracks, strict=True), start=1)
    ]
    parts.append(f'<div class="v-cards">{"".join(cards)}</div>')
    if token and (cards or said):
        parts.append(_acts(token, bool(cards), said))
    parts.append(
        f'<div class="v-quiet v-foot">{answer.milliseconds:.0f} ms · {escape(answer.profile)} · {escape(answer.snapshot)}</div>'
    )
    return "".join(parts)


def _acts(token: str, moments: bool, said: bool) -> str:
    """What one can do with an answer: correct it, take a correction back, save it."""
    parts = [f'<div class="v-acts" data-answer="{escape(token)}"><span>']
    if moments:
        parts.append(
            '<button type="button" data-absent title="What you asked for is in none of these videos">Not in here</button> '
        )
    if said:
        parts.append('<button type="button" data-nothing>Take back what I said</button>')
    parts.append("</span>")
    if moments:
        saves = "".join(
            f'<button type="button" data-save="{to}" title="{what}">{name}</button>' for to, name, what in SAVED_AS
        )
        parts.append(
            f'<span class="v-save" role="group" aria-label="Save this answer as"><span class="v-quiet">Save as</span>{saves}</span>'
        )
    return "".join([*parts, "</div>"])


def _card(rank: int, moment: Moment, track: Track | None, video: Video | None, found: bool, token: str) -> str:
    shown = (moment.start + moment.end) / 2
    overlay = ""
    boxes: list[list[float]] = []
    if track is not None and track.boxes:
        middle = track.boxes[len(track.boxes) // 2]
        shown, overlay = middle.time, _overlay(middle)
        boxes = [b.to_json() for b in track.boxes]
    name = Path(moment.path).name
    label = span(moment.start, moment.end)
    tags = []
    if moment.category:
        tags.append(moment.category)
    if moment.source == "correction":
        tags.append("as you said")
    elif not found:
        tags.append("guess")
    data = player_data(video) if video is not None else {}
    data |= {"start": moment.start, "end": moment.end, "boxes": boxes, "rank": rank, "answer": token, "label": label}
    return (
        f'<button type="button" class="v-card" data-seek="{escape(json.dumps(data))}" '
        f'aria-label="Show {label} of {escape(name)}">'
        f'<span class="v-thumb"><img loading="lazy" alt="" src="/thumb/{escape(moment.video)}/{round(shown * 1000)}">{overlay}</span>'
        f'<span class="v-when"><b>{rank}</b> {label} <i>{length(moment.end - moment.start)}</i></span>'
        f'<span class="v-name" title="{escape(name)}">{escape(name)}</span>'
        f'<span class="v-tags">{"".join(f"<em>{escape(t)}</em>" for t in tags)}</span></button>'
    )


def _overlay(box: TimedBox) -> str:
    return (
        f'<span class="v-box" style="left:{box.x1:.1%};top:{box.y1:.1%};'
        f'width:{box.x2 - box.x1:.1%};height:{box.y2 - box.y1:.1%}"></span>'
    )


def player_data(video: Video) -> dict[str, object]:
    """What the player needs to open a recording: id, name, length (s), picture size."""
    return {
        "video": video.id, "name": Path(video.path).name, "duration": video.duration, "width": video.width,
        "height": video.height,
    }  # fmt: skip


def library_html(
    videos: Sequence[Video], jobs: Sequence[Job], messages: Sequence[str] = (), preparing: str = ""
) -> str:
    """One row per recording with how far it is indexed, the jobs that wait or run, and what was refused."""
    below = [f'<div class="v-job" role="status">{escape(preparing)}</div>'] if preparing else []
    shown = [job for job in jobs if job.state != "done"]
    below += [_job(job) for job in shown]
    told = tuple(f"{job.label}: " for job in shown if job.state == "failed")
    refused = [text for text in messages if not (told and text.startswith(told))]
    below += [f'<div class="v-job v-failed" role="alert">{escape(text)}</div>' for text in refused]
    if refused:
        below.append('<div class="v-job"><button type="button" data-post="/dismiss">Dismiss</button></div>')
    if not videos and not below:
        return '<div class="v-empty">No footage yet. Add a file or folder below.</div>'
    return f'<div class="v-library">{"".join(map(_row, videos))}</div>{"".join(below)}'


def _job(job: Job) -> str:
    """A job that is not done, and what one can do about it."""
    name, share = escape(job.label or job.kind), f", {job.done / job.total:.0%}" if job.total else ""
    words = {"waiting": "waits", "running": "at work", "stopped": "stopped"}.get(job.state, job.state)
    act, label = {"stopped": ("resume", "Go on"), "failed": ("resume", "Try again")}.get(job.state, ("stop", "Stop"))
    why = f" {escape(job.error['message'])} {escape(job.error['remedy'])}" if job.error else ""
    button = f'<button type="button" data-post="/jobs/{job.id}/{act}" aria-label="{label}: {name}">{label}</button>'
    return f'<div class="v-job v-{escape(job.state)}"><span>{name}: {words}{share}.{why}</span>{button}</div>'


def _row(video: Video) -> str:
    share = min(1.0, video.indexed_seconds / video.duration) if video.duration > 0 else 1.0
    state = {"ready": "", "gaps": "has gaps", "missing": "file is missing"}.get(video.state, f"indexed {share:.0%}")
    bar = (
        f'<span class="v-bar"><span style="width:{share:.0%}"></span></span>'
        if video.state in ("waiting", "preview", "indexing")
        else ""
    )
    note = f'<span class="v-quiet">{escape(video.note)}</span>' if video.note else ""
    data = escape(json.dumps({**player_data(video), "start": 0.0, "end": 0.0, "boxes": []}))
    return (
        f'<button type="button" class="v-row" data-seek="{data}" title="{escape(video.path)}">'
        f'<img loading="lazy" alt="" src="/thumb/{escape(video.id)}/{round(min(video.duration / 2, 2.0) * 1000)}">'
        f'<span class="v-name">{escape(Path(video.path).name)}</span>'
        f'<span class="v-quiet">{length(video.duration)}</span><span class="v-state">{state}</span>{bar}{note}</button>'
    )
