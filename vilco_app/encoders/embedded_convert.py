"""Conversion of the packaged weights, once: torch and transformers are needed here and never afterwards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vilco_app.encoders.runtime import convert
from vilco_app.encoders.weights import LITE0, MINILM, TOKENIZER

PROJECTED = 256  # leading right singular vectors of the centred classifier kept: the storage budget of a region vector


def build_embedded(folder: Path, progress: Callable[[int, int, str], None] | None = None) -> None:
    """Fill `folder` with vision.{safetensors,xml,bin}, text.{...}, concepts.safetensors, words.json, tokenizer.json.

    Raises VilcoError when a package is missing or its weights are not the known ones.
    """
    import torch
    from safetensors.torch import save_file

    say = progress or (lambda done, total, text: None)
    say(0, 3, "reading the packaged weights")
    lite0, minilm, tokenizer = LITE0.verified(), MINILM.verified(), TOKENIZER.verified()
    shutil.copyfile(tokenizer, folder / "tokenizer.json")

    state = torch.load(lite0, map_location="cpu", weights_only=True)
    backbone = _backbone()
    backbone.load_state_dict(dict(zip(backbone.state_dict(), state.values(), strict=True)))
    weight = backbone.classifier.weight.detach()  # [1000, 1280]
    centred = weight - weight.mean(0)
    basis = torch.linalg.svd(centred, full_matrices=False).Vh[:PROJECTED].contiguous()  # [256, 1280]
    save_file({**backbone.state_dict(), "basis": basis}, str(folder / "vision.safetensors"))
    say(1, 3, "converting the picture encoder")
    convert(vision_module(folder), (torch.zeros(2, 256, 320, 3, dtype=torch.uint8),), folder / "vision.xml")

    shutil.copyfile(minilm, folder / "text.safetensors")
    shutil.copyfile(minilm.parent / "config.json", folder / "text.json")
    say(2, 3, "converting the text encoder")
    text = text_module(folder)
    ids = torch.ones(2, 9, dtype=torch.int64)
    convert(text, (ids, torch.ones_like(ids)), folder / "text.xml")
    _write_concepts(folder, text, (centred @ basis.T).numpy())
    say(3, 3, "ready")


def _write_concepts(folder: Path, text: Any, classes: np.ndarray) -> None:
    """names [1000, 384]: unit sums of name and definition embeddings; classes [1000, 256]: projected classifier rows."""
    import torch
    from safetensors.numpy import save_file

    from vilco_app.encoders.cells import unit
    from vilco_app.encoders.concepts import imagenet_words
    from vilco_app.encoders.embedded import MiniLM

    words = imagenet_words()

    def run(ids: np.ndarray, mask: np.ndarray) -> list[np.ndarray]:
        with torch.inference_mode():
            return [text(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()]

    encoder = MiniLM(folder, run)
    name = encoder.sentences([w.name for w in words])
    definition = encoder.sentences([f"{w.lemmas[0]}: {w.definition}" for w in words])
    save_file(
        {
            "names": name,
            "meanings": unit(name + definition),
            "classes": np.ascontiguousarray(classes, dtype=np.float32),
        },
        str(folder / "concepts.safetensors"),
    )
    (folder / "words.json").write_text(json.dumps([w.name for w in words]))


def _backbone() -> Any:
    import timm

    return timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()


def vision_module(folder: Path) -> Any:
    """torch module: frames [B, H, W, 3] uint8 -> (logits [B, 1000], projected cells [B, h, w, 256]), stride 32."""
    import torch
    from safetensors.torch import load_file

    state = load_file(str(folder / "vision.safetensors"))
    basis = state.pop("basis")

    class Vision(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = _backbone()
            self.backbone.load_state_dict(state)
            self.basis = torch.nn.Parameter(basis[:, :, None, None], requires_grad=False)

        def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = frames.permute(0, 3, 1, 2).to(self.basis.dtype) / 127.5 - 1.0
            cells = self.backbone.forward_features(x)  # [B, 1280, h, w]
            logits = self.backbone.classifier(cells.mean((2, 3)))
            return logits, torch.nn.functional.conv2d(cells, self.basis).permute(0, 2, 3, 1)

    return Vision().eval()


def text_module(folder: Path) -> Any:
    """torch module: ids, mask [N, L] int64 -> token vectors [N, L, 384]."""
    import torch
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    config = BertConfig.from_json_file(str(folder / "text.json"))
    config._attn_implementation = "eager"
    state = load_file(str(folder / "text.safetensors"))

    class Text(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel(config, add_pooling_layer=False)
            wanted = set(self.bert.state_dict())
            self.bert.load_state_dict({k: v for k, v in state.items() if k in wanted})

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.bert(input_ids=ids, attention_mask=mask).last_hidden_state

    return Text().eval()
