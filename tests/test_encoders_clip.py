"""CLIP: the real code paths on small models made here, saved and loaded from paths."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.encoder_helpers import TORCH, cosines
from vilco_app.encoders import load_profile, profile_status, setup
from vilco_app.values import VilcoError


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


def test_clip_gives_what_open_clip_gives(clip_spec: str, prepared_models: Path, smooth_pictures: np.ndarray) -> None:
    import open_clip
    import torch

    from vilco_app.encoders.clip_convert import open_model
    from vilco_app.encoders.clip_weights import parse_clip

    profile = load_profile(clip_spec, prepared_models)
    model = open_model(parse_clip(clip_spec))
    tokenizer = open_clip.get_tokenizer("tiny-for-tests")
    for text in ("where did I put the scissors?", "It's  my CAFÉ, don't! 12345", "naïve 漢字 :-)", "", "word " * 200):
        with torch.inference_mode():
            want = model.encode_text(tokenizer([text]), normalize=True)[0].numpy()
        got = profile.text(text)
        assert float(got.sentence @ want) > 0.9999, text
        assert got.scene is not None and np.array_equal(got.scene, got.sentence)
        assert got.tokens.shape[1] == profile.text_dim == 48 and len(got.tokens) <= 77
    features = profile.encode(smooth_pictures)
    mean, std = (np.array(v) for v in (open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD))
    batch = torch.from_numpy(smooth_pictures.astype(np.float32)).permute(0, 3, 1, 2)
    batch = torch.nn.functional.interpolate(batch, size=(64, 64), mode="bilinear", antialias=True)
    normal = (batch / 255 - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1)
    with torch.inference_mode():
        want = model.encode_image(normal.float(), normalize=True)
    want = want[0] if isinstance(want, tuple) else want
    assert cosines(features.globals, want.numpy()).min() > 0.999
    assert np.allclose(np.linalg.norm(features.globals, axis=1), 1, atol=1e-3)
    assert features.regions.shape[1] == profile.region_dim and features.counts.sum() == len(features.boxes)
    assert profile.dense(smooth_pictures).shape == (3, 4, 4, 48)
    assert profile.image(smooth_pictures[0]).regions.shape == (2, 48)


def test_clip_engines_agree(clip_spec: str, prepared_models: Path, smooth_pictures: np.ndarray) -> None:
    fast, plain = load_profile(clip_spec, prepared_models), load_profile(clip_spec, prepared_models, TORCH)
    for width in (111, 109, 64):
        a, b = fast.encode(smooth_pictures[:, :, :width]), plain.encode(smooth_pictures[:, :, :width])
        assert cosines(a.globals, b.globals).min() > 0.999
    assert float(fast.text("a red cup").sentence @ plain.text("a red cup").sentence) > 0.9999


def test_a_prepared_clip_starts_without_torch_and_is_what_auto_means(clip_spec: str, prepared_models: Path) -> None:
    profile = load_profile(clip_spec, prepared_models)
    code = (
        "import sys, json; from pathlib import Path; from vilco_app.encoders import load_profile;"
        f"p = load_profile({clip_spec!r}, Path({str(prepared_models)!r})); p.text('a cup');"
        f"q = load_profile('auto', Path({str(prepared_models)!r}));"
        "print(json.dumps([p.id, q.id, [m for m in ('torch', 'open_clip', 'transformers') if m in sys.modules]]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == [profile.id, profile.id, []]
    assert any(s.ready and s.name.startswith("clip:") for s in profile_status(prepared_models))


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


def test_setup_prepares_a_local_model(clip_spec: str, prepared_models: Path) -> None:
    setup(clip_spec, prepared_models)
    assert [s.name for s in profile_status(prepared_models) if s.ready and s.name.startswith("clip")]
