"""The embedded profile: engines agree, formulas hold, conversion is safe, nothing heavy is imported when cold."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_encoders_retrieval import photo
from vilco_app.encoders import MAX_REGIONS, RuntimeOptions, TextEncoder, VideoEncoder, load_profile, profile_status
from vilco_app.encoders.base import RegionEncoder
from vilco_app.encoders.cells import centre_pool, cluster_cells, pack_regions, unit
from vilco_app.encoders.colours import COLOURS, colour_vector, colour_words
from vilco_app.encoders.concepts import imagenet_words
from vilco_app.encoders.embedded import EmbeddedProfile, resize_long, resize_short
from vilco_app.encoders.weights import LITE0, TOKENIZER, built_by, built_folder
from vilco_app.home import resolve_home
from vilco_app.values import VilcoError

MODELS = resolve_home() / "models"


@pytest.fixture(scope="module")
def profile() -> EmbeddedProfile:
    return EmbeddedProfile(MODELS)


@pytest.fixture(scope="module")
def frames() -> np.ndarray:
    """Six photos as 256 x 456 frames [6, 256, 456, 3]."""
    out = []
    for name in ("cat", "coffee", "motorcycle", "china", "flower", "rocket"):
        wide = resize_short(photo(name), 480)[:, :480]
        out.append(resize_short(wide, 456)[100:356, :456])
    return np.stack(out)


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (unit(a) * unit(b)).sum(-1)


def test_engines_and_precisions_agree(frames: np.ndarray) -> None:
    """OpenVINO f32 is torch fp32; bf16 differs by rounding only."""
    torch_profile = EmbeddedProfile(MODELS, runtime=RuntimeOptions(engine="torch"))
    exact = EmbeddedProfile(MODELS, runtime=RuntimeOptions(engine="openvino", precision="f32"))
    rounded = EmbeddedProfile(MODELS, runtime=RuntimeOptions(engine="openvino", precision="bf16"))
    want, same, near = (p.encode(frames) for p in (torch_profile, exact, rounded))
    assert cosines(want.globals, same.globals).min() > 0.99999
    assert cosines(want.globals, near.globals).min() > 0.99
    assert cosines(torch_profile.dense(frames), exact.dense(frames)).min() > 0.9999
    assert np.median(cosines(exact.dense(frames), rounded.dense(frames))) > 0.995
    for text in ("a cup of coffee", "where did I put the long thin blue screwdriver that I had yesterday?"):
        a, b = torch_profile.text(text), rounded.text(text)
        assert float(a.sentence @ b.sentence) > 0.99999
        assert a.tokens.shape == b.tokens.shape


def test_features_have_the_promised_form(profile: EmbeddedProfile, frames: np.ndarray) -> None:
    features = profile.encode(frames)
    assert features.globals.shape == (6, profile.global_dim) and features.globals.dtype == np.float32
    assert features.counts.sum() == len(features.regions) == len(features.boxes)
    assert (features.counts >= 1).all() and (features.counts <= MAX_REGIONS).all()
    assert profile.region_dim <= 256 and features.regions.shape[1] == profile.region_dim
    assert np.allclose(np.linalg.norm(features.regions, axis=1), 1, atol=1e-3)
    x1, y1, x2, y2 = features.boxes.T
    assert (x1 >= 0).all() and (x1 < x2).all() and (x2 <= 1).all()
    assert (y1 >= 0).all() and (y1 < y2).all() and (y2 <= 1).all()
    assert profile.blocks.stops[-1] == profile.global_dim
    assert isinstance(profile, VideoEncoder) and isinstance(profile, RegionEncoder)
    assert isinstance(profile.text_encoder, TextEncoder)
    assert np.allclose(profile.clips(frames[:, None]), features.globals, atol=2e-2)


def test_rounding_does_not_shift_the_picture(frames: np.ndarray) -> None:
    """Odd sizes cannot be written in bf16; the padding must not be computed in it. Cells stay where they are."""
    exact = EmbeddedProfile(MODELS, runtime=RuntimeOptions(engine="openvino", precision="f32"))
    rounded = EmbeddedProfile(MODELS, runtime=RuntimeOptions(engine="openvino", precision="bf16"))
    for odd in (frames[:, :, :455], frames[:, :255, :257], frames[:, :255, :451]):
        a, b = exact.dense(odd), rounded.dense(odd)
        assert a.shape == b.shape and cosines(a, b).min() > 0.9
        assert cosines(exact.encode(odd).globals, rounded.encode(odd).globals).min() > 0.99


@pytest.mark.parametrize("size", [(256, 341), (256, 256), (455, 256), (256, 257), (1080, 256), (256, 999)])
def test_frames_of_any_aspect(profile: EmbeddedProfile, size: tuple[int, int]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (1, *size, 3), dtype=np.uint8)
    assert np.isfinite(profile.encode(picture).globals).all()
    h, w = size
    assert profile.dense(picture).shape[1:3] == (-(-h // 16), -(-w // 16))


def test_flat_frames_give_finite_vectors(profile: EmbeddedProfile) -> None:
    """All black is what a lens cap shows."""
    features = profile.encode(np.zeros((2, 256, 400, 3), np.uint8))
    assert np.isfinite(features.globals).all() and np.isfinite(features.regions).all()


@pytest.mark.parametrize("shape", [(1, 1), (3, 500), (500, 3), (4000, 30), (17, 23)])
def test_pictures_of_any_size(profile: EmbeddedProfile, shape: tuple[int, int]) -> None:
    picture = np.full((*shape, 3), 200, np.uint8)
    vectors = profile.image(picture)
    assert vectors.whole.shape == (profile.global_dim,) and np.isfinite(vectors.whole).all()
    assert np.allclose(np.linalg.norm(vectors.regions, axis=1), 1, atol=1e-3)


def test_one_vector_per_frame_whatever_the_batch(profile: EmbeddedProfile, frames: np.ndarray) -> None:
    together = profile.encode(frames).globals
    alone = np.concatenate([profile.encode(frame[None]).globals for frame in frames])
    assert cosines(together, alone).min() > 0.999


def test_threads_share_a_profile(profile: EmbeddedProfile, frames: np.ndarray) -> None:
    want = [profile.encode(frames[i : i + 1]).globals for i in range(6)]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda i: profile.encode(frames[i % 6 : i % 6 + 1]).globals, range(24)))
    for i, vectors in enumerate(got):
        assert cosines(vectors, want[i % 6]).min() > 0.999


def test_the_question_is_the_sum_of_its_classes(profile: EmbeddedProfile) -> None:
    """thing = sum_c softmax(sharpness * cos(question, name_c)) * P (w_c - mean w), from the stored tables."""
    vectors = profile.text("a lion")
    names = np.stack([profile.text(c.name).sentence for c in vectors.concepts])
    cosine = names @ vectors.sentence
    ratio = np.array([c.weight for c in vectors.concepts])
    s = profile.options.sharpness
    assert np.allclose(np.log(ratio / ratio[0]), s * (cosine - cosine[0]), atol=1e-3)
    assert vectors.concepts[0].name == "lion"
    assert vectors.scene is not None and vectors.thing is not None
    conse, q2c, colour = (vectors.scene[part] for part in profile.blocks.slices())
    assert np.allclose(conse, vectors.sentence)
    assert np.allclose(q2c, profile.options.class_scale * vectors.thing)
    assert not colour.any()
    assert profile.text("a red ball").scene[profile.blocks.slices()[2]].any()  # type: ignore[index]


def test_regions_and_words_meet_in_one_space(profile: EmbeddedProfile, frames: np.ndarray) -> None:
    """The mean projected cell, scored by a class direction, is the q2c block (which is divided by the logits' spread)."""
    _, q2c, _ = (profile.encode(frames).globals[:, part] for part in profile.blocks.slices())
    thing = profile.text("a cat").thing
    cells = profile._vision(frames)[1].mean((1, 2))
    assert thing is not None
    a, b = cells @ thing, q2c @ thing
    assert np.corrcoef(a, b)[0, 1] > 0.98


def test_tokens_are_what_the_sentence_is_the_mean_of(profile: EmbeddedProfile) -> None:
    vectors = profile.text("Where is my blue cup?")
    assert vectors.tokens.shape[1] == profile.text_dim == 384
    assert np.allclose(unit(vectors.tokens.mean(0)), vectors.sentence, atol=1e-5)
    batch = profile.text_encoder.sentences(["cup", "Where is my blue cup?", "x " * 600])
    assert np.allclose(batch[1], vectors.sentence, atol=1e-4)
    assert profile.text_encoder.tokens("x " * 600).shape[0] == 256
    assert profile.text_encoder.sentences([]).shape == (0, 384)
    assert np.isfinite(profile.text("").sentence).all()
    assert float(batch[0] @ profile.text("mug").sentence) > float(batch[0] @ profile.text("galaxy").sentence)


def test_class_words() -> None:
    words = imagenet_words()
    assert len(words) == 1000
    lion = next(w for w in words if w.name == "lion")
    assert "king of beasts" in lion.lemmas and "feline" in lion.definition


# ---- cells ----


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**31 - 1))
def test_every_cell_lies_in_a_region(b: int, h: int, w: int, seed: int) -> None:
    maps = np.random.default_rng(seed).normal(size=(b, h, w, 5)).astype(np.float32)
    vectors, boxes, sizes = cluster_cells(maps)
    assert (sizes.sum(1) == h * w).all()
    packed, placed, counts = pack_regions(vectors, boxes, sizes)
    assert counts.sum() == len(packed) == len(placed) and (counts <= MAX_REGIONS).all() and (counts >= 1).all()
    assert np.isfinite(packed).all()
    assert (placed[:, 0] < placed[:, 2]).all() and (placed[:, 1] < placed[:, 3]).all()


