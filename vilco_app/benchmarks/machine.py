"""What this machine can do by itself, and the footage the speed bench is measured on (made at run time)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vilco_app.benchmarks.rows import Row
from vilco_app.values import VilcoError


@dataclass
class Clock:
    """CPU seconds of this process with its ended children, and wall seconds, of one `with` block."""

    cpu: float = 0.0
    wall: float = 0.0


@contextmanager
def measured() -> Iterator[Clock]:
    """Time a block."""

    def cpu() -> float:
        children = os.times()
        return time.process_time() + children.children_user + children.children_system

    clock = Clock()
    before, began = cpu(), time.perf_counter()
    yield clock
    clock.cpu, clock.wall = cpu() - before, time.perf_counter() - began


def best_of(rounds: int, work: Callable[[], object]) -> Clock:
    """The round with the least CPU time: other processes can only make it larger."""
    clocks = []
    for _ in range(rounds):
        with measured() as clock:
            work()
        clocks.append(clock)
    return min(clocks, key=lambda c: c.cpu)


def in_child(module: str, arguments: list[str], until: str | None = None) -> dict[str, Any]:
    """Run one measurement in a process of its own, `python -m module arguments` -> the JSON object of the last line it
    prints. until: stop it at the line with this. Raises RuntimeError when it says nothing."""
    command = [sys.executable, "-m", module, *arguments]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert child.stdout is not None
    last = ""
    for line in child.stdout:
        last = line
        if until is not None and until in line:
            break
    child.kill() if until is not None else child.wait()
    child.wait()
    if not last.strip().startswith("{"):
        raise RuntimeError(f"the measurement '{arguments[0]}' ended early")
    found: dict[str, Any] = json.loads(last)
    return found


def make_film(path: Path, seconds: float, width: int, height: int, rate: int = 30, gop: int = 60) -> Path:
    """An H.264 file of real footage (the demo's street, enlarged, with camera noise), repeated to `seconds`.

    gop: frames between key frames. The picture repeats every 10 s; decoders and encoders do not notice.
    """
    import imageio_ffmpeg

    from vilco_app.ui.demo import demo_paths

    exe = imageio_ffmpeg.get_ffmpeg_exe()
    street = next((p for p in demo_paths() if p.name == "bikes.mp4"), None)
    source = ["-i", str(street)] if street else ["-f", "lavfi", "-i", "testsrc2=duration=10"]
    once = path.with_name(f"{path.stem}.once.mp4")
    shape = f"scale={width}:{height}:flags=bicubic,setsar=1,fps={rate},noise=alls=4:allf=t"
    encode = ["-c:v", "libx264", "-preset", "veryfast", "-crf", "23", "-g", str(gop), "-pix_fmt", "yuv420p"]
    _ffmpeg([exe, *source, "-an", "-vf", shape, *encode, "-t", "10", str(once)])
    _ffmpeg([exe, "-stream_loop", "-1", "-i", str(once), "-c", "copy", "-t", f"{seconds}", str(path)])
    once.unlink()
    return path


def _ffmpeg(command: list[str]) -> None:
    done = subprocess.run([command[0], "-v", "error", "-nostdin", "-y", *command[1:]], capture_output=True, text=True)
    if done.returncode:
        raise VilcoError("bench-film", f"the test film could not be made: {done.stderr[-300:]}", "See: vilco doctor")


def matmul_peak(precision: str, threads: int = 1, size: int = 1536) -> float:
    """GFLOP/s of torch's matrix product of two [size, size] matrices, best of 24. precision: "f32" or "bf16"."""
    import torch

    torch.set_num_threads(threads)
    kind = torch.float32 if precision == "f32" else torch.bfloat16
    a, b = torch.rand(size, size).to(kind), torch.rand(size, size).to(kind)
    torch.mm(a, b)
    times = []
    for _ in range(24):
        began, worked = time.perf_counter(), time.process_time()
        torch.mm(a, b)
        # one thread: its CPU time, which other processes do not lengthen; several: the time that passes
        times.append(time.process_time() - worked if threads == 1 else time.perf_counter() - began)
    return 2 * size**3 / min(times) / 1e9


def decode_rate(film: Path) -> tuple[float, float]:
    """(frames, CPU seconds) of decoding every frame of a file, nothing else."""
    import av

    def work() -> int:
        with av.open(str(film)) as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            return sum(1 for _ in container.decode(stream))

    frames = work()
    return float(frames), best_of(2, work).cpu


def machine_rows(film: Path, threads: int) -> list[Row]:
    """Decode rate of `film` (1080p30) and the matrix-product peaks of this run."""
    frames, cpu = decode_rate(film)
    return [
        Row("machine: threads used", float(threads), "threads"),
        Row("machine: plain decode of 1080p30 H.264", frames / cpu, "frames per CPU s"),
        Row("machine: matmul peak f32, 1 thread", matmul_peak("f32"), "GFLOP/s"),
        Row("machine: matmul peak bf16, 1 thread", matmul_peak("bf16"), "GFLOP/s"),
    ]
