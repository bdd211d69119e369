"""A stage's videos in the library: found, indexed where needed, and the windows checked against their lengths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vilco_app.learning.types import Progress
from vilco_app.stages import Example, Stage, check_times, load_stage
from vilco_app.values import Video, VilcoError


@dataclass
class Resolved:
    """A checked stage and the recording of every `video` it names."""

    stage: Stage
    videos: dict[str, Video]

    def video(self, example: Example) -> Video:
        return self.videos[example.video]


def resolve_stage(source: Any, library: Any, profile: Any, progress: Progress | None = None) -> Resolved:
    """Load, check, index what is missing. Raises VilcoError naming the example whose video or window is wrong."""
    stage = load_stage(source)
    library.use_profile(profile.id)
    named: dict[str, str] = {}
    for e in stage.examples:
        named.setdefault(e.video, f"example {e.id}")
        if e.query_frame is not None:
            named.setdefault(e.query_frame.video, f"example {e.id}")
    for k, n in enumerate(stage.narrations):
        named.setdefault(n.video, f"narration {k}")
    videos = {ref: _find(ref, where, stage.folder, library, profile, progress) for ref, where in named.items()}
    stage = check_times(stage, lambda ref: videos[ref].duration)
    stage = _without_forgotten(stage, videos, library)
    return Resolved(stage, videos)


def _find(ref: str, where: str, folder: Path, library: Any, profile: Any, progress: Progress | None) -> Video:
    beside = folder / Path(ref).expanduser()
    path = beside if beside.exists() else Path(ref).expanduser()
    found: Video | None = None
    for name in (str(path), ref):
        try:
            found = library.resolve(name)
            break
        except VilcoError as error:
            if error.code == "ambiguous-video":
                raise VilcoError(error.code, f"{where}: {error.message}", error.remedy) from None
    if found is not None and (found.indexed_seconds > 0 or not Path(found.path).exists()):
        return found
    if not path.exists() and found is None:
        raise VilcoError(
            "missing-video", f'stage file: {where}: video "{ref}" is neither in the library nor a file.',
            "Correct the path (it is relative to the stage file), or add the video first: vilco add PATH",
        )  # fmt: skip
    report = library.add([path if path.exists() else Path(found.path)], profile, progress=progress)  # type: ignore[union-attr]
    if report.refused:
        first = report.refused[0]
        raise VilcoError(first.code, f"stage file: {where}: {first.path}: {first.reason}", first.remedy)
    video: Video = library.resolve(str(path) if path.exists() else ref)
    return video


def _without_forgotten(stage: Stage, videos: dict[str, Video], library: Any) -> Stage:
    """Leave out examples whose windows touch footage that was forgotten: it must not be learnt again."""
    kept, warnings, spans = [], list(stage.warnings), {}
    for e in stage.examples:
        video = videos[e.video].id
        if video not in spans:
            spans[video] = library.stored(video).forgotten
        if any(s < b and t > a for s, t in e.windows for a, b in spans[video]):
            warnings.append(f"example {e.id}: left out, its window lies in footage that was forgotten")
            continue
        kept.append(e)
    if not kept:
        raise VilcoError(
            "bad-stage", "stage file: every example lies in footage that was forgotten.", "Use other footage."
        )
    return replace(stage, examples=tuple(kept), warnings=tuple(warnings))
