"""Profiles by name: which can be used on this machine now, and the only place that may fetch weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vilco_app.encoders.base import Profile, ProfileStatus
from vilco_app.encoders.runtime import RuntimeOptions
from vilco_app.encoders.weights import LITE0, MINILM, TOKENIZER
from vilco_app.values import VilcoError

NAMES = ("embedded", "clip", "dino", "egovlp", "precomputed")
Progress = Callable[[int, int, str], None]


def load_profile(
    name: str = "auto",
    models: Path | None = None,
    runtime: RuntimeOptions | None = None,
    progress: Progress | None = None,
) -> Profile:
    """The profile `name`; "auto": the best one already on this machine. Never downloads.

    models: the home's `models/` folder (default: of `resolve_home()`). Raises VilcoError for an unknown name or weights
    that are not here, with the command that gets them.
    """
    from vilco_app.values import resolve_home

    models = models if models is not None else resolve_home() / "models"
    kind = name.partition(":")[0]
    if kind in ("auto", "embedded"):
        from vilco_app.encoders.embedded import EmbeddedProfile

        return EmbeddedProfile(models, runtime=runtime, progress=progress)
    raise VilcoError("unknown-profile", f"profile {name!r} is not known.", f"Use one of: auto, {', '.join(NAMES)}.")


def profile_status(models: Path | None = None) -> list[ProfileStatus]:
    """Every profile this version knows and whether it can be used now, without loading anything heavy."""
    out = []
    try:
        for packaged in (LITE0, MINILM, TOKENIZER):
            packaged.path()
        out.append(ProfileStatus("embedded", True))
    except VilcoError as error:
        out.append(ProfileStatus("embedded", False, error.message, error.remedy))
    return out


def setup(profile: str, models: Path | None = None, progress: Progress | None = None) -> None:
    """Make a profile usable: converts, and (clip, dino) downloads. The only function here that may use the network."""
    load_profile(profile, models, progress=progress)
