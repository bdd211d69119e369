"""Nearest stored vectors of a question over the whole library or some of its recordings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from vilco_app.library.exact import best_globals, best_regions, top_of
from vilco_app.library.types import Hits, Statistics, Stored
from vilco_app.library.view import View

VectorKind = Literal["globals", "regions"]


class Searcher:
    def __init__(self, view: View, root: Path) -> None:
        self.view, self.root = view, root

    def search(self, kind: str, vectors: np.ndarray, top: int, videos: Sequence[str] | None) -> list[Hits]:
        vectors = np.atleast_2d(np.asarray(vectors, np.float32))
        snapshot = self.view.snapshot()
        ids = list(snapshot.records) if videos is None else list(dict.fromkeys(videos))
        parts: list[tuple[str, Stored, np.ndarray, np.ndarray]] = []
        for video in ids:
            stored = self.view.joined(video).stored
            if not len(stored):
                continue
            rows, scores = (best_globals if kind == "globals" else best_regions)(stored, vectors, top)
            parts.append((video, stored, rows, scores))
        out = []
        for q in range(len(vectors)):
            if not parts:
                empty = np.zeros(0)
                out.append(
                    Hits(
                        (),
                        empty.astype(np.int64),
                        empty,
                        empty.astype(np.float32),
                        np.zeros((0, 4), np.float32) if kind == "regions" else None,
                    )
                )
                continue
            owner = np.concatenate([np.full(len(p[2][q]), i) for i, p in enumerate(parts)])
            rows = np.concatenate([p[2][q] for p in parts])
            scores = np.concatenate([p[3][q] for p in parts])
            best = top_of(scores[None], top)[0]
            names, samples, times, boxes = [], [], [], []
            for i in best:
                video, stored, _, _ = parts[owner[i]]
                row = int(rows[i])
                if kind == "regions":
                    boxes.append(np.asarray(stored.region_boxes[row], np.float32) / 255)
                    group = int(np.searchsorted(stored.offsets, row, side="right")) - 1
                    row = int(np.searchsorted(stored.group, group))
                names.append(video)
                samples.append(row)
                times.append(float(stored.times[row]))
            out.append(
                Hits(
                    tuple(names),
                    np.array(samples, np.int64),
                    np.array(times),
                    scores[best],
                    np.array(boxes, np.float32).reshape(-1, 4) if kind == "regions" else None,
                )
            )
        return out

    def statistics(self, kind: str) -> Statistics:
        snapshot = self.view.snapshot()
        rows = []
        for video in snapshot.records:
            stored = self.view.joined(video).stored
            x = np.asarray(stored.globals, np.float32) if kind == "globals" else stored.regions()
            if len(x):
                rows.append(x[:: max(1, len(x) // 2000)])
        if not rows:
            return Statistics(0, np.zeros(0), np.zeros((0, 0)))
        table = np.concatenate(rows).astype(np.float64)
        mean = table.mean(axis=0)
        centred = table - mean
        return Statistics(len(table), mean, centred.T @ centred / len(table))
