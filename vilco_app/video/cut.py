"""Clips and browser proxies, written by the ffmpeg that ships with imageio-ffmpeg."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from vilco_app.values import VilcoError
from vilco_app.video.types import Recording, VideoInfo

BROWSER_CODECS = {"h264": "mp4", "vp8": "webm", "vp9": "webm", "av1": "mp4"}


def ffmpeg_exe() -> str:
    """Path of the bundled ffmpeg."""
    import imageio_ffmpeg

    return imageio_ffmpeg.get_ffmpeg_exe()


def browser_playable(info: VideoInfo) -> bool:
    """Whether today's browsers play the file as it is, with `currentTime` = our time."""
    mp4 = "mp4" in info.container.split(",")
    webm = "webm" in info.container.split(",") and info.path.suffix.lower() == ".webm"
    codec = {"libdav1d": "av1"}.get(info.codec, info.codec)
    return (
        ((mp4 and codec in {"h264", "av1", "vp9"}) or (webm and codec in {"vp8", "vp9", "av1"}))
        and info.pixel_format in {"yuv420p", "yuvj420p"}
        and abs(info.first_pts) < 0.05
    )


def cut_clip(recording: Recording, start: float, end: float, out: Path) -> None:
    """Write [start, end] (seconds) as an mp4 (H.264, yuv420p, AAC) that starts playing at once."""
    part, inner = recording.at(start)
    _run(["-ss", f"{inner:.6f}", "-i", str(part.path), "-t", f"{end - start:.6f}"], out)


def make_proxy(recording: Recording, out: Path) -> None:
    """Write the whole recording as an mp4 that every browser plays, at most 720 lines."""
    part = recording.parts[0]
    _run(["-i", str(part.path)], out)


def _run(arguments: list[str], out: Path) -> None:
    out = Path(out)
    temporary = out.with_name(f".{out.name}.{os.getpid()}.part")
    command = [
        ffmpeg_exe(), "-v", "error", "-nostdin", "-y", *arguments,
        "-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p", "-c:a", "aac",
        "-movflags", "+faststart", "-f", "mp4", str(temporary),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise VilcoError(
                "not-written", f"{out.name}: {done.stderr.strip()[-300:]}.", "Check the folder and the space left."
            )
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)
