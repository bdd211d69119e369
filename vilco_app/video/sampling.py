"""The sampling rule both backends share, batching, and what a reading pass reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from vilco_app.video.types import SampleBatch


def bin_of(time: float, rate: float, slack: float) -> int:
    """The tick k/rate a frame at `time` lies at or behind, at most `slack` seconds early.

    A sample is the first frame of its bin: the first one displayed at or after tick k/rate, unless none appears before
    the next tick. Both backends choose by this number alone.
    """
    return math.floor((time + slack) * rate)


@dataclass
class ReadReport:
    """How far a reading pass came, growing while it runs.

    readable_to: seconds to which frames were decoded. complete: the end of the file was reached and nothing was lost on
    the way. errors: what the decoder or the container said, at most 100; first_error: seconds of the first one, where it
    has a place. promised: seconds the container says there are, None where it does not. samples, decoded: how many so far.
    """

    readable_to: float = 0.0
    complete: bool = False
    samples: int = 0
    decoded: int = 0
    errors: list[str] = field(default_factory=list)
    first_error: float | None = None
    promised: float | None = None

    @property
    def status(self) -> str:
        """One sentence for a person; empty when everything was read."""
        if self.complete:
            return ""
        short = self.promised is not None and self.readable_to < self.promised - 0.5
        if short:
            return f"truncated: readable up to {self.readable_to:.1f} s of {self.promised:.1f} s"
        if not self.errors:
            return f"read up to {self.readable_to:.1f} s so far"
        where = f", the first near {self.first_error:.1f} s" if self.first_error is not None else ""
        return f"damaged: {len(self.errors)} errors{where}; readable up to {self.readable_to:.1f} s ({self.errors[0]})"

    def reach(self, time: float) -> None:
        self.readable_to = max(self.readable_to, time)

    def note(self, error: str) -> None:
        if len(self.errors) < 100:
            self.errors.append(error)


@dataclass(frozen=True)
class Sample:
    """One frame on its way into a batch: seconds, seconds it is shown, pixels."""

    time: float
    length: float
    frame: np.ndarray


class SampleStream(Iterator[SampleBatch]):
    """Batches of samples; `report` says how far reading came and why it stopped.

    Closing (or leaving a `with`) frees the decoder before the end is reached.
    """

    def __init__(self, samples: Callable[[ReadReport], Iterator[Sample]], batch: int) -> None:
        self.report = ReadReport()
        self._batches = batched(samples(self.report), batch, self.report)

    def __next__(self) -> SampleBatch:
        return next(self._batches)

    def close(self) -> None:
        self._batches.close()  # type: ignore[attr-defined]

    def __enter__(self) -> SampleStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def batched(samples: Iterator[Sample], batch: int, report: ReadReport) -> Iterator[SampleBatch]:
    """Groups samples of one size, gives each the time to the next as its duration; the last one runs to readable_to."""
    held: list[Sample] = []
    try:
        for sample in samples:
            if held and (len(held) == batch or held[-1].frame.shape != sample.frame.shape):
                yield _pack(held, sample.time)
                held = []
            held.append(sample)
            report.samples += 1
        if held:
            yield _pack(held, max(report.readable_to, held[-1].time + held[-1].length))
    finally:
        samples.close()  # type: ignore[attr-defined]


def _pack(held: list[Sample], end: float) -> SampleBatch:
    times = np.array([s.time for s in held], dtype=np.float64)
    return SampleBatch(times, np.diff(times, append=end), np.stack([s.frame for s in held]))
