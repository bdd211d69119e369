"""Profiles by name: which can be used on this machine now, and the only place that may fetch weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vilco_app.encoders.base import Profile, ProfileStatus
from vilco_app.encoders.runtime import RuntimeOptions
from vilco_app.encoders.weights import LITE0, MINILM, TOKENIZER
from vilco_app.home import resolve_home
from vilco_app.values import VilcoError

NAMES = ("embedded", "clip", "dino", "egovlp", "precomputed")
Progress = Callable[[int, int, str], None]


def load_profile(
    name: str = "auto",
    models: Path | None = None,
    runtime: RuntimeOptions | None = None,
    progress: Progress | None = None,
) -> Profile:
    """The profile `name`: auto, embedded, clip[:MODEL[:WEIGHTS]], dino[:MODEL], egovlp:PATH or precomputed:FOLDER.

    auto: the best aligned one already prepared on this machine (the CLIP prepared last, else embedded). Never downloads.
    models: the home's `models/` folder (default: of `resolve_home()`). Raises VilcoError for an unknown name or weights
    that are not here, with the command that gets them.
    """
    models = models if models is not None else resolve_home() / "models"
    if name == "auto":
        name = best_here(models)
    kind, _, rest = name.partition(":")
    if kind == "embedded" and not rest:
        from vilco_app.encoders.embedded import EmbeddedProfile

        return EmbeddedProfile(models, runtime=runtime, progress=progress)
    if kind == "clip":
        from vilco_app.encoders.clip import ClipProfile

        return ClipProfile(name, models, runtime, progress)
    if kind == "dino":
        from vilco_app.encoders.dino import DinoProfile

        return DinoProfile(name, models, runtime, progress)
    if kind == "egovlp":
        from vilco_app.encoders.egovlp import EgoVlpProfile

        return EgoVlpProfile(name, models, runtime, progress)
    if kind == "precomputed":
        from vilco_app.encoders.precomputed import PrecomputedProfile

        return PrecomputedProfile(name, models, runtime, progress)
    raise VilcoError("unknown-profile", f"profile {name!r} is not known.", f"Use auto or one of: {', '.join(NAMES)}.")


def best_here(models: Path) -> str:
    """What "auto" means now: a CLIP converted in this home beats the embedded encoder, the latest one first."""
    from vilco_app.encoders.clip_weights import converted

    ready = converted(models)
    return ready[-1] if ready else "embedded"


def profile_status(models: Path | None = None) -> list[ProfileStatus]:
    """Every profile this version knows and whether it can be used now, without importing anything heavy."""
    from vilco_app.encoders.clip_weights import DEFAULT_WEIGHTS, converted

    models = models if models is not None else resolve_home() / "models"
    out = []
    try:
        for packaged in (LITE0, MINILM, TOKENIZER):
            packaged.path()
        out.append(ProfileStatus("embedded", True))
    except VilcoError as error:
        out.append(ProfileStatus("embedded", False, error.message, error.remedy))
    ready = converted(models)
    options = {model: f"vilco setup clip:{model}" for model in DEFAULT_WEIGHTS}
    if ready:
        out += [ProfileStatus(spec, True, options=options) for spec in ready]
    else:
        out.append(
            ProfileStatus(
                "clip", False, "no CLIP model is prepared here.",
                "Get one with: vilco setup clip, or name a weights file: clip:MODEL:PATH.", options,
            )
        )  # fmt: skip
    out.append(_dino_status())
    why = "its weights are a file that you name."
    out.append(ProfileStatus("egovlp", False, why, "Use it as egovlp:/path/to/checkpoint"))
    out.append(ProfileStatus("precomputed", False, "its features are files.", "Use it as precomputed:/path/to/folder"))
    return out


def _dino_status() -> ProfileStatus:
    from vilco_app.encoders.dino import find_dino

    try:
        find_dino("dino")
        return ProfileStatus("dino", True)
    except VilcoError as error:
        return ProfileStatus("dino", False, error.message, error.remedy)


def setup(profile: str, models: Path | None = None, progress: Progress | None = None) -> None:
    """Make a profile usable: downloads weights that are missing (clip, dino), then converts them.

    The only function of the product that uses the network. Raises VilcoError("download-failed").
    """
    kind = profile.partition(":")[0]
    if kind == "clip":
        from vilco_app.encoders.clip_weights import download

        download(profile, progress)
    elif kind == "dino":
        from vilco_app.encoders import dino

        try:
            dino.find_dino(profile)
        except VilcoError:
            dino.download(profile)
    load_profile(profile, models, progress=progress)