def test_two_things_are_two_regions() -> None:
    """A square of one feature on a ground of another comes out with its own box."""
    maps = np.zeros((1, 8, 12, 4), np.float32)
    maps[..., 0] = 1
    maps[0, 2:4, 5:8] = (0, 1, 0, 0)
    vectors, boxes, sizes = cluster_cells(maps)
    thing = vectors[0, :, 1] > 0.99
    assert sizes[0, thing].sum() == 6
    x1, y1 = boxes[0, thing, :2].min(0)
    x2, y2 = boxes[0, thing, 2:].max(0)
    assert np.allclose((x1, y1, x2, y2), (5 / 12, 2 / 8, 8 / 12, 4 / 8))


def test_clustering_is_deterministic_and_batch_independent() -> None:
    maps = np.random.default_rng(0).normal(size=(4, 6, 9, 16)).astype(np.float32)
    all_at_once = cluster_cells(maps)
    for i in range(4):
        for whole, one in zip(all_at_once, cluster_cells(maps[i : i + 1]), strict=True):
            assert np.allclose(whole[i], one[0], atol=1e-5)


def test_centre_pool_is_a_mean_that_looks_at_the_middle() -> None:
    assert np.allclose(centre_pool(np.full((5, 7, 3), 2.5, np.float32)), 2.5)
    cells = np.zeros((5, 5, 1), np.float32)
    cells[2, 2] = 1
    border = np.zeros((5, 5, 1), np.float32)
    border[0, 0] = 1
    assert centre_pool(cells)[0] > 4 * centre_pool(border)[0]


