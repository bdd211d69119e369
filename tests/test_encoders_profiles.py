"""CLIP, DINO, EgoVLP and precomputed features: the real code paths on small models made here, saved and loaded from paths."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vilco_app.encoders import RuntimeOptions, load_profile, profile_status, setup
from vilco_app.encoders.cells import unit
from vilco_app.values import VilcoError

TORCH = RuntimeOptions(engine="torch")


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (unit(a) * unit(b)).sum(-1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, encoders: Path) -> Path:
    """A models folder whose embedded encoder (the text side of unaligned profiles) is prepared already."""
    models = tmp_path_factory.mktemp("models")
    (models / "encoders").mkdir()
    for folder in encoders.glob("embedded@*"):
        (models / "encoders" / folder.name).symlink_to(folder)
    return models


@pytest.fixture(scope="module")
def pictures() -> np.ndarray:
    """[3, 64, 111, 3] smooth pictures, wider than high."""
    y, x = np.mgrid[0:64, 0:111]
    waves = [np.sin(x / (7 + k) + k) * np.cos(y / (5 + k)) for k in range(9)]
    return (np.stack(waves, -1).reshape(64, 111, 3, 3).transpose(2, 0, 1, 3) * 127 + 128).astype(np.uint8)


# ---- CLIP ----


@pytest.fixture(scope="module")
def clip_spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    import open_clip
    import torch
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("clip")
    vision = {"image_size": 64, "layers": 2, "width": 64, "patch_size": 16, "head_width": 32}
    text = {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2}
    config = folder / "tiny-for-tests.json"
    config.write_text(json.dumps({"embed_dim": 48, "vision_cfg": vision, "text_cfg": text}))
    open_clip.add_model_config(config)
    torch.manual_seed(0)
    model = open_clip.create_model("tiny-for-tests", load_weights=False)
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, str(folder / "tiny.safetensors"))
    return f"clip:{config}:{folder / 'tiny.safetensors'}"


def test_clip_gives_what_open_clip_gives(clip_spec: str, home: Path, pictures: np.ndarray) -> None:
    import open_clip
    import torch

    from vilco_app.encoders.clip_convert import open_model
    from vilco_app.encoders.clip_weights import parse_clip

    profile = load_profile(clip_spec, home)
    model = open_model(parse_clip(clip_spec))
    tokenizer = open_clip.get_tokenizer("tiny-for-tests")
    for text in ("where did I put the scissors?", "It's  my CAFÉ, don't! 12345", "naïve 漢字 :-)", "", "word " * 200):
        with torch.inference_mode():
            want = model.encode_text(tokenizer([text]), normalize=True)[0].numpy()
        got = profile.text(text)
        assert float(got.sentence @ want) > 0.9999, text
        assert got.scene is not None and np.array_equal(got.scene, got.sentence)
        assert got.tokens.shape[1] == profile.text_dim == 48 and len(got.tokens) <= 77
    features = profile.encode(pictures)
    mean, std = (np.array(v) for v in (open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD))
    batch = torch.from_numpy(pictures.astype(np.float32)).permute(0, 3, 1, 2)
    batch = torch.nn.functional.interpolate(batch, size=(64, 64), mode="bilinear", antialias=True)
    normal = (batch / 255 - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1)
    with torch.inference_mode():
        want = model.encode_image(normal.float(), normalize=True)
    want = want[0] if isinstance(want, tuple) else want
    assert cosines(features.globals, want.numpy()).min() > 0.999
    assert np.allclose(np.linalg.norm(features.globals, axis=1), 1, atol=1e-3)
    assert features.regions.shape[1] == profile.region_dim and features.counts.sum() == len(features.boxes)
    assert profile.dense(pictures).shape == (3, 4, 4, 48)
    assert profile.image(pictures[0]).regions.shape == (2, 48)


def test_clip_engines_agree(clip_spec: str, home: Path, pictures: np.ndarray) -> None:
    fast, plain = load_profile(clip_spec, home), load_profile(clip_spec, home, TORCH)
    for width in (111, 109, 64):
        a, b = fast.encode(pictures[:, :, :width]), plain.encode(pictures[:, :, :width])
        assert cosines(a.globals, b.globals).min() > 0.999
    assert float(fast.text("a red cup").sentence @ plain.text("a red cup").sentence) > 0.9999


def test_a_prepared_clip_starts_without_torch_and_is_what_auto_means(clip_spec: str, home: Path) -> None:
    profile = load_profile(clip_spec, home)
    code = (
        "import sys, json; from pathlib import Path; from vilco_app.encoders import load_profile;"
        f"p = load_profile({clip_spec!r}, Path({str(home)!r})); p.text('a cup');"
        f"q = load_profile('auto', Path({str(home)!r}));"
        "print(json.dumps([p.id, q.id, [m for m in ('torch', 'open_clip', 'transformers') if m in sys.modules]]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == [profile.id, profile.id, []]
    assert any(s.ready and s.name.startswith("clip:") for s in profile_status(home))


def test_other_weights_are_another_profile(clip_spec: str, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    from vilco_app.encoders.clip_weights import canonical, parse_clip

    _, config, weights = clip_spec.split(":")
    state = load_file(weights)
    state["visual.proj"] = state["visual.proj"] + 0.1
    save_file(state, tmp_path / "tiny.safetensors")
    other = f"clip:{config}:{tmp_path / 'tiny.safetensors'}"
    assert parse_clip(other).slug != parse_clip(clip_spec).slug
    assert canonical(other) != canonical(clip_spec)
    assert canonical("clip") == canonical("clip:ViT-B-32") != canonical("clip:ViT-L-14")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("clip", "missing-weights"),
        ("clip:ViT-L-14", "missing-weights"),
        ("clip:MobileCLIP-S1", "missing-weights"),
        ("clip:ViT-B-32:/nowhere/weights.pt", "missing-weights"),
        ("clip:NoSuchModel", "unknown-model"),
        ("clip:ViT-B-32:no_such_tag", "unknown-weights"),
        ("clip:/nowhere/model.json:x", "unknown-model"),
        ("dino", "missing-weights"),
        ("dino:/nowhere", "missing-weights"),
        ("egovlp", "missing-weights"),
        ("egovlp:/nowhere/egovlp.pth", "missing-weights"),
        ("precomputed:/nowhere", "missing-features"),
    ],
)
def test_what_is_not_here_is_said_with_its_remedy(
    name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(VilcoError) as caught:
        load_profile(name, tmp_path / "models")
    assert caught.value.code == code and caught.value.remedy


def test_clip_refuses_weights_of_another_model_and_pickles(clip_spec: str, tmp_path: Path) -> None:
    import pickle

    from safetensors.numpy import save_file

    config = clip_spec.split(":")[1]
    save_file({"a": np.zeros(3, np.float32)}, tmp_path / "other.safetensors")
    (tmp_path / "evil.pt").write_bytes(pickle.dumps(print))
    for file in ("other.safetensors", "evil.pt"):
        with pytest.raises(VilcoError) as caught:
            load_profile(f"clip:{config}:{tmp_path / file}", tmp_path / "models")
        assert caught.value.code == "bad-weights" and file in caught.value.message
    assert not list((tmp_path / "models" / "encoders").glob("*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "grid"),
    [
        ("MobileCLIP-S1", (8, 8)),
        ("MobileCLIP-B", (14, 14)),
        ("ViT-B-32", (7, 7)),
        ("RN50", (1, 1)),
        ("coca_ViT-B-32", (1, 1)),
    ],
)
def test_every_make_of_clip_tower(name: str, grid: tuple[int, int]) -> None:
    """The whole vector is open_clip's own; cells lie in the same space where the tower has any."""
    import open_clip
    import torch

    from vilco_app.encoders.clip_convert import image_side, text_module, vision_module
    from vilco_app.encoders.clip_weights import ClipSpec

    torch.manual_seed(0)
    model = open_clip.create_model(name, load_weights=False, pretrained_text=False).eval()
    spec = ClipSpec(name, "", None, {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)})
    side = image_side(model)
    frames = torch.randint(0, 256, (1, side, side, 3), dtype=torch.uint8)
    ids = open_clip.get_tokenizer("ViT-B-32")(["a cup"])[:, : int(getattr(model, "context_length", 77))]
    with torch.inference_mode():
        want = model.encode_image(frames.permute(0, 3, 1, 2) / 255, normalize=True)
        whole, cells = vision_module(model, spec)(frames)
        sentence, tokens = text_module(model)(ids)
    assert cosines(whole.numpy(), want.numpy()).min() > 0.9999
    assert tuple(cells.shape[1:3]) == grid and cells.shape[-1] == whole.shape[-1] == sentence.shape[-1]
    assert tokens.shape[-1] == sentence.shape[-1]


