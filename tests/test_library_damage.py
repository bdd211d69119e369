"""Damaged files of the library: named or mended, never searched."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.library_stand_ins import DIM, TinyProfile, write_video
from tests.test_library_search import INVERTED, PROJECTED, SCANNED, check, fill, make
from vilco_app.library.segments import SegmentDefaults
from vilco_app.values import VilcoError


def noise(path: Path, first: int = 0, count: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    count = len(data) - first if count is None else count
    data[first : first + count] = np.random.default_rng(0).integers(0, 256, count, dtype=np.uint8).tobytes()
    path.write_bytes(bytes(data))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGES: dict[str, Callable[[Path], None]] = {
    "noise throughout": lambda folder: noise(folder / "globals.faiss"),
    "noise in the head": lambda folder: noise(folder / "regions.faiss", 30, 20),
    "one byte in the middle": lambda folder: noise(folder / "globals.faiss", 1000, 1),
    "cut short": lambda folder: cut(folder / "globals.faiss"),
    "no projection": lambda folder: noise(folder / "globals.npy"),
    "no sums": lambda folder: (folder / "sums.json").write_text("[1, 2"),
    "a file gone": lambda folder: (folder / "regions.faiss").unlink(),
    "all gone": lambda folder: shutil.rmtree(folder),
}


@pytest.mark.parametrize("segments", [PROJECTED, INVERTED], ids=["projected", "inverted"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_segment_is_made_anew(tmp_path: Path, damage: str, segments: SegmentDefaults) -> None:
    library = make(tmp_path / "home", segments)
    fill(library, tmp_path, (60, 60))
    before = library.catalogue.segments("tiny@1")
    folder = next(library.generations_folder.glob(f"*/{before[0].name}"))
    DAMAGES[damage](folder)
    asking = make(tmp_path / "home", segments)
    check(asking)
    now = asking.catalogue.segments("tiny@1")
    assert before[0].name not in {s.name for s in now} and not folder.exists()
    rows = sorted((s.take, row) for g in now for s in g.spans for row in range(s.first, s.last))
    assert rows == sorted((s.take, row) for g in before for s in g.spans for row in range(s.first, s.last))


def test_a_damage_that_cannot_be_mended_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = make(tmp_path / "home", SCANNED)
    fill(library, tmp_path, (60,))
    (path,) = library.generations_folder.glob("*/segment-*/globals.faiss")
    noise(path)
    asking = make(tmp_path / "home", SCANNED)

    def read_only(*_: object) -> None:
        raise VilcoError("home-not-writable", "the home cannot be written.", "Change that.")

    monkeypatch.setattr(asking.catalogue, "switch_segments", read_only)
    with pytest.raises(VilcoError) as caught:
        asking.search_globals(np.ones(DIM), 5)
    assert caught.value.code == "damaged-index"
    assert str(path) in caught.value.message and "cannot be written" in caught.value.message and caught.value.remedy


@pytest.mark.parametrize(("name", "share"), [
    ("samples.bin", 0.01), ("groups.bin", 0.03), ("globals.bin", 0.2), ("regions.bin", 0.3),
])  # fmt: skip
@pytest.mark.parametrize("first", [0.3, 0.6])
def test_noise_inside_a_feature_file_is_named_and_made_anew(
    tmp_path: Path, name: str, first: float, share: float
) -> None:
    library = make(tmp_path / "home", SCANNED)
    path = write_video(tmp_path / "a.mp4", 60, seed=1)
    (video,) = library.add(path, TinyProfile()).added
    for file in library.features_folder.rglob(name):
        noise(file, int(first * file.stat().st_size), int(share * file.stat().st_size))
    fresh = make(tmp_path / "home", SCANNED)
    with pytest.raises(VilcoError) as caught:
        fresh.stored(video)
    assert caught.value.code == "damaged-features" and str(path) in caught.value.message
    assert fresh.add(path, TinyProfile()).added == (video,) and len(fresh.stored(video)) == 120


def test_a_vector_that_is_no_number_is_named(tmp_path: Path) -> None:
    library = make(tmp_path / "home", SCANNED)
    (video,) = library.add(write_video(tmp_path / "a.mp4", 60, seed=1), TinyProfile()).added
    (file,) = library.features_folder.rglob("globals.bin")
    data = np.fromfile(file, "<f2").reshape(-1, DIM)
    data[37, 0] = np.inf
    file.write_bytes(data.tobytes())
    with pytest.raises(VilcoError) as caught:
        make(tmp_path / "home", SegmentDefaults()).search_globals(np.ones(DIM), 5, [video])
    assert caught.value.code == "damaged-features" and f"vilco remove {video}" in caught.value.remedy
