"""The network as a learner: samples, batches, losses that do not depend on neighbours, state, the visual head."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from vilco_app.continual import STRATEGIES, Plan, Task, fit, make_strategy
from vilco_app.continual.protocols import Batch, HasBatches, HasClasses, HasHeads, HasNarrations, HasPrompts, Sample
from vilco_app.network.batch import LEAST_CELLS, ClipSample, collate
from vilco_app.network.config import NetworkConfig
from vilco_app.network.learner import ViLCoLearner
from vilco_app.network.visual import jl_projection


def config(**changes: object) -> NetworkConfig:
    sizes = {"width": 16, "heads": 2, "levels": 3, "stem_blocks": 1, "window": 4, "prompt_length": 3, "dropout": 0.0}
    return NetworkConfig(10, 6, 2, **{**sizes, **changes})  # type: ignore[arg-type]


def clip(
    name: str, video: torch.Tensor, window: tuple[float, float] | None, family: str = "nlq", text: str = "a"
) -> ClipSample:
    g = torch.Generator().manual_seed(sum(map(ord, text)))
    n = len(video)
    words = F.normalize(torch.randn(6, generator=g), dim=0)
    return ClipSample(
        name,
        {"video": video, "valid": torch.ones(n, dtype=torch.bool), "priors": torch.zeros(n, 2), "sentence": words,
         "tokens": torch.randn(3, 6, generator=g)},
        {"windows": torch.tensor([window] if window else [], dtype=torch.float32).reshape(-1, 2)},
        meta={"family": family, "text": text, "stride": 0.5, "start": 100.0, "video": "v"},
        spans=(("v", 100.0, 100.0 + n / 2),),
    )  # fmt: skip


def picture(name: str, g: torch.Generator, cell: tuple[int, int] = (2, 3)) -> Sample:
    look = F.normalize(torch.randn(128, generator=g), dim=0)
    frames = F.normalize(torch.randn(4, 6, 8, 128, generator=g), dim=-1)
    y, x = cell
    frames[1, y : y + 2, x : x + 2] = look
    box = [x / 8, y / 6, (x + 2) / 8, (y + 2) / 6]
    return Sample(
        name, {"query": look[None], "frames": frames},
        {"boxes": torch.tensor([[0, 0, 1, 1], box, [0, 0, 1, 1], [0, 0, 1, 1]], dtype=torch.float32),
         "present": torch.tensor([False, True, False, False])},
        meta={"family": "vq", "text": name, "video": "v"}, spans=(("v", 0.0, 1.0),),
    )  # fmt: skip


def result(learner: ViLCoLearner, samples: list[Sample]) -> torch.Tensor:
    batch = Batch.of(samples)
    batch.data = learner.collate(samples)
    rows = learner.loss(batch, 0).per_sample()
    assert rows is not None
    return rows


def mixed() -> list[Sample]:
    g = torch.Generator().manual_seed(0)
    one, two = torch.randn(40, 10, generator=g), torch.randn(70, 10, generator=g)
    return [
        clip("a", one, (3.0, 9.0)), clip("b", one, None, text="b"), clip("c", two, (60.0, 69.5), "mq", "wash"),
        clip("d", one, (3.0, 5.0), "mq", "cook"), picture("p", g),
    ]  # fmt: skip


def test_it_is_what_the_strategies_ask_for() -> None:
    learner = ViLCoLearner(config())
    assert all(isinstance(learner, p) for p in (HasBatches, HasHeads, HasPrompts, HasNarrations, HasClasses))
    names = set(learner.shared_parameters())
    assert learner.head_names() < names and learner.boundary_names() < names
    assert not learner.head_names() & learner.boundary_names()


def test_no_example_s_loss_depends_on_its_neighbours() -> None:
    learner, samples = ViLCoLearner(config()), mixed()
    learner.register(samples, 0)
    learner.net.eval()
    with torch.no_grad():
        together = result(learner, samples)
        alone = torch.cat([result(learner, [s]) for s in samples])
    assert torch.allclose(together, alone, rtol=1e-4, atol=1e-5)


def test_declared_outputs_line_up_whatever_the_padding() -> None:
    learner, samples = ViLCoLearner(config()), mixed()
    learner.register(samples, 0)
    learner.net.eval()

    def outputs(some: list[Sample]) -> dict[str, torch.Tensor]:
        batch = Batch.of(some)
        batch.data = learner.collate(some)
        return {o.name: o.flat(0) for o in learner.outputs(batch, 0)}

    with torch.no_grad():
        one, many = outputs(samples[:1]), outputs(samples)
    assert torch.allclose(one["nlq"], many["nlq"], atol=1e-5) and len(many["mq"]) == 0
    assert one["nlq"].shape[0] == 40 + 20 + 10 and one["nlq_distance"].shape == (70, 2)


def test_queries_of_one_video_share_one_pass_of_the_video_side() -> None:
    samples = mixed()[:2]
    data = collate(samples, config(), {}, torch.device("cpu"))
    assert len(data.buckets) == 1 and data.buckets[0].features.shape[0] == 1 and len(data.buckets[0].which) == 2
    learner = ViLCoLearner(config())
    seen = learner.batches([*samples, *mixed()[:3]], 4, torch.Generator().manual_seed(0))
    assert sorted(i for b in seen for i in b) == list(range(5)) and all(len(b) <= 4 for b in seen)
    assert any({0, 1} <= set(b) for b in seen)


def test_what_a_buffer_keeps_is_the_moment_and_its_surroundings() -> None:
    video = torch.arange(1000.0)[:, None].repeat(1, 10)
    kept = clip("a", video, (500.0, 520.0)).compact()
    cells = kept.features["video"]
    assert cells.dtype == torch.float16 and len(cells) == LEAST_CELLS
    start, end = kept.targets["windows"][0].tolist()
    assert float(cells[int(start), 0]) == 500.0 and end - start == 20.0
    assert kept.meta["start"] == 100.0 + float(cells[0, 0]) * 0.5
    assert kept.spans == (("v", kept.meta["start"], kept.meta["start"] + LEAST_CELLS / 2),)
    assert len(clip("a", video, (100.0, 900.0)).compact().features["video"]) == 800
    assert kept.compact().features["video"].shape == cells.shape
    assert len(clip("n", video, None).compact().targets["windows"]) == 0


@pytest.mark.parametrize("mode", ["soft", "prepend", "replace", "shared", "random", "off"])
def test_every_prompt_mode_learns_two_stages_and_comes_back(mode: str) -> None:
    learner = ViLCoLearner(config(prompts=mode))
    strategy = make_strategy("vilco", memory=4)
    for task in range(2):
        samples = mixed()[:4]
        learner.register(samples, task)
        fit(learner, strategy, samples, Task(task), Plan(epochs=1, min_steps=3, batch_size=4))
    again = ViLCoLearner(config(prompts=mode))
    again.load_state_dict(learner.state_dict())
    again.net.eval()
    with torch.no_grad():
        assert torch.equal(result(again, mixed()), result(learner, mixed()))
    assert (len(learner.net.prompts) == 8) == (mode == "soft")


def test_slots_of_earlier_stages_do_not_move() -> None:
    learner, strategy = ViLCoLearner(config()), make_strategy("episodic", memory=4)
    learner.register(mixed(), 0)
    fit(learner, strategy, mixed(), Task(0), Plan(epochs=1, min_steps=2))
    rows = len(learner.net.prompts)
    before = learner.net.prompts.prompts.detach().clone()
    assert rows > 0
    other = [clip("z", torch.randn(40, 10), (3.0, 9.0), text="quite another question")]
    learner.register(other, 1)
    fit(learner, strategy, other, Task(1), Plan(epochs=1, min_steps=4))
    after = learner.net.prompts.prompts
    assert len(after) > rows and torch.equal(after[:rows], before)


def test_early_fusion_runs_and_learns() -> None:
    learner = ViLCoLearner(config(fusion="early"))
    samples = mixed()[:2]
    learner.register(samples, 0)
    record = fit(learner, make_strategy("naive"), samples, Task(0), Plan(epochs=1, min_steps=15, lr=3e-3)).losses
    assert record[-1].total < record[0].total
    assert learner.net.early is not None and learner.net.early.query.weight.grad is not None


def test_categories_keep_their_place_and_class_rows_are_the_labelled_cells() -> None:
    learner, samples = ViLCoLearner(config()), mixed()
    learner.register(samples, 0)
    learner.register([clip("e", torch.randn(40, 10), (1.0, 4.0), "mq", "sew")], 3)
    assert list(learner.categories) == ["wash", "cook", "sew"] and learner.class_task() == [0, 0, 3]
    batch = Batch.of(samples)
    batch.data = learner.collate(samples)
    logits, cells, labels = learner.class_rows(batch)
    assert logits.shape == (len(labels), 3) and cells.shape[0] == len(labels) and set(labels.tolist()) == {0, 1}


def test_narrations_pull_their_own_stretch_and_text_together() -> None:
    g = torch.Generator().manual_seed(1)
    videos = [torch.randn(40, 10, generator=g) for _ in range(4)]
    pairs = [clip(f"n{i}", v, (4.0, 12.0), text=f"text {i}") for i, v in enumerate(videos)]
    learner = ViLCoLearner(config())
    learner.register(pairs, 0)
    optimizer = torch.optim.Adam(learner.net.parameters(), 3e-3)
    first = float(learner.narration_loss(pairs, pairs[:1]).detach())
    for _ in range(25):
        optimizer.zero_grad()
        learner.narration_loss(pairs, []).backward()
        optimizer.step()
    assert float(learner.narration_loss(pairs, []).detach()) < 0.5 * first


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_takes_two_mixed_stages_and_its_state_can_be_kept(name: str, tmp_path: Path) -> None:
    from vilco_app.learning.packing import load_state, save_state

    learner, strategy = ViLCoLearner(config()), make_strategy(name)
    for task in range(2):
        samples = [replace(s, task=task, id=f"{task}:{s.id}") for s in mixed()[task:]]
        learner.register(samples, task)
        assert fit(learner, strategy, samples, Task(task), Plan(epochs=1, min_steps=2, batch_size=4)).done
    save_state(strategy.state_dict(), tmp_path / "s.safetensors")
    make_strategy(name).load_state_dict(load_state(tmp_path / "s.safetensors"))
    with strategy.view(learner), torch.no_grad():
        assert torch.isfinite(result(learner, mixed())).all()
    strategy.forget("v", 0.0, 1e9)
    assert len(getattr(strategy, "buffer", ())) == 0


def test_ridge_rows_are_what_is_seen_inside_the_windows() -> None:
    learner = ViLCoLearner(config())
    video = torch.zeros(40, 10)
    video[3:9, 4] = 5.0
    x, y = learner.ridge_rows(clip("a", video, (3.0, 9.0)))
    assert x.shape == (1, 6) and int(y[0].argmax()) == 4 and float(y.norm()) == pytest.approx(1.0)
    assert len(learner.ridge_rows(clip("n", video, None))[0]) == 0


def test_reset_forgets_weights_but_not_names() -> None:
    learner = ViLCoLearner(config())
    learner.register(mixed(), 0)
    fresh = {k: v.clone() for k, v in learner.net.state_dict().items()}
    fit(learner, make_strategy("naive"), mixed(), Task(0), Plan(epochs=1, min_steps=2))
    learner.reset(0)
    assert all(torch.equal(fresh[k], v) for k, v in learner.net.state_dict().items()) and list(learner.categories)


# -- pictures


def test_the_projection_is_fixed_and_keeps_inner_products() -> None:
    x = F.normalize(torch.randn(64, 500, generator=torch.Generator().manual_seed(0)), dim=-1)
    p = jl_projection(500, 128)
    assert torch.equal(p, jl_projection(500, 128))
    assert float(((x @ p) @ (x @ p).T - x @ x.T).abs().mean()) < 0.1


def test_the_visual_head_finds_planted_things_and_learns_how_far_they_reach() -> None:
    from vilco_app.learning.picture_scores import head_hits

    g = torch.Generator().manual_seed(2)
    places = [(0, 1), (2, 3), (4, 5), (1, 6), (3, 0), (2, 5)]
    train = [picture(f"t{i}", g, places[i % 6]) for i in range(18)]
    held = [picture(f"h{i}", g, places[(i + 2) % 6]) for i in range(12)]
    learner = ViLCoLearner(config())
    before = result(learner, held).mean()
    learner.register(train, 0)
    fit(learner, make_strategy("reservoir", memory=10), train, Task(0), Plan(epochs=12, batch_size=6, lr=3e-3))
    assert sum(head_hits(learner, held)) / len(held) >= 0.75
    assert result(learner, held).mean() < 0.5 * before


def test_a_snapshot_with_an_earlier_picture_head_still_loads() -> None:
    learner = ViLCoLearner(config())
    state = learner.state_dict()
    words = {k: v + 1 for k, v in state["module"].items() if not k.startswith("visual.")}
    state["module"] = {**words, "visual.read.0.weight": torch.zeros(3), "visual.gain": torch.tensor(4.0)}
    learner.load_state_dict(state)
    now = learner.net.state_dict()
    assert all(torch.equal(now[k], v) for k, v in words.items()) and float(now["visual.cell"].abs().sum()) == 0
