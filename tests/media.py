"""Video files for tests, made when a test runs by the ffmpeg of imageio-ffmpeg.

Every frame carries its number as twelve black or white blocks along its upper edge, so that a test can read back which
frame it was given, at any size.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

BITS = 12
RATE = 25
SIZE = (320, 180)
X264 = ("-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-bf", "2", "-g", "25")


def ffmpeg(*arguments: str | Path, stdin: bytes | None = None) -> None:
    """Run ffmpeg quietly on one thread; raises with its own words when it fails."""
    import imageio_ffmpeg

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", "-threads", "1", *map(str, arguments)]
    done = subprocess.run(
        command, input=stdin, stdin=subprocess.DEVNULL if stdin is None else None, capture_output=True
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr.decode()[-500:]}")


def numbered(number: int, size: tuple[int, int] = SIZE) -> np.ndarray:
    """[H, W, 3] uint8: a slowly changing picture with `number` written along its upper edge."""
    width, height = size
    y, x = np.mgrid[0:height, 0:width]
    frame = np.stack([x * 160 // width + 40, y * 160 // height + 40, (x + y + 3 * number) % 160 + 40], axis=-1)
    frame = frame.astype(np.uint8)
    # a block that moves, so that no two frames are alike for an encoder either
    left = (number * 7) % max(1, width - width // 8)
    frame[height // 2 : height // 2 + height // 6, left : left + width // 8] = (230, 60, 40)
    edges = np.linspace(0, width, BITS + 1).round().astype(int)
    for bit in range(BITS):
        frame[: height // 5, edges[bit] : edges[bit + 1]] = 235 if number >> bit & 1 else 20
    return frame


def number_in(frame: np.ndarray) -> int:
    """The number a (decoded, scaled) frame carries. Raises ValueError when a block is neither black nor white."""
    height, width = frame.shape[:2]
    row = frame[max(1, height // 20) : max(2, height // 9)].astype(float).mean(axis=(0, 2))
    value = 0
    for bit in range(BITS):
        a, b = width * (bit + 0.3) / BITS, width * (bit + 0.7) / BITS
        level = row[int(a) : max(int(a) + 1, int(b))].mean()
        if 90 < level < 160:
            raise ValueError(f"block {bit} is grey ({level:.0f})")
        value |= (level > 127) << bit
    return value


def raw(numbers: Sequence[int], size: tuple[int, int] = SIZE) -> bytes:
    """Frames with these numbers as raw RGB."""
    return b"".join(numbered(n, size).tobytes() for n in numbers)


def make(
    path: Path, frames: int | Sequence[int] = 150, *output: str, rate: float = RATE, size: tuple[int, int] = SIZE,
    codec: Sequence[str] = X264, before: Sequence[str] = (), sound: bool = False,
) -> Path:  # fmt: skip
    """Encode numbered frames. output: ffmpeg output options; before: options of the raw input; sound: add a tone."""
    numbers = range(frames) if isinstance(frames, int) else frames
    tone = ("-f", "lavfi", "-i", f"sine=440:duration={len(numbers) / rate}") if sound else ()
    audio = ("-c:a", "aac", "-b:a", "64k", "-map", "0:v", "-map", "1:a") if sound else ("-an",)
    ffmpeg(
        *before, "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{size[0]}x{size[1]}", "-r", str(rate), "-i", "-", *tone,
        *codec, *audio, *output, path, stdin=raw(numbers, size),
    )  # fmt: skip
    return path


def remux(source: Path, path: Path, *output: str, before: Sequence[str] = ()) -> Path:
    """Copy the streams into another file. before: options of the input; output: of the output."""
    ffmpeg(*before, "-i", source, "-c", "copy", *output, path)
    return path


def cut_bytes(source: Path, path: Path, fraction: float) -> Path:
    """The first part of a file, as an interrupted copy leaves it."""
    data = source.read_bytes()
    path.write_bytes(data[: int(len(data) * fraction)])
    return path


def damage(source: Path, path: Path, start: float, length: int, seed: int = 1) -> Path:
    """The file with `length` bytes from the fraction `start` on overwritten with noise."""
    data = bytearray(source.read_bytes())
    first = int(len(data) * start)
    data[first : first + length] = np.random.default_rng(seed).bytes(length)
    path.write_bytes(bytes(data))
    return path