# ---- DINO ----


@pytest.mark.parametrize("kind", ["vit", "dinov2"])
def test_dino_from_a_folder(kind: str, home: Path, pictures: np.ndarray, tmp_path: Path) -> None:
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
    profile = load_profile(f"dino:{tmp_path}", home)
    plain = load_profile(f"dino:{tmp_path}", home, TORCH)
    a, b = profile.encode(pictures), plain.encode(pictures)
    assert not profile.aligned and a.globals.shape == (3, 32)
    assert cosines(a.globals, b.globals).min() > 0.999
    grid = 448 // config.patch_size
    assert profile.dense(pictures[:1]).shape == (1, grid, grid, 32)
    question = profile.text("where is my cup?")
    assert question.scene is None and question.thing is None and question.sentence.shape == (384,)


def test_a_folder_of_another_model_is_refused(home: Path, tmp_path: Path) -> None:
    import transformers

    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    transformers.BertModel(config).save_pretrained(tmp_path)
    with pytest.raises(VilcoError) as caught:
        load_profile(f"dino:{tmp_path}", home)
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


def test_egovlp_one_and_two(home: Path, pictures: np.ndarray, tmp_path: Path) -> None:
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
        profile, plain = load_profile(name, home), load_profile(name, home, TORCH)
        assert profile.aligned and profile.window == 2.0 and profile.global_dim == 24
        a, b = profile.encode(pictures), plain.encode(pictures)
        assert a.globals.shape == (3, 24) and cosines(a.globals, b.globals).min() > 0.999
        x, y = profile.text("a cup"), plain.text("a cup")
        assert float(x.sentence @ y.sentence) > 0.999 and x.tokens.shape[1] == 24
        with pytest.raises(VilcoError):
            profile.dense(pictures)


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


