"""Weights that a person has on this machine already: a path they name, or a file in the hub's local cache. No network."""

from __future__ import annotations

from pathlib import Path

from vilco_app.values import VilcoError

HUB_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")  # safe format first


def cached_file(repository: str, names: tuple[str, ...]) -> Path | None:
    """The first of `names` that the local hub cache holds for `repository`."""
    from huggingface_hub import try_to_load_from_cache

    for name in names:
        found = try_to_load_from_cache(repository, name)
        if isinstance(found, str):
            return Path(found)
    return None


def digest(path: Path, length: int = 8) -> str:
    """The first hex digits of the SHA-256 of a file: what a profile over unnamed weights is called."""
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:length]


def missing(what: str, remedy: str) -> VilcoError:
    """The error for weights that are not on this machine."""
    return VilcoError("missing-weights", f"{what} is not on this machine.", remedy)
