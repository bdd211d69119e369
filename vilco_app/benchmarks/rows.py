"""Rows of the benches, as the contract wants them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One measured number. limit: "max" = the value should be at most `target`, "min" = at least; None = no target."""

    name: str
    value: float | None
    unit: str
    target: float | None = None
    limit: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def row(
    name: str, value: float | None, unit: str, target: float | None = None, limit: str | None = None
) -> dict[str, Any]:
    """The JSON of a `Row`."""
    return Row(name, value, unit, target, limit).to_json()
