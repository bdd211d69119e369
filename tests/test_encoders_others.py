"""DINO, EgoVLP and precomputed features: the real code paths on small models made here, saved and loaded from paths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.encoder_helpers import TORCH, cosines
from vilco_app.encoders import load_profile
from vilco_app.values import VilcoError

# ---- DINO ----


@pytest.mark.parametrize("kind", ["vit", "dinov2"])
def test_dino_from_a_folder(kind: str, prepared_models: Path, smooth_pictures: np.ndarray, tmp_path: Path) -> None:
    import torch
    import transformers

    torch.manual_seed(0)
    common: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 224}
    if kind == "vit":
        config: Any = transformers.ViTConfig(intermediate_size=64, patch_size=16, **common)
        transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(tmp_path)
    else:
        config = transformers.Dinov2Config(mlp_ratio=2, patch_size=14, **common)
        transformers.Dinov2Model(config).save_pretrained(tmp_path)
    profile = load_profile(f"dino:{tmp_path}", prepared_models)
    plain = load_profile(f"dino:{tmp_path}", prepared_models, TORCH)
    a, b = profile.encode(smooth_pictures), plain.encode(smooth_pictures)
    assert not profile.aligned and a.globals.shape == (3, 32)
    assert cosines(a.globals, b.globals).min() > 0.999
    grid = 448 // config.patch_size
    assert profile.dense(smooth_pictures[:1]).shape == (1, grid, grid, 32)
    question = profile.text("where is my cup?")
    assert question.scene is None and question.thing is None and question.sentence.shape == (384,)


def test_a_folder_of_another_model_is_refused(prepared_models: Path, tmp_path: Path) -> None:
    import transformers

    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    transformers.BertModel(config).save_pretrained(tmp_path)
    with pytest.raises(VilcoError) as caught:
        load_profile(f"dino:{tmp_path}", prepared_models)
    assert caught.value.code == "unknown-model" and "bert" in caught.value.message


# ---- EgoVLP ----


def egovlp_state(v2: bool) -> dict[str, Any]:
    """A random checkpoint of the published form, 64 wide, 2 blocks, 4 frames of 32 x 32."""
    import torch
    import transformers

    torch.manual_seed(1)
    d = 64
    s: dict[str, Any] = {
        "video_model.cls_token": torch.randn(1, 1, d), "video_model.pos_embed": torch.randn(1, 5, d),
        "video_model.temporal_embed": torch.randn(1, 4, d), "video_model.patch_embed.proj.bias": torch.zeros(d),
        "video_model.patch_embed.proj.weight": torch.randn(d, 3, 16, 16) * 0.02,
    }  # fmt: skip

    def linear(name: str, out: int, into: int, bias: bool = True) -> None:
        s[f"{name}.weight"] = torch.randn(out, into) * 0.1
        if bias:
            s[f"{name}.bias"] = torch.randn(out) * 0.1

    def norm(name: str) -> None:
        s[f"{name}.weight"], s[f"{name}.bias"] = torch.rand(d) + 0.5, torch.randn(d) * 0.1

    for block in ("video_model.blocks.0", "video_model.blocks.1"):
        for n in ("norm1", "norm2", "norm3"):
            norm(f"{block}.{n}")
        for attention in ("attn", "timeattn"):
            linear(f"{block}.{attention}.qkv", 3 * d, d)
            linear(f"{block}.{attention}.proj", d, d)
        linear(f"{block}.mlp.fc1", 128, d)
        linear(f"{block}.mlp.fc2", d, 128)
    norm("video_model.norm")
    if v2:
        config: Any = transformers.RobertaConfig(
            vocab_size=500, hidden_size=d, num_hidden_layers=2, num_attention_heads=1, intermediate_size=128,
            max_position_embeddings=90, type_vocab_size=1, layer_norm_eps=1e-5,
        )  # fmt: skip
        text: Any = transformers.RobertaModel(config, add_pooling_layer=False)
        for side in ("vid", "txt"):
            linear(f"{side}_proj.0", 24, d, bias=False)
            linear(f"{side}_proj.2", 24, 24)
            linear(f"{side}_proj.4", 24, 24)
        s["cross_modal_text_transform.weight"] = torch.zeros(2, 2)
        s["video_model.blocks.1.attn.alpha_i2t"] = torch.zeros(1)
        s["text_model.encoder.layer.1.alpha_t2i"] = torch.zeros(1)
    else:
        config = transformers.DistilBertConfig(
            vocab_size=30522, dim=d, n_layers=2, n_heads=1, hidden_dim=128, max_position_embeddings=90
        )
        text = transformers.DistilBertModel(config)
        linear("vid_proj.0", 24, d)
        linear("txt_proj.1", 24, d)
    s.update({f"text_model.{k}": v.clone() for k, v in text.state_dict().items()})
    return {f"module.{k}": v for k, v in s.items()}


def test_egovlp_one_and_two(prepared_models: Path, smooth_pictures: np.ndarray, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers

    torch.save({"state_dict": egovlp_state(v2=False), "epoch": 1}, tmp_path / "one.pth")
    save_file(egovlp_state(v2=True), str(tmp_path / "two.safetensors"))
    words = Tokenizer(models.WordLevel({"<unk>": 3, "a": 5, "cup": 6}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    for file in ("one.pth", "two.safetensors"):
        name = f"egovlp:{tmp_path / file}"
        profile, plain = load_profile(name, prepared_models), load_profile(name, prepared_models, TORCH)
        assert profile.aligned and profile.window == 2.0 and profile.global_dim == 24
        a, b = profile.encode(smooth_pictures), plain.encode(smooth_pictures)
        assert a.globals.shape == (3, 24) and cosines(a.globals, b.globals).min() > 0.999
        x, y = profile.text("a cup"), plain.text("a cup")
        assert float(x.sentence @ y.sentence) > 0.999 and x.tokens.shape[1] == 24
        with pytest.raises(VilcoError):
            profile.dense(smooth_pictures)


def test_egovlp_attention_against_plain_loops() -> None:
    """Every patch attends to the class token and its own frame (space) or its own place (time); the class token to all."""
    import torch

    from vilco_app.encoders.egovlp_model import _Attention

    torch.manual_seed(0)
    frames, cells, dim, heads = 3, 4, 8, 2
    layer = _Attention(dim, heads).eval()
    x = torch.randn(1, 1 + frames * cells, dim)
    q, k, v = layer.qkv(x)[0].chunk(3, -1)
    for over_time in (False, True):
        want = torch.zeros(1 + frames * cells, dim)
        for i in range(1 + frames * cells):
            frame, cell = divmod(i - 1, cells)
            if i == 0:
                seen = list(range(1 + frames * cells))
            elif over_time:
                seen = [0, *(1 + f * cells + cell for f in range(frames))]
            else:
                seen = [0, *(1 + frame * cells + c for c in range(cells))]
            for h in range(heads):
                part = slice(h * dim // heads, (h + 1) * dim // heads)
                weights = torch.softmax(k[seen, part] @ q[i, part] / (dim // heads) ** 0.5, 0)
                want[i, part] = weights @ v[seen, part]
        assert torch.allclose(layer(x, frames, over_time)[0], layer.proj(want), atol=1e-5)


@pytest.mark.parametrize("change", ["unknown", "missing", "shape", "pickle"])
def test_egovlp_refuses_what_it_does_not_know(change: str, tmp_path: Path) -> None:
    import torch

    state: dict[str, Any] = egovlp_state(v2=False)
    if change == "unknown":
        state["module.video_model.new_part"] = torch.zeros(2)
    elif change == "missing":
        del state["module.video_model.norm.bias"]
    elif change == "shape":
        state["module.video_model.norm.bias"] = torch.zeros(3)
    else:
        state = {"state_dict": state, "config": tmp_path}  # a class, as the published files carry
    torch.save(state, tmp_path / "x.pth")
    with pytest.raises(VilcoError) as caught:
        load_profile(f"egovlp:{tmp_path / 'x.pth'}", tmp_path / "models")
    assert caught.value.code == "bad-weights" and "x.pth" in caught.value.message


# ---- precomputed ----


def test_precomputed_features_in_every_format(prepared_models: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.numpy import save_file

    rows = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    settings = {"schema": 1, "name": "Ego VLP", "stride": 0.5, "window": 2.0, "dim": 7}
    (tmp_path / "features.json").write_text(json.dumps(settings))
    np.save(tmp_path / "a.npy", rows)
    np.savez(tmp_path / "b.npz", features=rows, other=np.zeros(2))
    save_file({"x": rows}, str(tmp_path / "c.safetensors"))
    torch.save({"features": torch.from_numpy(rows)}, tmp_path / "0123456789ab.pt")
    profile: Any = load_profile(f"precomputed:{tmp_path}", prepared_models)
    assert profile.id == "precomputed-ego-vlp@1" and not profile.aligned and profile.global_dim == 7
    for key in ("/videos/a.mp4", "b", "c.mov", "0123456789ab"):
        track = profile.track("unknown", key)
        assert np.allclose(track.vectors, rows)
        assert np.allclose(track.times, 1 + 0.5 * np.arange(5)) and np.allclose(track.durations, 0.5)
    with pytest.raises(VilcoError) as caught:
        profile.track("nowhere.mp4")
    assert caught.value.code == "missing-features"
    for bad in (rows[:, :3], np.where(rows > 0, np.nan, rows)):
        np.save(tmp_path / "bad.npy", bad)
        with pytest.raises(VilcoError) as caught:
            profile.track("bad.mp4")
        assert caught.value.code == "bad-features" and "bad.npy" in caught.value.message
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(VilcoError):
        profile.track("cut")
    with pytest.raises(VilcoError) as caught:
        profile.encode(np.zeros((1, 8, 8, 3), np.uint8))
    assert caught.value.code == "no-encoder"


@pytest.mark.parametrize("field", ["name", "stride", "window", "dim"])
def test_precomputed_settings_are_checked(field: str, prepared_models: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"name": "x", "stride": 1.0, "window": 1.0, "dim": 3}
    del settings[field]
    (tmp_path / "features.json").write_text(json.dumps(settings))
    with pytest.raises(VilcoError) as caught:
        load_profile(f"precomputed:{tmp_path}", prepared_models)
    assert field in caught.value.message
    settings[field] = "x" if field == "name" else -1
    (tmp_path / "features.json").write_text(json.dumps(settings))
    if field in ("stride", "window"):
        with pytest.raises(VilcoError):
            load_profile(f"precomputed:{tmp_path}", prepared_models)
