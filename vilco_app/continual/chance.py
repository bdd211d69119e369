"""The process's random state: seeded inside a block, saved and put back for resuming."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """torch's global generators seeded inside (dropout, initialisation of new rows), as they were outside."""
    before = get_random()
    torch.manual_seed(seed)
    try:
        yield
    finally:
        set_random(before)


def get_random() -> list[Tensor]:
    """States of the process's random generators: CPU first, then every accelerator."""
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return [torch.get_rng_state(), *devices]


def set_random(state: Sequence[Tensor]) -> None:
    """Put states of `get_random` back; those of accelerators only where their number is the same."""
    torch.set_rng_state(state[0].cpu())
    if torch.cuda.is_available() and len(state) - 1 == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([s.cpu() for s in state[1:]])
