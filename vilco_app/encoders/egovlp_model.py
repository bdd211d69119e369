"""The dual encoders of EgoVLP (Lin et al. 2022) and EgoVLPv2 (Pramanick et al. 2023) as torch modules, built to fit a checkpoint.

Video: the divided space-time transformer of Frozen in Time (Bain et al. 2021). Text: DistilBERT (v1) or RoBERTa (v2), first
token. Both end in a small projection to one space. What v2 adds for its fused heads is not used for retrieval and left out.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import interpolate, scaled_dot_product_attention

from vilco_app.values import VilcoError

# parts of a v2 checkpoint that only its fused heads use
UNUSED = re.compile(
    r"^(cross_modal_|itm_score|mlm_score|norm\.|cls_token$|avgpool|pre_logits|text_model\.pooler|loss)"
    r"|i2t|t2i|position_ids$"
)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, as both repositories normalise


def read_checkpoint(path: Path) -> dict[str, torch.Tensor]:
    """Name -> tensor, without data-parallel prefixes. Only plain tensors are read; nothing is unpickled.

    Raises VilcoError("bad-weights").
    """
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(str(path))
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch, zip and safetensors each raise their own kinds
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise VilcoError(
            "bad-weights", f"{path} cannot be read as plain tensors: {reason}",
            "Save its state_dict alone as .safetensors where you trust the file, and name that file.",
        ) from None  # fmt: skip
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise VilcoError("bad-weights", f"{path} holds no state_dict of tensors.", "Name an EgoVLP checkpoint.")
    return {k.removeprefix("module."): v.float() if v.is_floating_point() else v for k, v in state.items()}


class _Attention(nn.Module):
    """Attention within groups of tokens, every group seeing the class token too; the class token sees everything."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor, frames: int, over_time: bool) -> torch.Tensor:
        b, length, dim = x.shape
        cells = (length - 1) // frames
        q, k, v = (
            self.qkv(x).reshape(b, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        )  # [b, h, N, d]
        whole = scaled_dot_product_attention(q[:, :, :1], k, v)  # [b, h, 1, d]

        def group(t: torch.Tensor) -> torch.Tensor:  # [b, h, f n, d] -> [b, h, groups, members, d]
            t = t.reshape(b, self.heads, frames, cells, -1)
            return t.transpose(2, 3) if over_time else t

        groups = cells if over_time else frames
        keys, values = (
            torch.cat([t[:, :, None, :1].expand(-1, -1, groups, -1, -1), group(t[:, :, 1:])], 3) for t in (k, v)
        )
        out = scaled_dot_product_attention(group(q[:, :, 1:]), keys, values)
        out = (out.transpose(2, 3) if over_time else out).reshape(b, self.heads, length - 1, -1)
        out = torch.cat([whole, out], 2).transpose(1, 2).reshape(b, length, dim)
        return self.proj(out)


class _Mlp(nn.Module):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.act(self.fc1(x)))


class _Block(nn.Module):
    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(dim, eps=1e-6) for _ in range(3))
        self.attn, self.timeattn = _Attention(dim, heads), _Attention(dim, heads)
        self.mlp = _Mlp(dim, hidden)

    def forward(self, x: torch.Tensor, frames: int) -> torch.Tensor:
        timed = x + self.timeattn(self.norm3(x), frames, over_time=True)
        x = x + self.attn(self.norm1(timed), frames, over_time=False)  # the residual skips time, as in Frozen in Time
        return x + self.mlp(self.norm2(x))


class _PatchEmbed(nn.Module):
    def __init__(self, dim: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch, patch)


