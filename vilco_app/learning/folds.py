"""How well would the network do on examples of a new stage it had not been taught? Short trainings without each fold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from vilco_app.continual import Plan, Task, fit, make_strategy
from vilco_app.learning.grounder import NetworkGrounder
from vilco_app.learning.presets import Preset
from vilco_app.learning.resolving import Resolved
from vilco_app.learning.restoring import Restored
from vilco_app.learning.scoring import Probe, Prober
from vilco_app.network.learner import ViLCoLearner

FOLDS = 3  # trainings of half the stage's epochs on two thirds of it: together as much as the stage itself
REHEARSED = 64  # replayed examples mixed in


def fold_probes(
    start: Restored, resolved: Resolved, samples: list[Any], library: Any, profile: Any, preset: Preset,
    known: Mapping[str, Prober] | None = None,
) -> list[Probe]:  # fmt: skip
    """Probes of the stage's training examples, each with a network that was not trained on it (nor on its question).

    Fold networks start from untrained weights: the parent may have seen the same question before. known: by recording, who
    asks about it with taught directions that are not its own; None: without any.
    """
    examples = [e for e in resolved.stage.part("train")]
    questions = sorted({e.text.lower() for e in examples})
    if len(questions) < 2:
        return []
    folds = min(FOLDS, len(questions))
    owner = {q: k % folds for k, q in enumerate(questions)}
    buffer = getattr(start.strategy, "buffer", None)
    old = list(buffer)[:REHEARSED] if buffer is not None else []
    old = [s for s in old if s.task < len(start.stages) and s.meta["family"] != "vq"]
    prober, out = Prober(library, profile), []
    for k in range(folds):
        learner = ViLCoLearner(start.learner.config)
        state = start.learner.state_dict()
        learner.load_state_dict({**state, "module": _untrained(learner, state)})
        mine = [s for s, e in zip(samples, examples, strict=True) if owner[e.text.lower()] != k]
        steps = max(10, (preset.max_steps or 240) // 6)
        epochs = max(1, preset.epochs // 2)
        plan = Plan(epochs=epochs, min_steps=10, max_steps=steps, batch_size=preset.batch_size, lr=preset.lr)
        fit(learner, make_strategy("naive"), [*mine, *old], Task(0, "fold"), plan)
        network = NetworkGrounder(learner, profile.blocks)
        for e in examples:
            if owner[e.text.lower()] == k:
                video = resolved.video(e).id
                asker = prober if known is None else known[video]
                out.append(asker.probe(e, resolved.stage.family, video, network))
    return out


def _untrained(learner: ViLCoLearner, state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Fresh weights with the trained network's feature statistics and as many (zero) prompt slots."""
    fresh = {k: v.clone() for k, v in learner.net.state_dict().items()}
    for name in ("video_side.mean", "video_side.inverse"):
        fresh[name] = state["module"][name].clone()
    for name in ("prompts.keys", "prompts.prompts"):
        if fresh[name].shape != state["module"][name].shape:
            fresh[name] = torch.zeros_like(state["module"][name])
    return fresh
