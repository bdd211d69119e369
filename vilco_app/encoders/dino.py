"""Profile "dino": DINO or DINOv2 (through transformers) for picture questions and as the network's input; not aligned.

Its features know instances, not words: questions in words have no zero-shot answer in this profile, and MiniLM gives the
text vectors that the ViLCo network reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from vilco_app.encoders.base import TextVectors
from vilco_app.encoders.embedded import embedded_folder, open_minilm
from vilco_app.encoders.hub_cache import cached_file, digest, missing
from vilco_app.encoders.patches import PatchProfile
from vilco_app.encoders.runtime import Network, RuntimeOptions, convert, open_network
from vilco_app.encoders.weights import built_folder
from vilco_app.values import VilcoError

VERSION = "1"  # raise whenever stored vectors change
RECIPE = "1"  # raise whenever the converted files would differ
DEFAULT_MODEL = "facebook/dinov2-base"  # the size ViLCo's visual-query model uses
SIDE = 224  # of whole frames: what the models were trained at
DENSE_SIDE = 448  # of dense maps: 32 x 32 cells at patch 14
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # safe format first
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, as in both papers


class DinoProfile(PatchProfile):
    """See `vilco_app.encoders.base.Profile`. name: `dino[:MODEL]`, MODEL a local folder or a hub name in the local cache.

    Raises VilcoError when the model is not on this machine or is of another kind.
    """

    aligned = False

    def __init__(
        self,
        name: str,
        models: Path,
        runtime: RuntimeOptions | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> None:
        runtime = runtime or RuntimeOptions()
        source = find_dino(name)
        target = models / "encoders" / f"{_slug(name, source)}@{VERSION}"

        def build(folder: Path) -> None:
            import torch

            model = _open(source)
            for kind, side in (("vision", SIDE), ("dense", DENSE_SIDE)):
                frames = torch.zeros(2, side, side + 8, 3, dtype=torch.uint8)
                convert(_module(model, side), (frames,), folder / f"{kind}.xml", half=True)
            (folder / "settings.json").write_text(json.dumps({"dim": int(model.config.hidden_size)}))

        folder = built_folder(target, RECIPE, build)

        def network(kind: str, side: int) -> Network:
            return open_network(folder, kind, runtime, lambda: _module(_open(source), side))

        dim = int(json.loads((folder / "settings.json").read_text())["dim"])
        super().__init__(network("vision", SIDE), lambda: network("dense", DENSE_SIDE), dim, SIDE)
        self.id = target.name
        self.name, self.version, self.preprocess = target.name.partition("@")[0], VERSION, f"rgb-squeezed-{SIDE}"
        self.text_encoder = open_minilm(embedded_folder(models, progress), runtime)
        self.text_dim = self.text_encoder.dim
        self.text = lru_cache(maxsize=256)(self._text)

    def _text(self, text: str) -> TextVectors:
        return TextVectors(self.text_encoder.sentences([text])[0], self.text_encoder.tokens(text))


def find_dino(name: str) -> Path:
    """The local folder of `dino[:MODEL]`. Raises VilcoError("missing-weights")."""
    model = name.removeprefix("dino").removeprefix(":") or DEFAULT_MODEL
    folder = Path(model).expanduser()
    if (folder / "config.json").is_file():
        return folder.resolve()
    if folder.is_absolute() or model.startswith("."):
        raise missing(f"a model folder {model} with config.json", "Check the path; it is read as dino:FOLDER.")
    config, weights = cached_file(model, ("config.json",)), cached_file(model, WEIGHTS)
    if config is None or weights is None:
        raise missing(
            f"the DINO model {model}",
            f"Download it once with: vilco setup dino:{model}, or name a local folder: dino:/path/to/folder",
        )
    return config.parent


def download(name: str) -> None:
    """Fetch the model `dino[:MODEL]` into the local cache. Uses the network. Raises VilcoError("download-failed")."""
    model = name.removeprefix("dino").removeprefix(":") or DEFAULT_MODEL
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(model, allow_patterns=["config.json", "*.safetensors"])
    except Exception as error:  # the hub client raises many kinds
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise VilcoError(
            "download-failed", f"{model} could not be fetched: {reason}",
            "Check the connection, or copy the model folder here and use dino:FOLDER.",
        ) from None  # fmt: skip


def _slug(name: str, source: Path) -> str:
    model = name.removeprefix("dino").removeprefix(":") or DEFAULT_MODEL
    weights = next((source / w for w in WEIGHTS if (source / w).is_file()), None)
    if weights is None:
        raise missing(f"a weights file ({' or '.join(WEIGHTS)}) in {source}", "Copy it into that folder.")
    tail = Path(model).name.lower()
    return re.sub(r"[^a-z0-9]+", "-", f"dino-{tail}-{digest(weights)}").strip("-")


def _open(source: Path) -> Any:
    import transformers

    config = transformers.AutoConfig.from_pretrained(str(source), local_files_only=True)
    if config.model_type not in ("vit", "dinov2", "dinov2_with_registers"):
        raise VilcoError(
            "unknown-model", f"{source} holds a {config.model_type} model, not DINO (vit) or DINOv2.",
            f"Use one such as {DEFAULT_MODEL}.",
        )  # fmt: skip
    model = transformers.AutoModel.from_pretrained(
        str(source), config=config, local_files_only=True, attn_implementation="eager"
    )
    return model.eval()


def _module(model: Any, side: int) -> Any:
    """torch module: frames [B, H, W, 3] uint8 -> (class token [B, D], patch tokens [B, h, w, D]) at a fixed square size."""
    import torch
    from torch.nn.functional import interpolate

    patch = int(model.config.patch_size)
    grid = side // patch
    registers = int(getattr(model.config, "num_register_tokens", 0) or 0)
    options = {"interpolate_pos_encoding": True} if model.config.model_type == "vit" else {}

    class Dino(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.mean = torch.nn.Parameter(torch.tensor(MEAN).view(1, 3, 1, 1) * 255, requires_grad=False)
            self.std = torch.nn.Parameter(torch.tensor(STD).view(1, 3, 1, 1) * 255, requires_grad=False)

        def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = frames.permute(0, 3, 1, 2).to(self.mean.dtype)
            size = (grid * patch, grid * patch)
            x = interpolate(x, size=size, mode="bilinear", align_corners=False, antialias=True)
            tokens = self.model(pixel_values=(x - self.mean) / self.std, **options).last_hidden_state
            cells = tokens[:, 1 + registers :]  # [B, grid * grid, D]
            return tokens[:, 0], cells.reshape(cells.shape[0], grid, grid, cells.shape[-1])

    return Dino().eval()