# ---- colours ----

SWATCHES = {
    "red": (200, 20, 30), "orange": (245, 140, 20), "yellow": (240, 220, 40), "green": (40, 160, 50),
    "blue": (30, 60, 200), "purple": (130, 40, 190), "pink": (250, 170, 200), "brown": (110, 65, 25),
    "black": (10, 10, 12), "white": (245, 246, 245), "grey": (128, 128, 130),
}  # fmt: skip


@pytest.mark.parametrize("name", COLOURS)
def test_a_coloured_thing_shows_its_colour(name: str) -> None:
    """A patch of an eighth of the frame lights up its own dimension fully (3 of 48 tiles) and no other but the ground's."""
    ground = "white" if name != "white" else "black"
    frame = np.full((1, 96, 128, 3), SWATCHES[ground], np.uint8)
    frame[0, 16:64, 32:96] = SWATCHES[name]
    vector = colour_vector(frame)[0]
    assert vector[COLOURS.index(name)] == pytest.approx(1.0)
    assert {COLOURS[i] for i in np.flatnonzero(vector > 0.5)} == {name, ground}


def test_colour_words() -> None:
    assert colour_words("the RED-white bag, gray!").sum() == pytest.approx(1)
    assert {COLOURS[i] for i in np.flatnonzero(colour_words("the RED-white bag, gray!"))} == {"red", "white", "grey"}
    assert not colour_words("a blackboard and an evergreen").any()


# ---- conversion and start-up ----


def test_a_cold_question_imports_nothing_heavy(profile: EmbeddedProfile) -> None:
    code = (
        "import sys, json; from pathlib import Path; from vilco_app.encoders import load_profile, profile_status;"
        f"p = load_profile('embedded', Path({str(MODELS)!r})); p.text('a cup'); profile_status(Path({str(MODELS)!r}));"
        "print(json.dumps([m for m in ('torch', 'timm', 'transformers', 'open_clip', 'gradio', 'faiss') if m in sys.modules]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == []


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VilcoError) as caught:
        replace(TOKENIZER, sha256="0" * 64).verified()
    assert caught.value.code == "wrong-weights" and "tokenizer.json" in caught.value.message
    with pytest.raises(VilcoError) as caught:
        replace(LITE0, module="a_package_nobody_has").path()
    assert caught.value.code == "missing-weights" and LITE0.project in caught.value.remedy


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "encoders" / "x@1"

    def broken(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError):
        built_folder(target, "1", broken)
    assert list(target.parent.iterdir()) == []


