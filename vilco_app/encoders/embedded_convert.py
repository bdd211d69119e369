"""Conversion of the packaged weights, once: torch, timm and transformers are needed here and never afterwards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vilco_app.encoders.runtime import RuntimeOptions, convert, open_network
from vilco_app.encoders.weights import LITE0, MINILM, TOKENIZER

PROJECTED = 256  # leading right singular vectors of the centred classifier kept: the storage budget of a region vector
COARSE_WEIGHT = 2.0  # of the stride-32 against the stride-16 features in dense maps (docs/encoders.md)


def build_embedded(folder: Path, progress: Callable[[int, int, str], None] | None = None) -> None:
    """Fill `folder` with vision, dense and text networks (.safetensors, .xml, .bin), concepts, words and tokenizer.

    Raises VilcoError when a package is missing or its weights are not the known ones.
    """
    import torch
    from safetensors.torch import save_file

    say = progress or (lambda done, total, text: None)
    say(0, 4, "preparing the encoders, once: checking the packaged weights")
    lite0, minilm, tokenizer = LITE0.verified(), MINILM.verified(), TOKENIZER.verified()
    shutil.copyfile(tokenizer, folder / "tokenizer.json")

    state = torch.load(lite0, map_location="cpu", weights_only=True)
    backbone = _backbone()
    # the package's tensors come in the order of timm's `tf_` variant (SAME padding, batch norm eps 1e-3)
    backbone.load_state_dict(dict(zip(backbone.state_dict(), state.values(), strict=True)))
    weight = backbone.classifier.weight.detach()  # [1000, 1280]
    centred = weight - weight.mean(0)
    basis = torch.linalg.svd(centred, full_matrices=False).Vh[:PROJECTED].contiguous()  # [256, 1280]
    save_file({**backbone.state_dict(), "basis": basis}, str(folder / "vision.safetensors"))
    say(1, 4, "preparing the encoders, once: the picture encoder")
    frames = torch.zeros(2, 256, 320, 3, dtype=torch.uint8)
    convert(vision_module(folder), (frames,), folder / "vision.xml")
    convert(dense_module(folder), (frames,), folder / "dense.xml")

    shutil.copyfile(minilm, folder / "text.safetensors")
    shutil.copyfile(minilm.parent / "config.json", folder / "text.json")
    say(2, 4, "preparing the encoders, once: the text encoder")
    ids = torch.ones(2, 9, dtype=torch.int64)
    convert(text_module(folder), (ids, torch.ones_like(ids)), folder / "text.xml")
    say(3, 4, "preparing the encoders, once: the names of things")
    _write_concepts(folder, (centred @ basis.T).numpy())
    say(4, 4, "the encoders are ready")


def _write_concepts(folder: Path, classes: np.ndarray) -> None:
    """names, meanings [1000, 384]: unit embeddings of the name, and of name + definition; classes [1000, 256]: projected
    classifier rows."""
    from safetensors.numpy import save_file

    from vilco_app.encoders.cells import unit
    from vilco_app.encoders.concepts import imagenet_words
    from vilco_app.encoders.embedded import MiniLM

    words = imagenet_words()
    network = open_network(folder, "text", RuntimeOptions(), lambda: text_module(folder), precision="f32")
    encoder = MiniLM(folder, network)
    name = encoder.sentences([w.name for w in words])
    definition = encoder.sentences([f"{w.lemmas[0]}: {w.definition}" for w in words])
    tensors = {"names": name, "meanings": unit(name + definition), "classes": np.ascontiguousarray(classes)}
    save_file({k: v.astype(np.float32) for k, v in tensors.items()}, str(folder / "concepts.safetensors"))
    (folder / "words.json").write_text(json.dumps([w.name for w in words]))


def _backbone() -> Any:
    """timm's module, its SAME padding computed in integers: timm divides as floats, and in bf16 257 pixels are 256."""
    import timm
    import torch
    from timm.layers.conv2d_same import Conv2dSame

    class IntegerSame(torch.nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pads = []
            for size, kernel, stride in zip(x.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True):
                total = ((size + stride - 1) // stride - 1) * stride + kernel - size  # >= 0, since kernel >= stride
                pads += [total // 2, total - total // 2]
            return self._conv_forward(torch.nn.functional.pad(x, pads), self.weight, self.bias)

    backbone = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    for module in backbone.modules():
        if isinstance(module, Conv2dSame):
            module.__class__ = IntegerSame  # type: ignore[assignment]
    return backbone


def _vision_parts(folder: Path) -> tuple[Any, Any]:
    """The backbone with its weights, and the projection [256, 1280, 1, 1]."""
    from safetensors.torch import load_file

    state = load_file(str(folder / "vision.safetensors"))
    basis = state.pop("basis")
    backbone = _backbone()
    backbone.load_state_dict(state)
    return backbone, basis[:, :, None, None]


def vision_module(folder: Path) -> Any:
    """torch module: frames [B, H, W, 3] uint8 -> (logits [B, 1000], projected cells [B, h, w, 256]), stride 32."""
    import torch

    backbone, basis = _vision_parts(folder)

    class Vision(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = backbone
            self.basis = torch.nn.Parameter(basis, requires_grad=False)

        def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = frames.permute(0, 3, 1, 2).to(self.basis.dtype) / 127.5 - 1.0
            cells = self.backbone.forward_features(x)  # [B, 1280, h, w]
            logits = self.backbone.classifier(cells.mean((2, 3)))
            return logits, torch.nn.functional.conv2d(cells, self.basis).permute(0, 2, 3, 1)

    return Vision().eval()


def dense_module(folder: Path) -> Any:
    """torch module: frames [B, H, W, 3] uint8 -> [B, H/16, W/16, 432]: stride-16 features (112) and stride-32 features
    (320, enlarged bilinearly), each of unit length per cell, the coarse ones counting COARSE_WEIGHT times."""
    import torch
    from torch.nn.functional import interpolate, normalize

    backbone, _ = _vision_parts(folder)

    class Dense(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Sequential(backbone.conv_stem, backbone.bn1)
            self.blocks = backbone.blocks

        def forward(self, frames: torch.Tensor) -> torch.Tensor:
            x = frames.permute(0, 3, 1, 2).to(next(self.parameters()).dtype) / 127.5 - 1.0
            x = self.stem(x)
            fine = x
            for number, block in enumerate(self.blocks):
                x = block(x)
                if number == 4:
                    fine = x  # [B, 112, H/16, W/16]
            coarse = interpolate(x, size=fine.shape[-2:], mode="bilinear", align_corners=False)
            both = torch.cat([normalize(fine, dim=1), COARSE_WEIGHT * normalize(coarse, dim=1)], 1)
            return both.permute(0, 2, 3, 1)

    return Dense().eval()


def text_module(folder: Path) -> Any:
    """torch module: ids, mask [N, L] int64 -> token vectors [N, L, 384]."""
    import torch
    import transformers
    from safetensors.torch import load_file

    state = load_file(str(folder / "text.safetensors"))
    config = transformers.BertConfig.from_json_file(str(folder / "text.json"))
    config._attn_implementation = "eager"
    bert = transformers.BertModel(config, add_pooling_layer=False)
    bert.loss_type = "ForMaskedLM"  # unused, but tracing looks at every attribute and a missing one is remarked on
    wanted = set(bert.state_dict())
    bert.load_state_dict({k: v for k, v in state.items() if k in wanted})

    class Text(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = bert

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.bert(input_ids=ids, attention_mask=mask).last_hidden_state

    return Text().eval()
