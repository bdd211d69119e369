"""Every strategy with two unlike learners: it runs, keeps its promise, survives a kill, forgets what it is told to."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from tests.continual_learners import Detector, Policy, detector_samples, narration_samples, policy_samples
from vilco_app.continual import STRATEGIES
from vilco_app.continual.compose import Compose
from vilco_app.continual.loop import Plan, fit
from vilco_app.continual.protocols import Sample, Strategy, Task
from vilco_app.continual.state import pack, unpack
from vilco_app.continual.strategies import make_strategy, options_of
from vilco_app.values import VilcoError

PLAN = Plan(epochs=3, batch_size=8, lr=3e-3)
STAGES = 3


def same(a: object, b: object) -> bool:
    first, tree = pack(a)
    second, other = pack(b)
    return json.dumps(tree) == json.dumps(other) and first.keys() == second.keys() and all(
        torch.equal(first[k], second[k]) for k in first
    )  # fmt: skip


def on_disk(state: dict) -> dict:
    """The state after a trip through a safetensors file and a JSON file."""
    tensors, tree = pack(state)
    return unpack(load_tensors(save_tensors(tensors)), json.loads(json.dumps(tree)))


def make(kind: str) -> tuple[Detector | Policy, list[list[Sample]]]:
    if kind == "policy":
        return Policy(STAGES), [policy_samples(t, 24) for t in range(STAGES)]
    return Detector(STAGES), [detector_samples(t, 24) for t in range(STAGES)]


def stage(learner: Detector | Policy, strategy: Strategy, samples: list[Sample], task: int, **more: object):
    if isinstance(learner, Detector):
        learner.begin(task)
        more.setdefault("narrations", narration_samples(task, 6))
    return fit(learner, strategy, samples, Task(task, total=STAGES), PLAN, **more)


@pytest.mark.parametrize("kind", ["policy", "detector"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_killed_stage_goes_on_to_the_same_bits(name: str, kind: str) -> None:
    if name == "ridge":
        pytest.skip("takes no step that could be interrupted")
    whole, data = make(kind)
    strategy = make_strategy(name)
    stage(whole, strategy, data[0], 0)
    start = on_disk({"learner": whole.state_dict(), "strategy": strategy.state_dict()})
    stage(whole, strategy, data[1], 1)

    def begin() -> tuple[Detector | Policy, Strategy]:
        learner, other = make(kind)[0], make_strategy(name)
        if isinstance(learner, Detector):
            learner.begin(0)
            learner.close_slots(0)
        learner.load_state_dict(start["learner"])
        other.load_state_dict(start["strategy"])
        return learner, other

    first, other = begin()
    seen: list[int] = []
    cut = stage(first, other, data[1], 1, should_stop=lambda: len(seen) >= 4, on_step=lambda r: seen.append(r.step))
    assert not cut.done and cut.state is not None and len(seen) == 4
    again, fresh = begin()
    torch.manual_seed(99)  # another process has another random state
    result = stage(again, fresh, data[1], 1, resume=on_disk(cut.state))
    assert result.done
    assert same(again.state_dict(), whole.state_dict())
    assert same(fresh.state_dict(), strategy.state_dict())


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_bears_a_stage_of_one_example_and_reports_its_cost(name: str) -> None:
    for kind in ("policy", "detector"):
        learner, data = make(kind)
        strategy = make_strategy(name)
        if name == "ridge" and kind == "policy":
            with pytest.raises(VilcoError):
                stage(learner, strategy, data[0], 0)
            continue
        before = pack(learner.state_dict())[0]
        for task in range(STAGES):
            result = stage(learner, strategy, data[task][: 1 if task else None], task)
            assert result.done
            assert all(torch.isfinite(torch.tensor(r.total)) for r in result.losses)
        changed = any(not torch.equal(v, before[k]) for k, v in pack(learner.state_dict())[0].items())
        assert changed == (name != "ridge")
        cost = strategy.cost()
        assert (cost.bytes == 0) == (name == "naive")
        with strategy.view(learner, 0), strategy.view(learner):
            pass


def scores(name: str, seed: int, **options: object) -> tuple[float, float]:
    """(accuracy on stage 0 after three stages, accuracy on the last stage) of a detector whose stages differ in class."""
    learner, strategy = Detector(STAGES, seed=seed), make_strategy(name, **options)
    for task in range(STAGES):
        learner.begin(task)
        plan = Plan(epochs=25, batch_size=8, lr=1e-2, seed=seed, min_steps=120)  # GDumb has few samples, not few steps
        fit(learner, strategy, detector_samples(task, 32, seed), Task(task, total=STAGES), plan)
    with strategy.view(learner):
        return tuple(learner.accuracy(detector_samples(t, 40, seed + 70)) for t in (0, 2))  # type: ignore[return-value]


def test_naive_forgets_and_replay_methods_do_not() -> None:
    old, new = scores("naive", 0)
    assert old < 0.3 and new > 0.9
    for name in (
        "joint",
        "ridge",
        "gdumb",
        "reservoir",
        "perfect-memory",
        "derpp",
        "icarl",
        "bic",
        "vilco",
        "episodic",
    ):
        options = {} if name in ("joint", "ridge", "perfect-memory") else {"memory": 16}
        old, new = scores(name, 0, **options)
        assert old > 0.85 and new > 0.85, (name, old, new)


def test_penalties_keep_a_policy_of_separate_heads() -> None:
    """With one head per stage the trunk is all that can forget: what regularisation methods are for."""

    def lost(name: str, **options: object) -> float:
        learner, strategy = Policy(2, dropout=0.0), make_strategy(name, **options)
        error = []
        for task in range(2):
            fit(
                learner,
                strategy,
                policy_samples(task, 64),
                Task(task, total=2),
                Plan(epochs=40, batch_size=16, lr=1e-2),
            )
            with strategy.view(learner, 0), torch.no_grad():
                batch_error = measure(learner, policy_samples(0, 64))
            error.append(batch_error)
        return error[1] - error[0]

    def measure(learner: Policy, samples: list[Sample]) -> float:
        from vilco_app.continual.protocols import Batch

        learner.module.eval()
        batch = Batch.of(samples)
        batch.data = learner.collate(samples)
        mean = learner.outputs(batch, 0)[0].tensor[:, :2]
        return float(((mean - batch.data["a"]) ** 2).mean())

    naive = lost("naive")
    assert naive > 0.3
    # defaults are for the network; a policy's losses want others
    strengths: dict[str, dict[str, object]] = {"l2": {"strength": 1.0}, "mas": {"strength": 10.0}}
    strengths["vcl"] = {"strength": 1.0, "log_sigma": -3.0}
    for name in ("l2", "ewc", "mas", "si", "vcl", "packnet", "agem", "lwf"):
        assert lost(name, **strengths.get(name, {})) < 0.7 * naive, name


def test_forgetting_a_span_empties_every_buffer_of_it() -> None:
    for name in ("joint", "gdumb", "agem", "reservoir", "perfect-memory", "derpp", "icarl", "bic", "vilco", "episodic"):
        learner, data = make("detector")
        strategy = make_strategy(name)
        stage(learner, strategy, data[0], 0)
        kept = len(strategy.buffer)  # type: ignore[attr-defined]
        removed = strategy.forget("v0", 3.0, 5.0)
        left = strategy.buffer.samples  # type: ignore[attr-defined]
        assert removed >= 2 and len(left) == kept - 2
        assert not any(a < 5.0 and b > 3.0 for s in left for _, a, b in s.spans)
        assert strategy.forget("another video", 0.0, 1e9) == 0


def test_options_are_checked_and_have_defaults() -> None:
    assert options_of("vilco")["memory"] == 1010
    with pytest.raises(VilcoError) as error:
        make_strategy("ewc", strenght=3)
    assert "strenght" in error.value.message and "strength" in error.value.remedy
    with pytest.raises(VilcoError):
        make_strategy("unknown")


def test_composition_joins_hooks_and_refuses_two_views() -> None:
    learner, data = make("policy")
    both = Compose([make_strategy("reservoir"), make_strategy("ewc", strength=10.0)])
    for task in range(2):
        result = stage(learner, both, data[task], task)
    assert result.losses[-1].replay is not None and result.losses[-1].extra["penalty"] >= 0
    restored = Compose([make_strategy("reservoir"), make_strategy("ewc")])
    restored.load_state_dict(on_disk(both.state_dict()))
    assert same(restored.state_dict(), both.state_dict())
    with pytest.raises(VilcoError):
        Compose([make_strategy("packnet"), make_strategy("icarl")])


def test_an_empty_stage_and_a_diverged_loss_are_refused() -> None:
    learner, data = make("policy")
    with pytest.raises(VilcoError) as error:
        stage(learner, make_strategy("naive"), [], 0)
    assert error.value.code == "empty-stage"
    broken = [Sample("x", {"state": torch.full((4,), torch.nan)}, data[0][0].targets, 0)]
    with pytest.raises(VilcoError) as error:
        stage(learner, make_strategy("naive"), broken, 0)
    assert error.value.code == "diverged"