class SpaceTime(nn.Module):
    """Video transformer: frames [B, T, H, W, 3] uint8 -> class token [B, D]; T, patch, depth and width fit the checkpoint."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, state: dict[str, torch.Tensor]) -> None:
        super().__init__()
        dim, _, patch, _ = state["patch_embed.proj.weight"].shape
        self.frames = state["temporal_embed"].shape[1]
        cells = state["pos_embed"].shape[1] - 1
        self.side = math.isqrt(cells) * patch
        depth = 1 + max(int(k.split(".")[1]) for k in state if k.startswith("blocks."))
        self.patch_embed = _PatchEmbed(dim, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, cells + 1, dim))
        self.temporal_embed = nn.Parameter(torch.zeros(1, self.frames, dim))
        hidden = state["blocks.0.mlp.fc1.weight"].shape[0]
        self.blocks = nn.ModuleList(_Block(dim, dim // 64, hidden) for _ in range(depth))  # ViT: 64 per head
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1) * 255, persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(1, 3, 1, 1) * 255, persistent=False)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        b, t = clips.shape[0], self.frames
        x = clips.flatten(0, 1).permute(0, 3, 1, 2).to(self.pos_embed.dtype)
        x = interpolate(x, size=(self.side, self.side), mode="bilinear", align_corners=False, antialias=True)
        x = self.patch_embed.proj((x - self.mean) / self.std).flatten(2).transpose(1, 2)  # [B T, n, D]
        n, dim = x.shape[1:]
        x = x.reshape(b, t, n, dim) + self.pos_embed[:, None, 1:] + self.temporal_embed[:, :, None]
        first = (self.cls_token + self.pos_embed[:, :1]).expand(b, -1, -1)
        x = torch.cat([first, x.reshape(b, t * n, dim)], 1)
        for block in self.blocks:
            x = block(x, t)
        return self.norm(x)[:, 0]


def projection(state: dict[str, torch.Tensor], name: str) -> nn.Sequential:
    """The linear layers `name`.i of the checkpoint with ReLU between them (and before the first where i starts at 1)."""
    places = sorted(int(k.split(".")[1]) for k in state if re.fullmatch(rf"{name}\.\d+\.weight", k))
    layers: list[nn.Module] = []
    for i in range(max(places) + 1 if places else 0):
        weight = state.get(f"{name}.{i}.weight")
        if weight is None:
            layers.append(nn.ReLU())
        else:
            layers.append(nn.Linear(weight.shape[1], weight.shape[0], bias=f"{name}.{i}.bias" in state))
    return nn.Sequential(*layers)


class DualEncoder(nn.Module):
    """video_model + vid_proj, text_model + txt_proj; strict: every tensor of the checkpoint is used or known to be unused.

    Raises VilcoError("bad-weights") naming the tensors that are unknown, missing or of another shape.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        state = {k: v for k, v in read_checkpoint(path).items() if not UNUSED.search(k)}
        self.roberta = "text_model.encoder.layer.0.attention.self.query.weight" in state
        try:
            self.video_model = SpaceTime(_under(state, "video_model."))
            self.text_model = _text_model(_under(state, "text_model."), self.roberta)
            self.vid_proj, self.txt_proj = projection(state, "vid_proj"), projection(state, "txt_proj")
        except (KeyError, ValueError) as error:
            raise _not_egovlp(path, f"{error} is missing") from None
        wanted = self.state_dict()
        unknown, lacking = sorted(set(state) - set(wanted)), sorted(set(wanted) - set(state))
        unlike = [k for k in wanted if k in state and wanted[k].shape != state[k].shape]
        for what, names in (("unknown", unknown), ("missing", lacking), ("of another shape", unlike)):
            if names:
                raise _not_egovlp(path, f"{len(names)} tensors are {what}: {', '.join(names[:3])}")
        self.load_state_dict(state)
        self.eval()

    @property
    def dim(self) -> int:
        return int([m for m in self.vid_proj if isinstance(m, nn.Linear)][-1].out_features)

    def video(self, clips: torch.Tensor) -> torch.Tensor:
        """clips [B, T, H, W, 3] uint8 -> [B, D]."""
        return self.vid_proj(self.video_model(clips))

    def text(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """ids, mask [N, L] int64 -> projected tokens [N, L, D]; the first is the sentence."""
        return self.txt_proj(self.text_model(input_ids=ids, attention_mask=mask).last_hidden_state)


def _under(state: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def _text_model(state: dict[str, torch.Tensor], roberta: bool) -> Any:
    import transformers

    size, dim = state["embeddings.word_embeddings.weight"].shape
    positions = state["embeddings.position_embeddings.weight"].shape[0]
    depth = len({k.split(".")[2] for k in state if re.match(r"(encoder|transformer)\.layer\.\d+\.", k)})
    common: dict[str, Any] = {"vocab_size": size, "max_position_embeddings": positions, "attn_implementation": "eager"}
    if roberta:
        hidden = state["encoder.layer.0.intermediate.dense.weight"].shape[0]
        config: Any = transformers.RobertaConfig(
            hidden_size=dim, num_hidden_layers=depth, num_attention_heads=dim // 64, intermediate_size=hidden,
            type_vocab_size=1, layer_norm_eps=1e-5, **common,
        )  # fmt: skip
        model: Any = transformers.RobertaModel(config, add_pooling_layer=False)
    else:
        hidden = state["transformer.layer.0.ffn.lin1.weight"].shape[0]
        config = transformers.DistilBertConfig(
            dim=dim, n_layers=depth, n_heads=dim // 64, hidden_dim=hidden, **common
        )  # fmt: skip
        model = transformers.DistilBertModel(config)
    model.loss_type = "ForMaskedLM"  # unused, but tracing looks at every attribute
    return model


def _not_egovlp(path: Path, reason: str) -> VilcoError:
    return VilcoError(
        "bad-weights", f"{path} is not an EgoVLP or EgoVLPv2 dual encoder: {reason}.",
        "Name the pretraining checkpoint of either, as .pth of plain tensors or .safetensors.",
    )  # fmt: skip
