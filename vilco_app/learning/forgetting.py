"""Forgetting a span of footage in every snapshot: replay examples and probes cut from it go, the snapshot is marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vilco_app.learning.snapshots import BASE, DIRECTIONS, Snapshots
from vilco_app.learning.teaching import cut_directions
from vilco_app.stages.format import write_json
from vilco_app.values import VilcoError


def forget_span(home: Path, video: str, start: float, end: float) -> list[str]:
    """See `vilco_app.learning.forget`. Weights cannot be cut: snapshots trained on the span are marked, to be deleted or
    learnt again. Raises VilcoError "bad-snapshot" for files that cannot be read, when all others are cut."""
    snapshots, marked, damaged = Snapshots(home), [], []
    note = f"trained on footage that was forgotten since ({video} {start:g}-{end:g} s); delete it or learn again"
    for snapshot in snapshots.ids():
        if snapshot == BASE and not (snapshots.path(BASE) / "buffer.safetensors").is_file():
            continue
        removed = 0
        for cut in (_cut_buffer, _cut_directions, _cut_probes, _cut_pictures):
            try:
                removed += cut(snapshots, snapshot, video, start, end)
            except VilcoError as error:
                damaged.append((snapshot, error.message))
        try:
            spans = snapshots.card(snapshot).get("spans", [])
            if removed or any(v == video and a < end and b > start for v, a, b in spans):
                snapshots.change_card(snapshot, {"marked": note})
                marked.append(snapshot)
        except VilcoError as error:
            damaged.append((snapshot, error.message))
    if damaged:
        raise VilcoError(
            "bad-snapshot", "forgotten everywhere but in damaged snapshots: " + " ".join(dict(damaged).values()),
            "Remove these folders: " + ", ".join(str(snapshots.path(s)) for s in dict(damaged)),
        )  # fmt: skip
    return marked


def _cut_directions(snapshots: Snapshots, snapshot: str, video: str, start: float, end: float) -> int:
    return cut_directions(snapshots.path(snapshot) / DIRECTIONS, video, start, end)


def _cut_buffer(snapshots: Snapshots, snapshot: str, video: str, start: float, end: float) -> int:
    path = snapshots.path(snapshot) / "buffer.safetensors"
    if not path.is_file():
        return 0
    from vilco_app.continual import make_strategy
    from vilco_app.learning.packing import load_state, save_state

    state = load_state(path)
    strategy = make_strategy(str(snapshots.card(snapshot).get("strategy") or "naive"))
    strategy.load_state_dict(state)
    removed = strategy.forget(video, start, end)
    if removed:
        save_state(strategy.state_dict(), path)
    return removed


def _cut_probes(snapshots: Snapshots, snapshot: str, video: str, start: float, end: float) -> int:
    table = snapshots.probes(snapshot)
    if not table:
        return 0

    def touches(e: dict[str, Any]) -> bool:
        windows = e.get("windows") or [[b[0], b[0]] for b in e.get("track", ())]
        return e["video"] == video and any(s <= end and t >= start for s, t in windows)

    kept = [{**entry, "examples": [e for e in entry["examples"] if not touches(e)]} for entry in table]
    if kept != table:
        write_json(snapshots.path(snapshot) / "probes.json", kept)
    return 0  # nothing was trained on them


def _cut_pictures(snapshots: Snapshots, snapshot: str, video: str, start: float, end: float) -> int:
    path = snapshots.path(snapshot) / "pictures.safetensors"
    if not path.is_file():
        return 0
    from vilco_app.learning.packing import save_state

    held = snapshots.pictures(snapshot)
    kept = [s for s in held if not any(v == video and a < end and b > start for v, a, b in s.spans)]
    if len(kept) < len(held):
        save_state([s.state_dict() for s in kept], path)
    return 0
