"""The odd files of the parity table: how each is made, which frames it shows when, and what decord makes of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from tests import media

Truth = Sequence[tuple[float, int]]  # (seconds, number) of every frame shown

X265 = ("-c:v", "libx265", "-preset", "ultrafast", "-tag:v", "hvc1")
PARAMS = "log-level=none:pools=1:keyint=30:open-gop=0"
X264 = ("-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-g")
VP9 = ("-c:v", "libvpx-vp9", "-pix_fmt", "yuv420p", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "300k")
AV1 = ("-c:v", "libsvtav1", "-preset", "8", "-crf", "30", "-svtav1-params", "lp=1", "-pix_fmt", "yuv420p")


def even(frames: int, first: int = 0, rate: float = media.RATE) -> Truth:
    return [(i / rate, first + i) for i in range(frames)]


@dataclass(frozen=True)
class Case:
    """make(folder) -> the file. truth: its frames; None: it is refused with `refused` by both backends.

    decord: "same" or a part of the reason it gives. upright: turns a displayed frame so that its number can be read.
    """

    make: Callable[[Path], Path]
    truth: Truth | None = field(default_factory=lambda: even(150))
    decord: str = "same"
    size: tuple[int, int] = media.SIZE
    refused: str = ""
    upright: Callable[[np.ndarray], np.ndarray] = lambda frame: frame


def base(folder: Path) -> Path:
    """150 frames with sound, index first: what most odd files are made of."""
    path = folder / "base.mp4"
    return path if path.exists() else media.make(path, 150, "-movflags", "+faststart", sound=True)


def _copy(name: str, *output: str, before: Sequence[str] = ()) -> Callable[[Path], Path]:
    return lambda folder: media.remux(base(folder), folder / name, *output, before=before)


def _make(name: str, frames: int = 75, *output: str, **options: object) -> Callable[[Path], Path]:
    return lambda folder: media.make(folder / name, frames, *output, **options)  # type: ignore[arg-type]


def _piped(folder: Path) -> Path:
    """Written to a pipe: no duration, no index."""
    import imageio_ffmpeg

    command = [
        imageio_ffmpeg.get_ffmpeg_exe(),
        "-v",
        "error",
        "-i",
        str(base(folder)),
        "-c",
        "copy",
        "-f",
        "matroska",
        "-",
    ]
    path = folder / "piped.mkv"
    path.write_bytes(subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout)
    return path


def _joined(folder: Path) -> Path:
    """Two transport streams one behind the other: another size, and a clock that starts again."""
    first = media.make(folder / "first.ts", 50)
    second = media.make(folder / "second.ts", range(50, 100), size=(240, 240))
    path = folder / "joined.ts"
    path.write_bytes(first.read_bytes() + second.read_bytes())
    return path


def _bytes(name: str, data: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return make


def _black(folder: Path) -> Path:
    media.ffmpeg("-f", "lavfi", "-i", "color=black:s=320x180:d=3:r=25", *X264, "25", folder / "black.mp4")
    return folder / "black.mp4"


def _two_streams(folder: Path) -> Path:
    """A small second picture before the main one, as some cameras store a preview."""
    path = folder / "two.mp4"
    media.ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=s=160x90:d=6:r=25", "-i", base(folder), "-map", "0:v", "-map", "1:v",
        "-c:v:0", "libx264", "-preset", "ultrafast", "-c:v:1", "copy", path,
    )  # fmt: skip
    return path


def _cover(folder: Path) -> Path:
    media.ffmpeg("-i", base(folder), "-frames:v", "1", folder / "cover.png")
    media.ffmpeg(
        "-i", base(folder), "-i", folder / "cover.png", "-map", "0", "-map", "1", "-c", "copy",
        "-disposition:v:1", "attached_pic", folder / "cover.mp4",
    )  # fmt: skip
    return folder / "cover.mp4"


# 40 frames at 25 fps, ten 1.6 s apart, the rest at 12.5 fps; in units of 1/25 s
VFR = "setpts='if(lt(N,40),N,if(lt(N,50),40+(N-40)*40,440+(N-50)*2))'"
VFR_TRUTH = [((n if n < 40 else 40 + (n - 40) * 40 if n < 50 else 440 + (n - 50) * 2) / 25, n) for n in range(100)]

CUT = "av_read_frame failed"
CLOCK = "no display times"
OTHER = "wrong frames of other"
OPEN = "does not refresh"
FIRST = "first frame is another one"
BROKEN = ""  # any reason: its own words about itself differ by machine

CASES: dict[str, Case] = {
    "h264": Case(_make("h264.mp4", 150)),
    "hevc 8 bit": Case(_make("h8.mp4", codec=(*X265, "-pix_fmt", "yuv420p", "-x265-params", PARAMS)), even(75)),
    "hevc 10 bit": Case(_make("h10.mp4", codec=(*X265, "-pix_fmt", "yuv420p10le", "-x265-params", PARAMS)), even(75)),
    "vp9": Case(_make("vp9.webm", codec=VP9), even(75), BROKEN),
    "av1": Case(_make("av1.mp4", 50, codec=AV1), even(50), OTHER),
    "mpeg-4": Case(_make("m4.mp4", codec=("-c:v", "mpeg4", "-bf", "2", "-q:v", "4")), even(75), OTHER),
    "xvid avi": Case(_make("x.avi", codec=("-c:v", "mpeg4", "-bf", "2", "-q:v", "4", "-vtag", "XVID")), even(75), CLOCK),
    "mjpeg avi": Case(_make("mj.avi", codec=("-c:v", "mjpeg", "-q:v", "4", "-pix_fmt", "yuvj420p")), even(75), CLOCK),
    "bare h264": Case(_make("bare.h264"), even(75), CLOCK),
    "vfr": Case(_make("vfr.mp4", 100, "-vf", VFR, "-fps_mode", "vfr", "-enc_time_base", "1/12800"), VFR_TRUTH),
    **{
        f"rotation {angle}": Case(
            _copy(f"rot{angle}.mp4", before=("-display_rotation", str(angle))),
            size=(180, 320) if angle % 180 else (320, 180), upright=partial(np.rot90, k=-angle // 90),
        )
        for angle in (90, 180, 270)
    },
    "mirrored": Case(_copy("mirror.mp4", before=("-display_hflip",)), decord=FIRST, upright=np.fliplr),
    "wide pixels": Case(_make("sar.mp4", 75, "-vf", "setsar=4/3"), even(75), size=(427, 180)),
    "start at 5 s": Case(_copy("start5.mkv", before=("-itsoffset", "5"))),
    "start at 5 s mp4": Case(_copy("start5.mp4", "-an", before=("-itsoffset", "5"))),
    "edit list": Case(_copy("edit.mp4", before=("-ss", "1.3")), even(117, 33), FIRST),
    "negative times": Case(
        _make("neg.mkv", 75, "-output_ts_offset", "-0.5", "-avoid_negative_ts", "disabled"), even(75), "not in order"
    ),
    "fragmented": Case(_copy("frag.mp4", "-movflags", "frag_keyframe+empty_moov+default_base_moof")),
    "piped": Case(_piped, decord=BROKEN),
    "transport stream": Case(_copy("ts.ts"), decord=OPEN),
    "gop 250": Case(_make("gop250.mp4", 300, codec=(*X264, "250", "-sc_threshold", "0")), even(300)),
    "16 b-frames": Case(_make("bf16.mp4", 150, codec=(*X264, "60", "-bf", "16", "-b_strategy", "0"))),
    "open gop": Case(_make("og.mp4", 150, codec=(*X264, "12", "-x264-params", "open-gop=1:scenecut=0")), decord=OPEN),
    "intra refresh": Case(_make("ir.mp4", 150, codec=(*X264, "50", "-x264-params", "intra-refresh=1")), decord=OPEN),
    "odd sizes": Case(
        _make("odd.mp4", size=(321, 181), codec=("-c:v", "libx264", "-pix_fmt", "yuv444p")), even(75), size=(321, 181)
    ),
    "resolution change": Case(_joined, even(100), BROKEN),
    "no audio": Case(_copy("silent.mp4", "-an")),
    "truncated mp4": Case(lambda d: media.cut_bytes(base(d), d / "cut.mp4", 0.6), even(86), CUT),
    "truncated mkv": Case(lambda d: media.cut_bytes(_copy("whole.mkv")(d), d / "cut.mkv", 0.6), even(90)),
    "no index": Case(lambda d: media.cut_bytes(_copy("end.mp4")(d), d / "nomoov.mp4", 0.6), None, refused="index (moov)"),
    "one frame": Case(_make("one.mp4", 1), even(1)),
    "all black": Case(_black, [(i / 25, 0) for i in range(75)]),
    "audio only": Case(_copy("sound.mp4", "-vn"), None, refused="no video stream"),
    "zero bytes": Case(_bytes("zero.mp4", b""), None, refused="empty"),
    "text": Case(_bytes("text.mp4", b"this is not a video\n" * 50), None, refused="text"),
    "noise": Case(_bytes("noise.mp4", np.random.default_rng(0).bytes(5000)), None, refused="not a video"),
    "two streams": Case(_two_streams),
    "cover picture": Case(_cover),
    "gif": Case(_make("anim.gif", 24, rate=8, codec=()), [(np.floor(12.5 * i + 0.5) / 100, i) for i in range(24)], OTHER),
    "wmv": Case(_make("f.wmv", codec=("-c:v", "wmv2", "-q:v", "4")), even(75), OTHER),
    "120 fps": Case(_make("120.mp4", 240, rate=120), even(240, rate=120)),
    "1 fps": Case(_make("1.mp4", 20, rate=1), even(20, rate=1)),
    "odd name": Case(lambda d: media.remux(base(d), d / "name with spaces & ünïcode 日本.mp4")),
}  # fmt: skip
