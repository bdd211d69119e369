"""vilco: episodic memory for first-person video."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vilco_app.memory import EpisodicMemory

__version__ = "0.1.0"
__all__ = ["EpisodicMemory", "__version__"]


def __getattr__(name: str) -> Any:
    # lazy, so that `vilco --help` imports neither numpy nor an encoder
    if name == "EpisodicMemory":
        from vilco_app.memory import EpisodicMemory

        return EpisodicMemory
    raise AttributeError(f"module 'vilco_app' has no attribute {name!r}")
