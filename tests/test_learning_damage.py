"""Damaged snapshots: named, and in nobody's way; forgetting reaches those who are answering."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError

from tests.learning_fakes import DIM, TEXT, TinyProfile
from vilco_app import learning
from vilco_app.learning.active import serving
from vilco_app.learning.directions import Directions, Taught
from vilco_app.learning.snapshots import DIRECTIONS, Snapshots
from vilco_app.learning.teaching import load_directions, save_directions
from vilco_app.learning.types import Matrix
from vilco_app.parts import Parts
from vilco_app.values import VilcoError

SPAN = ("v0.mp4", 2.0, 4.0)


def snapshot(home: Path, **card: Any) -> Path:
    """A snapshot that was taught one question, by files alone."""
    rng = np.random.default_rng(0)
    taught = Taught("a cup", "nlq", "v0.mp4", ((2.0, 4.0),), *(rng.normal(size=n) for n in (TEXT, DIM, DIM)))
    memory = Directions([taught], np.ones(2), rng.normal(size=(3, TEXT)), TinyProfile.blocks)
    said = {"profile": TinyProfile.id, "fusion": {"taught": {"nlq": [1.0, 1.0]}}, "spans": [list(SPAN)], **card}
    made = Snapshots(home).save(said, {}, {}, Matrix(), [], directions=memory)
    return Snapshots(home).path(made)


def entries(change: Callable[[list[Any]], Any]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        from safetensors import safe_open
        from safetensors.numpy import save_file

        path = folder / DIRECTIONS
        with safe_open(path, "numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            meta = dict(file.metadata())
        save_file(tensors, path, {**meta, "entries": json.dumps(change(json.loads(meta["entries"])))})

    return damage


def no_numbers(folder: Path) -> None:
    kept = load_directions(folder / DIRECTIONS, TinyProfile.blocks)
    assert kept is not None
    kept.entries[0].scene[:] = np.nan
    save_directions(kept, folder / DIRECTIONS)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda f: (f / DIRECTIONS).write_bytes((f / DIRECTIONS).read_bytes()[:-9]),
    "empty": lambda f: (f / DIRECTIONS).write_bytes(b""),
    "no numbers": no_numbers,
    "no entries": entries(lambda e: dict.fromkeys("ab")),
    "no windows": entries(lambda e: [{**e[0], "windows": None}]),
    "no list": lambda f: (f / "card.json").write_text("[]"),
    "no fusion": lambda f: (f / "card.json").write_text('{"schema": 1, "fusion": null}'),
    "odd fusion": lambda f: (f / "card.json").write_text('{"schema": 1, "fusion": {"taught": {"nlq": [1]}}}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_named_and_the_base_answers_again(tmp_path: Path, damage: str) -> None:
    folder = snapshot(tmp_path)
    learning.use(tmp_path, folder.name)
    assert serving(tmp_path, TinyProfile()).bend is not None
    DAMAGES[damage](folder)
    with pytest.raises(VilcoError) as caught:
        serving(tmp_path, TinyProfile())
    assert caught.value.code == "bad-snapshot" and str(folder) in caught.value.message
    assert folder.name in [s.id for s in learning.models(tmp_path).snapshots]
    learning.use(tmp_path, "base")
    assert serving(tmp_path, TinyProfile()).snapshot == "base"


def test_a_pointer_that_cannot_be_read_means_base(tmp_path: Path) -> None:
    snapshot(tmp_path)
    (tmp_path / "models" / "active.json").write_bytes(b"\xff\xfe\x00")
    assert learning.models(tmp_path).active == "base"


@pytest.mark.parametrize("file", [DIRECTIONS, "probes.json", "card.json", "buffer.safetensors"])
def test_forgetting_cuts_every_other_snapshot_before_it_names_a_damaged_one(tmp_path: Path, file: str) -> None:
    for _ in range(3):
        snapshot(tmp_path)
    folders = [tmp_path / "models" / i for i in Snapshots(tmp_path).ids()[1:]]
    (folders[0] / file).write_bytes(b"[{")
    with pytest.raises(VilcoError) as caught:
        learning.forget(tmp_path, *SPAN)
    assert caught.value.code == "bad-snapshot"
    assert str(folders[0] / file) in caught.value.message and str(folders[0]) in caught.value.remedy
    assert str(folders[1]) not in caught.value.remedy
    whole = folders[1:] if file == DIRECTIONS else folders
    for folder in whole:
        left = load_directions(folder / DIRECTIONS, TinyProfile.blocks)
        assert left is not None and len(left) == 0
    for folder in folders[1:]:
        assert "forgotten" in Snapshots(tmp_path).card(folder.name)["marked"]


@pytest.mark.parametrize("module", ["safetensors.torch.save_file", "safetensors.numpy.save_file"])
def test_a_full_disk_is_named_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    def full(_: object, path: Path, **__: object) -> None:
        Path(path).write_bytes(b"begun")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(module, full)
    with pytest.raises(VilcoError, match="No space left") as caught:
        snapshot(tmp_path)
    assert caught.value.code == "cannot-write" and caught.value.remedy
    assert list((tmp_path / "models").iterdir()) == []


class Answering(Parts):
    """A memory of whose answerer only what it got of the snapshot is looked at."""

    def _answerer(self) -> Any:
        return serving(self.home, TinyProfile())


def test_who_is_answering_forgets_with_the_others(tmp_path: Path) -> None:
    """A page that runs while somebody forgets on the command line."""
    learning.use(tmp_path, snapshot(tmp_path).name)
    page: Any = Answering(tmp_path)
    before = page.answerer
    assert before.bend is not None and page.answerer is before
    learning.forget(tmp_path, *SPAN)
    assert page.answerer.bend is None and page.answerer is page.answerer
