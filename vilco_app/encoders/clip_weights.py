"""Which CLIP is meant by `clip[:MODEL[:WEIGHTS]]`, and where its weights lie on this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vilco_app.encoders.hub_cache import HUB_WEIGHTS, cached_file, digest, missing
from vilco_app.values import VilcoError

DEFAULT_MODEL = "ViT-B-32"  # at 4 times less arithmetic than B-16 the one a laptop CPU indexes with
DEFAULT_WEIGHTS = {  # the published weights meant when only the model is named
    "ViT-B-32": "laion2b_s34b_b79k",
    "ViT-L-14": "openai",  # as in the ViLCo paper
    "MobileCLIP-S1": "datacompdr",
    "MobileCLIP-S2": "datacompdr",
    "MobileCLIP-B": "datacompdr",
}


@dataclass(frozen=True)
class ClipSpec:
    """model: an open_clip model name or a path to a model configuration (.json). weights: a published tag or a path.

    file: the weights on this machine, None when absent. settings: the tag's own (mean, std, quick_gelu).
    """

    model: str
    weights: str
    file: Path | None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """A name for files and profile ids: weights named by path count by content."""
        local = Path(self.weights).is_file()
        parts = Path(self.model).stem if self.model.endswith(".json") else self.model
        tag = digest(Path(self.weights)) if local else self.weights
        return re.sub(r"[^a-z0-9]+", "-", f"clip-{parts}-{tag}".lower()).strip("-")

    @property
    def text(self) -> str:
        return f"clip:{self.model}:{self.weights}"

    def found(self) -> Path:
        """The weights file. Raises VilcoError("missing-weights") with the command that gets it."""
        if self.file is None:
            raise missing(
                f"the CLIP model {self.model} with weights {self.weights}",
                f"Download it once with: vilco setup {self.text}, or name a file: clip:{self.model}:/path/to/weights.safetensors",
            )
        return self.file


def parse_clip(name: str) -> ClipSpec:
    """`clip`, `clip:MODEL`, `clip:MODEL:WEIGHTS` -> ClipSpec. Never reads the network, nor imports torch for a path.

    Raises VilcoError for an unknown model or tag.
    """
    model, _, weights = name.removeprefix("clip").removeprefix(":").partition(":")
    model = model or DEFAULT_MODEL
    config = Path(model).expanduser()
    if model.endswith(".json"):
        if not config.is_file():
            raise VilcoError("unknown-model", f"{model} is not a file.", "Name an open_clip model or its .json file.")
        model = str(config.resolve())
    path = Path(weights).expanduser()
    if weights and path.is_file():
        return ClipSpec(model, str(path.resolve()), path.resolve())
    if "/" in weights or path.suffix in (".safetensors", ".pt", ".bin"):
        raise missing(f"the weights file {weights}", "Check the path; it is read as clip:MODEL:PATH.")
    tags = published(model)
    if not tags:
        raise VilcoError(
            "unknown-model", f"open_clip has no model {model!r}, or no published weights for it.",
            "Use a name from open_clip (ViT-B-32, ViT-L-14, MobileCLIP-S1, ...) or give a weights file: clip:MODEL:PATH.",
        )  # fmt: skip
    weights = weights or DEFAULT_WEIGHTS.get(model, "")
    if weights not in tags:
        raise VilcoError(
            "unknown-weights", f"open_clip has no weights {weights!r} for {model}.",
            f"Use one of: {', '.join(sorted(tags))}; or a path.",
        )  # fmt: skip
    return ClipSpec(model, weights, _cached(tags[weights]), tags[weights])


def canonical(name: str) -> str:
    """The same model always under the same words, without importing anything: defaults filled in, paths absolute and,
    for weights named by path, the file's size and time (a changed file is another model)."""
    model, _, weights = name.removeprefix("clip").removeprefix(":").partition(":")
    model = model or DEFAULT_MODEL
    if model.endswith(".json"):
        model = str(Path(model).expanduser().resolve())
    path = Path(weights).expanduser()
    if weights and path.is_file():
        seen = path.stat()
        return f"clip:{model}:{path.resolve()}:{seen.st_size}:{seen.st_mtime_ns}"
    return f"clip:{model}:{weights or DEFAULT_WEIGHTS.get(model, '')}"


def published(model: str) -> dict[str, dict[str, Any]]:
    """Tag -> settings of the published weights of an open_clip model; {} for a model without any."""
    from open_clip import pretrained

    return {tag: pretrained.get_pretrained_cfg(model, tag) for tag in pretrained.list_pretrained_tags_by_model(model)}


def _cached(settings: dict[str, Any]) -> Path | None:
    hub = str(settings.get("hf_hub", ""))
    if hub:
        repository, name = hub.rstrip("/").rsplit("/", 1) if hub.count("/") > 1 and not hub.endswith("/") else (hub, "")
        found = cached_file(repository.rstrip("/"), (name,) if name else HUB_WEIGHTS)
        if found:
            return found
    url = str(settings.get("url", ""))
    local = Path("~/.cache/clip").expanduser() / url.rsplit("/", 1)[-1] if url else None
    return local if local and local.is_file() else None


def converted(models: Path) -> list[str]:
    """Specs of the CLIP models converted in this home, oldest first: these load without torch or the weights file."""
    out = []
    folders = sorted((models / "encoders").glob("clip-*@*/settings.json"), key=lambda p: p.stat().st_mtime)
    for path in folders:
        try:
            out.append(str(json.loads(path.read_text())["spec"]))
        except (ValueError, KeyError):
            continue
    return out


def download(name: str, progress: Callable[[int, int, str], None] | None = None) -> None:
    """Fetch the published weights `name` means into the local cache, unless they are there. Uses the network.

    Raises VilcoError("download-failed").
    """
    spec = parse_clip(name)
    if spec.file is not None:
        return
    from open_clip import pretrained

    if progress:
        progress(0, 1, f"downloading {spec.model} ({spec.weights})")
    try:
        pretrained.download_pretrained(spec.settings)
    except Exception as error:  # whatever the hub client, the URL reader or the disk raise
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise VilcoError(
            "download-failed", f"the weights of {spec.text} could not be fetched: {reason}",
            f"Check the connection, or copy a weights file here and use clip:{spec.model}:PATH.",
        ) from None  # fmt: skip
