"""`forget` that dies at any of its steps: what a reader then finds is whole, and asking again finishes it."""

from __future__ import annotations

import builtins
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.library_stand_ins import DIM, TinyProfile, vector, write_video
from tests.test_library_search import PROJECTED, check, make
from vilco_app.jobs.database import Database
from vilco_app.library import segments as segments_module

KEPT = np.concatenate([np.arange(0, 8, 0.5), np.arange(12, 30, 0.5)])  # of 30 s at 2 fps without 8 to 12


class Killed(BaseException):
    """What ends the process; nothing of ours may catch it and go on."""


class Killer:
    """Lets `steps` operations that change something on the disk happen; the next, and all after it, raise instead."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def before(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **named: Any) -> Any:
            self.step()
            return real(*arguments, **named)

        return stepped


@contextmanager
def dying(steps: int) -> Iterator[Killer]:
    killer = Killer(steps)
    real_open, real_write, real_faiss = builtins.open, Database.write, segments_module.load_faiss

    def opened(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
        if set(mode) & set("wax+"):
            killer.step()
        return real_open(file, mode, *more, **named)

    @contextmanager
    def write(self: Database) -> Iterator[Any]:
        killer.step()
        with real_write(self) as connection:
            yield connection
            killer.step()  # written, not yet committed
        killer.step()  # just committed

    class Faiss:
        def __getattr__(self, name: str) -> Any:
            found = getattr(real_faiss(), name)
            return killer.before(found) if name == "write_index" else found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "open", opened)
        patch.setattr(Database, "write", write)
        patch.setattr(segments_module, "load_faiss", Faiss)
        for module, name in (
            (os, "replace"), (os, "fsync"), (shutil, "rmtree"), (Path, "mkdir"), (Path, "write_bytes"),
            (Path, "write_text"), (np, "save"),
        ):  # fmt: skip
            patch.setattr(module, name, killer.before(getattr(module, name)))
        yield killer


def home_with_a_recording(home: Path, film: Path) -> str:
    library = make(home, PROJECTED)
    (video,) = library.add(write_video(film, 30, seed=1), TinyProfile()).added
    library.correct("k", "in it", "text", video, [(9, 10)])
    cache = library.cache_folder(video)
    cache.mkdir(parents=True)
    (cache / "thumb.jpg").write_bytes(b"picture")
    return video


def test_forgetting_can_die_at_every_step(tmp_path: Path) -> None:
    video = home_with_a_recording(tmp_path / "prepared", tmp_path / "a.mp4")
    inside = vector((9000, 1), "global", DIM)
    whole_before, gone_after, steps, died = 0, 0, 0, True
    while died:
        home = tmp_path / f"home{steps}"
        shutil.copytree(tmp_path / "prepared", home)
        with dying(steps):
            try:
                make(home, PROJECTED).forget(video, 8, 12)
                died = False
            except Killed:
                pass
        after = make(home, PROJECTED)  # another process, later
        times = after.stored(video).times
        if len(times) == 60:  # nothing happened yet
            whole_before += 1
            assert len(after.corrections()) == 1
            assert after.search_globals(inside, 1)[0].scores[0] > 0.98
        else:  # all of it happened, as far as anybody can see
            gone_after += 1
            assert np.array_equal(times, KEPT) and after.corrections() == []
            assert after.search_globals(inside, 1)[0].scores[0] < 0.98
        check(after)
        after.forget(video, 8, 12)
        assert np.array_equal(after.stored(video).times, KEPT) and after.corrections() == []
        check(after)
        live = {f"take{t.id}" for t in after.catalogue.takes()}
        assert {f.name for f in after.features_folder.glob("*/*/take*")} == live
        named = after.catalogue.segment_names()
        assert {f.name for f in after.generations_folder.glob("*/*segment-*")} == named
        assert not after.cache_folder(video).exists()
        shutil.rmtree(home)
        steps += 1
    assert whole_before > 5 and gone_after > 5 and steps > 20
