"""Raw results of an asker over labelled questions, and the rows of the table made from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vilco_app.evaluation.retrieval import auroc

LEVELS = tuple((k, iou) for iou in (0.3, 0.5) for k in (1, 5))


@dataclass
class Scores:
    """Raw results of one asker over the cases: one row per question, so that askers can be compared in pairs."""

    text: dict[str, list[list[bool]]] = field(default_factory=dict)  # by list; hits at LEVELS
    moment: dict[str, list[list[bool]]] = field(default_factory=dict)
    visual: dict[str, list[list[bool]]] = field(default_factory=dict)  # right at 1, at 5, box
    again: dict[str, list[list[bool]]] = field(default_factory=dict)  # another occurrence than the query's: at 1, at 5
    present: dict[str, list[tuple[float, bool]]] = field(default_factory=dict)  # confidence, found
    absent: dict[str, list[tuple[float, bool]]] = field(default_factory=dict)


def rows_of(scores: Scores, names: Sequence[str]) -> list[dict[str, Any]]:
    """One row per list and family, then the same over all lists together ("all")."""
    rows: list[dict[str, Any]] = []
    for name in [*names, "all"] if len(names) > 1 else names:
        chosen = names if name == "all" else [name]

        def pooled(table: dict[str, list[Any]], chosen: Sequence[str] = chosen) -> list[Any]:
            return [row for n in chosen for row in table.get(n, [])]

        for family, table in (("text", scores.text), ("moment", scores.moment)):
            if hits := pooled(table):
                means = np.mean(np.array(hits, dtype=float), axis=0)
                metrics = {f"R@{k}@{t}": round(float(v), 4) for (k, t), v in zip(LEVELS, means, strict=True)}
                rows.append({"name": name, "family": family, "n": len(hits), "metrics": metrics})
        if hits := pooled(scores.visual):
            means = np.mean(np.array(hits, dtype=float), axis=0)
            metrics = dict(zip(("occurrence@1", "occurrence@5", "box@1"), means.round(4).tolist(), strict=True))
            if again := pooled(scores.again):
                more = np.mean(np.array(again, dtype=float), axis=0).round(4).tolist()
                metrics |= {"again@1": more[0], "again@5": more[1], "again_n": len(again)}
            rows.append({"name": name, "family": "visual", "n": len(hits), "metrics": metrics})
        present, absent = pooled(scores.present), pooled(scores.absent)
        if present and absent:
            metrics = {"AUROC": round(auroc([c for c, _ in present], [c for c, _ in absent]), 4)}
            if any(f for _, f in present + absent):
                metrics["found_present"] = round(float(np.mean([f for _, f in present])), 4)
                metrics["found_absent"] = round(float(np.mean([f for _, f in absent])), 4)
            rows.append({"name": name, "family": "absent", "n": len(absent), "metrics": metrics})
    return rows


def sides(scores: Scores) -> tuple[list[float], list[float]]:
    """Confidences of what is there, and of what is not."""
    return (
        [c for rows in scores.present.values() for c, _ in rows],
        [c for rows in scores.absent.values() for c, _ in rows],
    )


def column(table: dict[str, list[list[bool]]], which: int) -> list[float]:
    """One measure of every question, all lists together."""
    return [float(row[which]) for rows in table.values() for row in rows]
