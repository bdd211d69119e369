"""Fine-tuning: nothing is done against forgetting. The lower bound every table starts with."""

from __future__ import annotations

from dataclasses import dataclass

from vilco_app.continual.protocols import Strategy


@dataclass(frozen=True)
class Options:
    """None."""


class Method(Strategy):
    """Plain training on the new stage."""

    name = "naive"

    def __init__(self, options: Options) -> None:
        self.options = options
