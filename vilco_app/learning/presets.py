"""How long and how fast a stage is trained."""

from __future__ import annotations

from dataclasses import dataclass

from vilco_app.values import VilcoError

DEFAULT_STRATEGY = "episodic"
SMALL = 64  # examples up to which "auto" takes the quick preset


@dataclass(frozen=True)
class Preset:
    """Arguments of continual.loop.Plan."""

    name: str
    lr: float
    epochs: int
    batch_size: int
    min_steps: int
    max_steps: int | None
    weight_decay: float = 0.05


# ViLCo-Bench, table 8. Twice the paper's rate would be within its range for our smaller network, but the name says "paper".
PAPER = {
    "nlq": Preset("paper", 1e-4, 13, 8, 0, None),
    "mq": Preset("paper", 1e-4, 15, 2, 0, None),
    "vq": Preset("paper", 3e-4, 50, 4, 0, None, weight_decay=1e-4),
}
# corrections: a minute on two cores; the rate is what a two-million-parameter network bears with warm-up and clipping
QUICK = Preset("quick", 1e-3, 8, 8, 24, 120)
# whole stages at the quick rate
FULL = Preset("full", 1e-3, 10, 8, 40, None)


def preset_for(name: str, family: str, examples: int) -> Preset:
    """name: paper, quick, full or auto. Raises VilcoError "unknown-preset"."""
    if name == "auto":
        return QUICK if examples <= SMALL else FULL
    if name == "paper":
        return PAPER[family]
    if name == "quick":
        return QUICK
    if name == "full":
        return FULL
    raise VilcoError("unknown-preset", f"there is no preset {name!r}.", "Choose auto, quick, full or paper.")
