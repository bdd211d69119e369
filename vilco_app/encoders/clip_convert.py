"""An open_clip model as two networks and a tokenizer file; needs torch and open_clip, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vilco_app.encoders.clip_weights import ClipSpec
from vilco_app.encoders.runtime import convert
from vilco_app.values import VilcoError


def build_clip(spec: ClipSpec, folder: Path) -> None:
    """Fill `folder` with vision.{xml,bin}, text.{xml,bin}, tokenizer.json and settings.json.

    Raises VilcoError("bad-weights") when the file is not that model's.
    """
    import torch

    model = open_model(spec)
    side = image_side(model)
    convert(
        vision_module(model, spec),
        (torch.zeros(2, side, side + 8, 3, dtype=torch.uint8),),
        folder / "vision.xml",
        half=True,
    )
    context = int(getattr(model, "context_length", 77))
    vocabulary = int(getattr(model, "vocab_size", 49408))
    ids = torch.zeros(2, context, dtype=torch.int64)
    ids[:, 0], ids[:, 3] = vocabulary - 2, vocabulary - 1
    text = text_module(model)
    convert(text, (ids,), folder / "text.xml", half=True)
    with torch.inference_mode():
        dim = int(text(ids)[0].shape[1])
    write_tokenizer(spec, folder / "tokenizer.json")
    settings = {"spec": spec.text, "side": side, "context": context, "dim": dim}
    (folder / "settings.json").write_text(json.dumps(settings))


def open_model(spec: ClipSpec) -> Any:
    """The torch model with its weights (read as plain tensors, never unpickled)."""
    import open_clip

    name = spec.model
    if name.endswith(".json"):
        open_clip.add_model_config(name)
        name = Path(name).stem
    quick = bool(spec.settings.get("quick_gelu", False))
    try:
        model = open_clip.create_model(name, load_weights=False, pretrained_text=False, force_quick_gelu=quick)
    except RuntimeError as error:
        raise VilcoError(
            "unknown-model", f"open_clip cannot build {spec.model}: {error}.", "Check the model's name."
        ) from None
    path = spec.found()
    try:
        open_clip.load_checkpoint(model, str(path), weights_only=True)
    except Exception as error:  # torch, safetensors and zip readers each raise their own kinds
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise VilcoError(
            "bad-weights", f"{path} does not hold the weights of {spec.model}: {reason}",
            "Give a .safetensors file, or a .pt file of plain tensors, made for this model.",
        ) from None  # fmt: skip
    return model.eval()


def image_side(model: Any) -> int:
    side = getattr(model.visual, "image_size", 224)
    return int(side[0] if isinstance(side, tuple | list) else side)


def vision_module(model: Any, spec: ClipSpec) -> Any:
    """torch module: frames [B, H, W, 3] uint8 -> (whole [B, D], cells [B, h, w, D] in the joint space)."""
    import torch
    from open_clip.constants import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD
    from torch.nn.functional import interpolate

    side = image_side(model)
    mean = spec.settings.get("mean") or getattr(model.visual, "image_mean", None) or OPENAI_DATASET_MEAN
    std = spec.settings.get("std") or getattr(model.visual, "image_std", None) or OPENAI_DATASET_STD

    class Vision(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.visual = model.visual
            self.mean = torch.nn.Parameter(torch.tensor(mean).view(1, 3, 1, 1) * 255, requires_grad=False)
            self.std = torch.nn.Parameter(torch.tensor(std).view(1, 3, 1, 1) * 255, requires_grad=False)

        def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = frames.permute(0, 3, 1, 2).to(self.mean.dtype)
            x = interpolate(x, size=(side, side), mode="bilinear", align_corners=False, antialias=True)
            return _whole_and_cells(self.visual, (x - self.mean) / self.std)

    return Vision().eval()


def _whole_and_cells(visual: Any, x: Any) -> tuple[Any, Any]:
    """open_clip's own transformer gives patch tokens (projected like the class token); a timm trunk a map or tokens, each
    of which goes through the pooling head alone; anything else only the whole vector."""
    if hasattr(visual, "transformer") and hasattr(visual, "_pool") and getattr(visual, "attn_pool", None) is None:
        visual.output_tokens = True
        whole, tokens = visual(x)  # [B, D], [B, n, width]
        if visual.final_ln_after_pool:
            tokens = visual.ln_post(tokens)
        if visual.proj is not None:
            tokens = tokens @ visual.proj
        rows, columns = visual.grid_size
        return whole, tokens.reshape(tokens.shape[0], rows, columns, -1)
    if hasattr(visual, "trunk"):
        features = visual.trunk.forward_features(x)
        whole = visual.head(visual.trunk.forward_head(features))
        if features.dim() == 4:
            batch, channels, rows, columns = features.shape
            alone = features.permute(0, 2, 3, 1).reshape(-1, channels, 1, 1)  # [B h w, C, 1, 1]
            cells = visual.head(visual.trunk.forward_head(alone))
            return whole, cells.reshape(batch, rows, columns, -1)
        grid = getattr(getattr(visual.trunk, "patch_embed", None), "grid_size", None)
        prefix = int(getattr(visual.trunk, "num_prefix_tokens", 0))
        if grid and not (prefix and visual.trunk.global_pool == "avg"):  # that pool would drop a token on its own
            tokens = features[:, prefix:]  # [B, n, C]
            cells = visual.head(visual.trunk.forward_head(tokens.reshape(-1, 1, tokens.shape[-1])))
            return whole, cells.reshape(tokens.shape[0], *grid, -1)
        return whole, whole[:, None, None]
    whole = visual(x)
    whole = whole[0] if isinstance(whole, tuple) else whole
    return whole, whole[:, None, None]


def text_module(model: Any) -> Any:
    """torch module: ids [N, L] int64 -> (sentence [N, D] unit, tokens [N, L, D] in the joint space)."""
    import torch

    tower = model if hasattr(model, "ln_final") else model.text

    class Text(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.seen: Any = None
            if hasattr(tower, "ln_final"):
                tower.ln_final.register_forward_hook(self._see)

        def _see(self, module: Any, inputs: Any, output: Any) -> None:
            self.seen = output  # [N, L, width]

        def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            sentence = self.model.encode_text(ids, normalize=True)
            if self.seen is None or self.seen.dim() != 3:  # another make of tower: its sentence stands for every token
                return sentence, sentence[:, None].expand(-1, ids.shape[1], -1)
            hidden = self.seen[:, : ids.shape[1]]
            project = tower.text_projection
            tokens = project(hidden) if isinstance(project, torch.nn.Module) else hidden @ project
            return sentence, tokens

    return Text().eval()


def write_tokenizer(spec: ClipSpec, path: Path) -> None:
    """CLIP's byte-pair encoding, or the fast tokenizer of a hub text tower, in the format of the `tokenizers` library."""
    import open_clip
    from open_clip.tokenizer import SimpleTokenizer

    name = Path(spec.model).stem if spec.model.endswith(".json") else spec.model
    tokenizer = open_clip.get_tokenizer(name)
    if not isinstance(tokenizer, SimpleTokenizer):
        tokenizer.tokenizer.backend_tokenizer.save(str(path))
        return
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    start, end = tokenizer.decoder[tokenizer.sot_token_id], tokenizer.decoder[tokenizer.eot_token_id]
    merges = sorted(tokenizer.bpe_ranks, key=lambda pair: tokenizer.bpe_ranks[pair])
    fast = Tokenizer(models.BPE(vocab=dict(tokenizer.encoder), merges=merges, end_of_word_suffix="</w>", unk_token=end))
    fast.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip(), normalizers.Lowercase()]
    )
    words = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    fast.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        special_tokens=[(start, tokenizer.sot_token_id), (end, tokenizer.eot_token_id)],
    )
    fast.save(str(path))