def test_precomputed_features_in_every_format(home: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.numpy import save_file

    rows = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    settings = {"schema": 1, "name": "Ego VLP", "stride": 0.5, "window": 2.0, "dim": 7}
    (tmp_path / "features.json").write_text(json.dumps(settings))
    np.save(tmp_path / "a.npy", rows)
    np.savez(tmp_path / "b.npz", features=rows, other=np.zeros(2))
    save_file({"x": rows}, str(tmp_path / "c.safetensors"))
    torch.save({"features": torch.from_numpy(rows)}, tmp_path / "0123456789ab.pt")
    profile: Any = load_profile(f"precomputed:{tmp_path}", home)
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
def test_precomputed_settings_are_checked(field: str, home: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"name": "x", "stride": 1.0, "window": 1.0, "dim": 3}
    del settings[field]
    (tmp_path / "features.json").write_text(json.dumps(settings))
    with pytest.raises(VilcoError) as caught:
        load_profile(f"precomputed:{tmp_path}", home)
    assert field in caught.value.message
    settings[field] = "x" if field == "name" else -1
    (tmp_path / "features.json").write_text(json.dumps(settings))
    if field in ("stride", "window"):
        with pytest.raises(VilcoError):
            load_profile(f"precomputed:{tmp_path}", home)


def test_setup_prepares_a_local_model(clip_spec: str, home: Path) -> None:
    setup(clip_spec, home)
    assert [s.name for s in profile_status(home) if s.ready and s.name.startswith("clip")]
