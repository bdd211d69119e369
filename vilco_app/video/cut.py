"""Clips and browser proxies, written by the ffmpeg that ships with imageio-ffmpeg.

Times are handed to ffmpeg as the container's own (`-copyts`), so what is cut is what was asked for whatever the clock's
start, an edit list or sound that begins earlier would make of "seconds from the start".
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vilco_app.values import VilcoError
from vilco_app.video.opening import LOCAL
from vilco_app.video.settings import ReadSettings
from vilco_app.video.source import Source
from vilco_app.video.types import Recording, VideoInfo

PLAYABLE = {"mp4": {"h264", "av1", "vp9"}, "webm": {"vp8", "vp9", "av1"}}
PIXELS = {"yuv420p", "yuvj420p"}
MAX_OFFSET = 0.25  # seconds a player may show the wrong frame's time before it is noticed

Progress = Callable[[float, float, str], None]


@dataclass(frozen=True)
class CutSettings:
    """How clips and proxies are encoded."""

    preset: str = "veryfast"
    """x264: twice as fast as its default for files a few percent larger."""

    quality: int = 20
    """CRF of clips: no visible loss."""

    proxy_quality: int = 26
    """CRF of proxies: for looking, about 1 Mbit/s."""

    proxy_lines: int = 720
    """Shorter side of a proxy at most; enough for a player in a page."""

    key_seconds: float = 2.0
    """Seconds between key frames of a proxy, so that clicking seeks fast."""

    threads: int = 0
    """Encoder threads; 0 lets ffmpeg choose."""

    run_up: float = 10.0
    """Seconds before a clip at which reading starts, so that a key frame lies before its first frame."""


def ffmpeg_exe() -> str:
    """Path of the bundled ffmpeg. Raises VilcoError where there is none for this machine."""
    import imageio_ffmpeg

    try:
        return imageio_ffmpeg.get_ffmpeg_exe()
    except RuntimeError as error:
        raise VilcoError("no-ffmpeg", f"ffmpeg: {error}.", "Install ffmpeg and put it on the PATH.") from None


def browser_playable(info: VideoInfo) -> bool:
    """Whether today's browsers play the file as it is, with the player's time equal to ours."""
    kind = "webm" if info.path.suffix.lower() == ".webm" else "mp4"
    known = kind in info.container.split(",") and info.codec in PLAYABLE[kind] and info.pixel_format in PIXELS
    return known and abs(info.first_pts) <= MAX_OFFSET and "clock" not in " ".join(info.faults)


def cut_clip(recording: Recording, start: float, end: float, out: Path, settings: CutSettings | None = None) -> None:
    """Write [start, end) (seconds) as an mp4 (H.264, yuv420p, AAC) that starts playing at once.

    Its first frame is the one displayed at `start`, shown from time 0; every other keeps its distance to `start` exactly.
    The file appears under its name only when whole. Raises VilcoError when the times are not in the recording or the file
    cannot be written.
    """
    settings = settings or CutSettings()
    start, end = max(0.0, float(start)), min(float(end), recording.duration)
    if not start < end:
        raise VilcoError(
            "bad-window", f"{start:g} to {end:g} s is not inside {recording.path.name} ({recording.duration:.1f} s).",
            "Give a start before the end, both inside the recording.",
        )  # fmt: skip
    pieces = []
    for part in recording.parts:
        a, b = max(start, part.offset) - part.offset, min(end, part.offset + part.duration) - part.offset
        if b - a > 1e-6:
            pieces.append(_piece(part.path, a, b))
    _encode(pieces, Path(out), settings.quality, None, settings, None)


def make_proxy(
    recording: Recording, out: Path, settings: CutSettings | None = None, progress: Progress | None = None
) -> None:
    """Write the whole recording, chapters joined, as an mp4 that every browser plays, whose time is ours.

    progress(done seconds, all seconds, text) is called about once a second. Raises VilcoError as `cut_clip`.
    """
    settings = settings or CutSettings()
    pieces = [_piece(part.path, 0.0, part.duration) for part in recording.parts]
    _encode(pieces, Path(out), settings.proxy_quality, settings.proxy_lines, settings, progress)


@dataclass(frozen=True)
class _Piece:
    """A stretch of one file: our time 0 on the container's clock and from the container's start, the stretch in our time,
    stream number, size, sound, whether the clock can be followed by seeking, nominal rate where there is no clock."""

    path: Path
    zero: float
    since: float
    first: float  # our time of the frame displayed at `start`
    start: float
    end: float
    stream: int
    size: tuple[int, int]
    sound: bool
    seekable: bool
    rate: str | None


def _piece(path: Path, start: float, end: float) -> _Piece:
    from vilco_app.video.geometry import displayed_size, frame_turn
    from vilco_app.video.pyav_reader import PyavReader

    with Source(path, ReadSettings()) as source:
        size = displayed_size(source.first.width, source.first.height, source.aspect, frame_turn(source.first))
        stream, sound = source.stream.index, bool(source.container.streams.audio)
        seekable, rate = source.continuous(), None if source.clock == "pts" else str(1 / source.step)
        zero = float(source.origin * source.base) if source.clock == "pts" else 0.0
        since = zero - (source.container.start_time or 0) / 1e6
    first = float(PyavReader().at(path, [start], 16).times[0]) if start > 0 else 0.0
    return _Piece(path, zero, since, first, start, end, stream, size, sound, seekable, rate)


def _encode(
    pieces: list[_Piece], out: Path, quality: int, lines: int | None, settings: CutSettings, progress: Progress | None
) -> None:
    width, height = pieces[0].size
    scale = min(1.0, lines / min(width, height)) if lines else 1.0
    width, height = (max(2, round(side * scale / 2) * 2) for side in (width, height))  # yuv420p needs even sides
    sound = all(piece.sound for piece in pieces)
    inputs: list[str] = []
    chains: list[str] = []
    copy = all(piece.seekable for piece in pieces)  # else ffmpeg has to straighten the clock, and count from the start
    for i, p in enumerate(pieces):
        origin = p.zero if copy or p.rate else p.since
        zero = origin + p.start
        if p.rate:
            inputs += ["-r", p.rate]
        elif copy and p.start > settings.run_up:
            inputs += ["-seek_timestamp", "1", "-ss", f"{zero - settings.run_up:.6f}"]
        inputs += ["-protocol_whitelist", LOCAL, "-i", str(p.path)]
        chains.append(
            f"[{i}:{p.stream}]settb=1/90000,trim=start={origin + p.first - 2e-4:.6f}:end={origin + p.end - 2e-4:.6f},"
            f"setpts='max(PTS-({zero:.6f})/TB,0)',scale={width}:{height}:flags=bicubic,setsar=1,format=yuv420p[v{i}]"
        )
        if sound:
            chains.append(
                f"[{i}:a:0]atrim=start={zero:.6f}:end={origin + p.end:.6f},asetpts='PTS-({zero:.6f})/TB',"
                f"aresample=48000:async=1:first_pts=0,aformat=channel_layouts=stereo[a{i}]"
            )
    video, audio = "[v0]", "[a0]"
    if len(pieces) > 1:
        joined = "".join(f"[v{i}]" + (f"[a{i}]" if sound else "") for i in range(len(pieces)))
        chains.append(f"{joined}concat=n={len(pieces)}:v=1:a={int(sound)}[v]" + ("[a]" if sound else ""))
        video, audio = "[v]", "[a]"
    command = [
        *(["-copyts"] if copy else []), *inputs, "-filter_complex", ";".join(chains), "-map", video,
        *(["-map", audio, "-c:a", "aac", "-b:a", "128k"] if sound else []),
        "-c:v", "libx264", "-preset", settings.preset, "-crf", str(quality), "-fps_mode", "passthrough",
        "-enc_time_base", "1:90000", "-video_track_timescale", "90000",
        "-force_key_frames", f"expr:gte(t,n_forced*{settings.key_seconds})", "-threads", str(settings.threads),
        "-movflags", "+faststart",
    ]  # fmt: skip
    _run(command, out, sum(p.end - p.start for p in pieces), progress)


def _run(arguments: list[str], out: Path, seconds: float, progress: Progress | None) -> None:
    temporary = out.with_name(f".{out.name}.{os.getpid()}.part")
    command = [
        ffmpeg_exe(), "-v", "error", "-nostdin", "-y", "-stats_period", "1", "-progress", "pipe:1", *arguments,
        "-f", "mp4", str(temporary),
    ]  # fmt: skip
    process = None
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        said: list[str] = []
        for line in process.stdout or ():
            name, _, value = line.strip().partition("=")
            if name == "out_time_us" and value.lstrip("-").isdigit() and progress:
                progress(min(seconds, max(0.0, int(value) / 1e6)), seconds, out.name)
            elif " " in line.strip() and not re.match(r"\w+= *\S+$", line.strip()):  # "speed=   0x" is no reason
                said = [*said[-4:], line.strip()]
        if process.wait() or not temporary.exists():
            reason = said[-1] if said else f"ffmpeg stopped with {process.returncode}"
            raise VilcoError(
                "not-written", f"{out.name}: {reason}.", "Check the folder, its permissions and the space left."
            )
        os.replace(temporary, out)
    except OSError as error:
        raise VilcoError(
            "not-written", f"{out.name}: {error}.", "Check the folder, its permissions and the space left."
        ) from None
    finally:
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        temporary.unlink(missing_ok=True)