def test_a_new_recipe_builds_again_and_an_old_build_stays(tmp_path: Path) -> None:
    target = tmp_path / "x@1"
    built_folder(target, "1", lambda folder: (folder / "a").write_text("one") and None)
    built_folder(target, "1", lambda folder: pytest.fail("built twice"))
    built_folder(target, "2", lambda folder: (folder / "a").write_text("two") and None)
    assert (target / "a").read_text() == "two" and built_by(target) == "2"
    assert [p.name for p in tmp_path.iterdir()] == ["x@1"]


def test_two_builders_at_once_leave_one_whole_folder(tmp_path: Path) -> None:
    target = tmp_path / "x@1"

    def build(number: int) -> None:
        built_folder(target, "1", lambda folder: (folder / "a").write_text(str(number) * 1000) and None)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(build, range(16)))
    assert len((target / "a").read_text()) in (1000, 2000)
    assert built_by(target) == "1" and [p.name for p in tmp_path.iterdir()] == ["x@1"]


def test_a_home_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file where a folder should be")
    with pytest.raises(VilcoError) as caught:
        built_folder(tmp_path / "models" / "x@1", "1", lambda folder: None)
    assert caught.value.code == "not-writable" and "VILCO_HOME" in caught.value.remedy


def test_a_damaged_blob_is_only_a_slow_start(profile: EmbeddedProfile, tmp_path: Path, frames: np.ndarray) -> None:
    import shutil

    from vilco_app.encoders.runtime import OpenVinoNetwork

    for file in ("text.xml", "text.bin"):
        shutil.copy2(profile.folder / file, tmp_path / file)
    ids = np.array([[101, 2304, 102]])
    want = OpenVinoNetwork(tmp_path / "text.xml", RuntimeOptions(), "f32")(ids, np.ones_like(ids))[0]
    blobs = list((tmp_path / "cache").glob("*.blob"))
    assert len(blobs) == 1
    blobs[0].write_bytes(b"not a blob")
    again = OpenVinoNetwork(tmp_path / "text.xml", RuntimeOptions(), "f32")(ids, np.ones_like(ids))[0]
    assert np.allclose(want, again, atol=1e-5)


def test_without_openvino_torch_serves(
    profile: EmbeddedProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frames: np.ndarray
) -> None:
    import torch

    from vilco_app.encoders import runtime
    from vilco_app.encoders.embedded_convert import vision_module

    (tmp_path / "damaged.xml").write_text("<not a network>")
    damaged = runtime.open_network(tmp_path, "damaged", RuntimeOptions(), torch.nn.Identity)
    assert damaged.engine == "torch"
    with pytest.raises(RuntimeError):
        runtime.open_network(tmp_path, "damaged", RuntimeOptions(engine="openvino"), torch.nn.Identity)
    monkeypatch.setattr(runtime, "have_openvino", lambda: False)
    runtime.convert(torch.nn.Identity(), (torch.zeros(1),), tmp_path / "x.xml")
    assert not (tmp_path / "x.xml").exists()
    network = runtime.open_network(profile.folder, "vision", RuntimeOptions(), lambda: vision_module(profile.folder))
    assert network.engine == "torch"
    assert cosines(network(frames[:1])[0], profile._vision(frames[:1])[0]).min() > 0.98


def test_streaming_keeps_the_order(profile: EmbeddedProfile, frames: np.ndarray) -> None:
    want = [profile._vision(frames[i : i + 1])[0] for i in range(6)]
    got = list(profile._vision.stream((frames[i : i + 1],) for i in range(6)))
    assert len(got) == 6
    for a, b in zip(want, got, strict=True):
        assert cosines(a, b[0]).min() > 0.999


def test_resizing_keeps_the_aspect() -> None:
    picture = np.zeros((300, 600, 3), np.uint8)
    assert resize_short(picture, 100).shape == (100, 200, 3)
    assert resize_short(np.zeros((10, 400, 3), np.uint8), 100).shape == (100, 400, 3)
    assert resize_long(picture, 150).shape == (75, 150, 3)
    assert resize_long(np.zeros((10, 400, 3), np.uint8), 100).shape == (32, 100, 3)


def test_unknown_profiles_and_status() -> None:
    with pytest.raises(VilcoError) as caught:
        load_profile("resnet", MODELS)
    assert caught.value.code == "unknown-profile" and "embedded" in caught.value.remedy
    status = {s.name: s for s in profile_status(MODELS)}
    assert status["embedded"].ready
    assert all(s.ready or (s.reason and s.remedy) for s in status.values())
