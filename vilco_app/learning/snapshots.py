"""Snapshots: immutable folders `models/<id>/`, one of them active. Nothing here imports torch until weights are asked for.

models/<id>/card.json           what it is: parent, stages, profile, strategy, fusion weights, losses, spans trained on
models/<id>/model.safetensors   weights, prompt memory, categories
models/<id>/buffer.safetensors  the strategy's state: replay buffer, anchors, masks
models/<id>/directions.safetensors  what the taught questions looked like (`directions`)
models/<id>/matrix.json         score matrix with the raw per-query hits
models/<id>/probes.json         the held-out examples earlier stages are checked by
models/<id>/pictures.safetensors  held-out picture examples as dense maps, where a vq stage was learnt
models/active.json              {"active": id}: the pointer that `use` switches
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vilco_app.learning.types import Fusion, Matrix, ModelList, SnapshotInfo
from vilco_app.stages.format import write_json
from vilco_app.values import SCHEMA, VilcoError

if TYPE_CHECKING:
    from vilco_app.encoders.base import Blocks
    from vilco_app.learning.directions import Directions

BASE = "base"
DIRECTIONS = "directions.safetensors"


class Snapshots:
    """The snapshots of one home."""

    def __init__(self, home: Path) -> None:
        self.folder = Path(home) / "models"

    def card(self, snapshot: str) -> dict[str, Any]:
        """Raises VilcoError "no-snapshot" / "bad-snapshot"."""
        path = self.path(snapshot) / "card.json"
        try:
            card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(card, dict):
                raise ValueError("holds no object")
            schema = card.get("schema")
            Fusion.from_json(card.get("fusion", {}))
        except FileNotFoundError:
            if snapshot == BASE:
                return shipped_card()
            raise VilcoError("no-snapshot", f"snapshot {snapshot}: there is none.", "See: vilco models") from None
        except (OSError, ValueError, TypeError, AttributeError, LookupError) as error:
            raise VilcoError("bad-snapshot", f"{path}: {error}.", "Remove this folder, or use another one.") from None
        if schema != SCHEMA:
            raise VilcoError(
                "bad-snapshot", f"{path}: schema {schema!r}, not {SCHEMA}.", "Use the version that wrote it."
            )
        return card

    def path(self, snapshot: str) -> Path:
        return self.folder / snapshot

    def ids(self) -> list[str]:
        """All snapshots, oldest first, base first of all."""
        found = []
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if (
                    path.is_dir()
                    and not path.name.startswith(".")
                    and path.name != BASE
                    and (path / "card.json").is_file()
                ):
                    found.append(path.name)
        made = {i: self.info(i).created for i in found}
        return [BASE, *sorted(found, key=lambda i: (made[i], i))]

    def active(self) -> str:
        """The snapshot answers come from; base when nothing was learnt (or the active one was deleted)."""
        try:
            name = str(json.loads((self.folder / "active.json").read_text(encoding="utf-8"))["active"])
        except (OSError, ValueError, KeyError, TypeError):
            return BASE
        return name if name == BASE or (self.path(name) / "card.json").is_file() else BASE

    def listing(self) -> ModelList:
        return ModelList(self.active(), tuple(self.info(i) for i in self.ids()))

    def info(self, snapshot: str) -> SnapshotInfo:
        """One row of the listing; one with a damaged card is marked, so that the others can still be used."""
        try:
            card = self.card(snapshot)
        except VilcoError as error:
            return SnapshotInfo(snapshot, None, (), "", None, "", marked=f"{error.message} {error.remedy}")
        return SnapshotInfo(
            snapshot, card.get("parent"), tuple(card.get("stages", ())), str(card.get("profile", "")),
            card.get("strategy"), str(card.get("created", "")), Fusion.from_json(card.get("fusion", {})),
            str(card.get("marked", "")),
        )  # fmt: skip

    def find(self, ref: str) -> str:
        """The snapshot of an id or unique prefix. Raises VilcoError."""
        ids = self.ids()
        if ref in ids:
            return ref
        fits = [i for i in ids if ref and i.startswith(ref)]
        if len(fits) != 1:
            what = "there is none" if not fits else f"it fits {', '.join(fits)}"
            raise VilcoError("no-snapshot", f"snapshot {ref!r}: {what}.", "See: vilco models")
        return fits[0]

    def use(self, ref: str) -> str:
        snapshot = self.find(ref)
        write_json(self.folder / "active.json", {"active": snapshot})
        return snapshot

    def remove(self, ref: str) -> str:
        """Delete a snapshot for good -> its id. Raises VilcoError for the base one and for the one answers come from.

        Snapshots learnt on top of it are whole by themselves and stay.
        """
        snapshot = self.find(ref)
        if snapshot in (BASE, self.active()):
            what = "is what ships with vilco" if snapshot == BASE else "answers questions at present"
            raise VilcoError("snapshot-in-use", f"snapshot {snapshot}: {what}.", "Choose another first: vilco use ID")
        hidden = self.path(snapshot).with_name(f".{snapshot}.gone")
        try:
            os.replace(self.path(snapshot), hidden)  # gone at once and whole, whatever becomes of the rest
        except OSError as error:
            raise VilcoError(
                "storage-failed", f"{self.path(snapshot)}: {error.strerror}.", "Check the disk and the folder."
            ) from error
        shutil.rmtree(hidden, ignore_errors=True)
        return snapshot

    def save(
        self,
        card: Mapping[str, Any],
        model: Mapping[str, Any],
        strategy: Mapping[str, Any],
        matrix: Matrix,
        probes: list[dict[str, Any]],
        pictures: Sequence[Any] = (),
        directions: Directions | None = None,
    ) -> str:
        """Write a new snapshot under a temporary name, then rename: it is there whole or not at all -> its id."""
        from vilco_app.learning.packing import save_state
        from vilco_app.learning.teaching import save_directions

        snapshot = secrets.token_hex(6)
        draft = self.folder / f".{snapshot}.{os.getpid()}.tmp"
        try:
            draft.mkdir(parents=True)
            save_state(model, draft / "model.safetensors")
            save_state(strategy, draft / "buffer.safetensors")
            if pictures:
                save_state([p.state_dict() for p in pictures], draft / "pictures.safetensors")
            if directions is not None:
                save_directions(directions, draft / DIRECTIONS)
            write_json(draft / "matrix.json", matrix.full_json())
            write_json(draft / "probes.json", probes)
            created = datetime.now(UTC).isoformat(timespec="microseconds")
            write_json(draft / "card.json", {"schema": SCHEMA, "id": snapshot, **card, "created": created})
            os.rename(draft, self.path(snapshot))
        except OSError as error:
            raise VilcoError(
                "cannot-write", f"{self.folder}: {error.strerror or error}.", "Free some space, or choose another home."
            ) from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return snapshot

    def matrix(self, snapshot: str) -> Matrix:
        try:
            text = (self.path(snapshot) / "matrix.json").read_text(encoding="utf-8")
            return Matrix.from_json(json.loads(text))
        except OSError:
            return Matrix()
        except (ValueError, TypeError, AttributeError) as error:
            path = self.path(snapshot) / "matrix.json"
            raise VilcoError("bad-snapshot", f"{path}: {error}.", "Go back to another snapshot: vilco use ID") from None

    def probes(self, snapshot: str) -> list[dict[str, Any]]:
        """Per stage learnt: {"stage": a stage object of its held-out examples}."""
        try:
            text = (self.path(snapshot) / "probes.json").read_text(encoding="utf-8")
            found: list[dict[str, Any]] = json.loads(text)
        except OSError:
            return []
        except ValueError as error:
            path = self.path(snapshot) / "probes.json"
            raise VilcoError("bad-snapshot", f"{path}: {error}.", "Go back to another snapshot: vilco use ID") from None
        return found

    def pictures(self, snapshot: str) -> list[Any]:
        """Held-out picture examples kept as dense maps (continual Samples)."""
        path = self.path(snapshot) / "pictures.safetensors"
        if not path.is_file():
            return []
        from vilco_app.continual import Sample
        from vilco_app.learning.packing import load_state

        return [Sample.from_state(s) for s in load_state(path)]

    def directions(self, snapshot: str, blocks: Blocks) -> Directions | None:
        """The memory of taught directions; None where nothing was taught. Raises VilcoError when it is damaged."""
        from vilco_app.learning.teaching import load_directions

        return load_directions(self.path(snapshot) / DIRECTIONS, blocks)

    def change_card(self, snapshot: str, changes: Mapping[str, Any]) -> None:
        write_json(self.path(snapshot) / "card.json", {**self.card(snapshot), **changes})


def shipped_card() -> dict[str, Any]:
    """The card of the base snapshot: of the checkout, or the copy inside the wheel."""
    package = Path(__file__).resolve().parent.parent
    for path in (package.parent / "models" / BASE / "card.json", package / "models_base" / "card.json"):
        if path.is_file():
            card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return card
    return {
        "schema": SCHEMA,
        "id": BASE,
        "parent": None,
        "stages": [],
        "profile": "any",
        "strategy": None,
        "created": "",
    }
