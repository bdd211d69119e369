"""One strategy per file. `make_strategy` imports only the one asked for."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

from vilco_app.continual import STRATEGIES
from vilco_app.continual.protocols import Strategy
from vilco_app.values import VilcoError


def make_strategy(name: str, **options: Any) -> Strategy:
    """The strategy of that name with options given as in its Options dataclass; raises VilcoError for unknown ones."""
    if name not in STRATEGIES:
        raise VilcoError("no-strategy", f"there is no strategy {name!r}.", f"Choose one of {', '.join(STRATEGIES)}.")
    module = import_module(f"vilco_app.continual.strategies.{name.replace('-', '_')}")
    known = {f.name for f in fields(module.Options)}
    for option in options:
        if option not in known:
            raise VilcoError(
                "no-option",
                f"strategy {name!r} has no option {option!r}.",
                f"It knows: {', '.join(sorted(known)) or 'none'}.",
            )
    strategy: Strategy = module.Method(module.Options(**options))
    return strategy


def options_of(name: str) -> dict[str, Any]:
    """Option names and defaults of a strategy."""
    module = import_module(f"vilco_app.continual.strategies.{name.replace('-', '_')}")
    return {f.name: f.default for f in fields(module.Options)}
