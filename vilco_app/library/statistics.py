"""Mean and covariance of what is stored, kept beside the indexes until enough has changed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from vilco_app.library.types import Statistics
from vilco_app.library.view import Snapshot, View

SAMPLE = 20_000  # vectors they are estimated from: the relative error of a variance is sqrt(2 / n), 1 %
FRESH = 0.9  # kept while they cover this share of what is stored, and nothing they were made from was taken away


def statistics(view: View, root: Path, kind: str) -> Statistics:
    """Of about SAMPLE vectors spread evenly over all recordings of the view; kind: "globals" or "regions".

    n is the number they were estimated from; 0 with empty arrays when nothing is stored.
    """
    snapshot = view.snapshot()
    path = root / f"statistics-{kind}.npz"
    kept = _load(path, snapshot, kind)
    if kept is not None:
        return kept
    total = _total(snapshot, kind)
    if total == 0:
        return Statistics(0, np.zeros(0), np.zeros((0, 0)))
    step = max(1, total // SAMPLE)
    rows = []
    for video in snapshot.takes:
        stored = view.joined(video).stored
        if kind == "globals":
            rows.append(np.asarray(stored.globals[::step], np.float32))
        else:
            codes = np.asarray(stored.region_codes[::step], np.float32)
            rows.append(codes * np.asarray(stored.region_scales[::step])[:, None])
    table = np.concatenate(rows)
    mean = table.mean(axis=0, dtype=np.float64)
    centred = table - mean.astype(np.float32)
    cov = (centred.T @ centred).astype(np.float64) / len(table)
    made = Statistics(len(table), mean, cov)
    _save(path, snapshot, total, made)
    return made


def _total(snapshot: Snapshot, kind: str) -> int:
    return sum(t.rows if kind == "globals" else t.regions for takes in snapshot.takes.values() for t in takes)


def _load(path: Path, snapshot: Snapshot, kind: str) -> Statistics | None:
    try:
        with np.load(path, allow_pickle=False) as data:
            live = {take.id for takes in snapshot.takes.values() for take in takes}
            total = _total(snapshot, kind)
            if not set(data["takes"].tolist()) <= live or not FRESH * total <= int(data["total"]) <= total:
                return None
            return Statistics(int(data["n"]), data["mean"], data["cov"])
    except (OSError, ValueError, KeyError):
        return None


def _save(path: Path, snapshot: Snapshot, total: int, made: Statistics) -> None:
    takes = [take.id for takes in snapshot.takes.values() for take in takes]
    draft = path.with_name(f".{path.stem}-{os.getpid()}.npz")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(draft, "wb") as file:
            np.savez(file, takes=np.array(takes), total=total, n=made.n, mean=made.mean, cov=made.cov)
        os.replace(draft, path)
    except OSError:  # a library that cannot be written can still be asked
        draft.unlink(missing_ok=True)
