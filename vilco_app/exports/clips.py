"""The moments as video files, cut exactly with the bundled ffmpeg."""

from __future__ import annotations

import re
from pathlib import Path

from vilco_app.exports.files import unwritable
from vilco_app.exports.footage import Footage
from vilco_app.values import Answer, Moment, VilcoError
from vilco_app.words import clock


def write_clips(answer: Answer, out: Path, footage: Footage) -> list[Path]:
    """A folder with one mp4 per moment, named by rank, file and time: all of them, or none when one cannot be cut.

    A file that is there already is never replaced.
    """
    names = [out / _name(rank, m) for rank, m in enumerate(answer.moments, start=1)]
    for name in names:
        if name.exists():
            raise VilcoError(
                "exists", f"{name} is there already; nothing was written.", "Choose another folder with -o."
            )
    recordings = [footage.recording(m) for m in answer.moments]
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".vilco-write-test"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise unwritable(out, error) from None
    from vilco_app.video import cut_clip

    try:
        for name, moment, recording in zip(names, answer.moments, recordings, strict=True):
            cut_clip(recording, moment.start, moment.end, name)
    except BaseException:
        for name in names:
            name.unlink(missing_ok=True)
        if made and not any(out.iterdir()):
            out.rmdir()
        raise
    return [out, *names]


def _name(rank: int, moment: Moment) -> str:
    stem = re.sub(r"[^\w.-]+", "_", Path(moment.path).stem)[:60] or "video"
    return f"{rank:02d}_{stem}_{clock(moment.start).replace(':', '-')}.mp4"
