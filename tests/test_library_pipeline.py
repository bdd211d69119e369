"""The pipeline: order kept, failures of any step end it, what was transformed reaches the sink."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from vilco_app.library.pipeline import run_pipeline


def test_everything_passes_in_order() -> None:
    out: list[int] = []
    run_pipeline(range(100), lambda x: x * x, out.append)
    assert out == [x * x for x in range(100)]


@pytest.mark.parametrize("step", ["source", "transform", "sink"])
def test_a_failure_of_any_step_is_raised_and_the_threads_end(step: str) -> None:
    closed: list[bool] = []
    before = threading.active_count()

    def source() -> Iterator[int]:
        try:
            for x in range(1000):
                if step == "source" and x == 10:
                    raise ValueError("source")
                yield x
        finally:
            closed.append(True)

    def transform(x: int) -> int:
        if step == "transform" and x == 10:
            raise ValueError("transform")
        return x

    out: list[int] = []

    def sink(x: int) -> None:
        if step == "sink" and x == 10:
            raise ValueError("sink")
        out.append(x)

    with pytest.raises(ValueError, match=step):
        run_pipeline(source(), transform, sink)
    assert out == list(range(10)) and closed == [True] and threading.active_count() == before


def test_a_stop_between_items_keeps_what_was_transformed() -> None:
    class Stop(Exception):
        pass

    done: list[int] = []
    out: list[int] = []

    def check() -> None:
        if len(done) == 5:
            raise Stop

    def transform(x: int) -> int:
        done.append(x)
        return x

    with pytest.raises(Stop):
        run_pipeline(iter(range(100)), transform, out.append, check=check)
    assert out == done == [0, 1, 2, 3, 4]
