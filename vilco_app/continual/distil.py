"""Distances between a network's outputs and those of an earlier model, by the kind of output.

One function for LwF (teacher on this batch), DER++ (stored with the sample) and behaviour cloning (KL of policies): all
compare the valid entries of each sample, `Output.flat`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from vilco_app.continual.protocols import HasClasses, Learner, Output


@dataclass(frozen=True)
class Rule:
    """How outputs are compared."""

    squared: bool = False  # squared difference of the raw outputs (DER) instead of the divergence of their likelihoods
    temperature: float = 1.0  # of categorical outputs; the loss is multiplied by its square (Hinton 2015)
    gate: float = 0.0  # gated outputs count where the teacher's probability is above; 0: everywhere
    gate_scores: bool = False  # bernoulli outputs too: without it a confident "nothing here" is distilled as well


def flat_outputs(outputs: Sequence[Output], count: int) -> list[dict[str, Tensor]]:
    """Per sample: output name -> valid entries, detached."""
    return [{o.name: o.flat(i).detach() for o in outputs} for i in range(count)]


def known_classes(learner: Learner, task: int) -> int | None:
    """How many of a learner's classes came before stage `task`; None for learners without classes."""
    return sum(t < task for t in learner.class_task()) if isinstance(learner, HasClasses) else None


def known_only(outputs: Sequence[Output], known: int | None) -> list[Output]:
    """Outputs of an earlier model without the columns of classes it never learnt."""
    if known is None:
        return list(outputs)
    return [replace(o, tensor=o.tensor[..., :known]) if o.classes else o for o in outputs]


def confidence(output: Output, old: Tensor) -> Tensor:
    """[n]: the teacher's largest class probability at each valid entry."""
    probability = torch.sigmoid(old) if output.kind == "bernoulli" else torch.softmax(old, -1)
    return probability.flatten(1).amax(1) if probability.dim() > 1 else probability


def distance(output: Output, new: Tensor, old: Tensor, rule: Rule) -> Tensor:
    """Elementwise (categorical and policies: rowwise) distance of new from old entries of an output; old is the target."""
    if rule.squared or output.kind == "raw":
        return (new - old) ** 2
    if output.kind == "bernoulli":
        target = torch.sigmoid(old)
        entropy = F.binary_cross_entropy_with_logits(old, target, reduction="none")
        return F.binary_cross_entropy_with_logits(new, target, reduction="none") - entropy
    if output.kind == "categorical":
        t = rule.temperature
        log_new, log_old = F.log_softmax(new / t, -1), F.log_softmax(old / t, -1)
        return (log_old.exp() * (log_old - log_new)).sum(-1) * t * t
    if output.kind == "gaussian":
        scale = output.scale if isinstance(output.scale, float | int) else output.scale.mean()
        return 0.5 * ((new - old) / scale) ** 2
    m_new, s_new = new.chunk(2, -1)
    m_old, s_old = old.chunk(2, -1)
    return (s_new - s_old + 0.5 * ((2 * (s_old - s_new)).exp() + ((m_old - m_new) / s_new.exp()) ** 2 - 1)).sum(-1)


def divergence(
    outputs: Sequence[Output],
    targets: Sequence[Mapping[str, Tensor]],
    rule: Rule,
    trust: Sequence[float] | None = None,
) -> Tensor | None:
    """Scalar: mean over samples with targets of the sum over outputs of weight x mean distance over valid entries.

    targets: one mapping per sample of the batch ({}: none). Of outputs whose class list has grown the old classes are
    compared. trust: factor per sample. None when nothing can be compared.
    """
    named = {o.name: o for o in outputs}
    losses = []
    for i, target in enumerate(targets):
        parts = []
        for name, stored in target.items():
            if name not in named:
                continue
            output = named[name]
            new = output.flat(i)
            old = stored.to(new)
            if output.classes and old.shape[-1] < new.shape[-1]:
                new = new[..., : old.shape[-1]]
            if new.shape != old.shape:
                continue  # another crop of the sample: its outputs do not line up
            rows = distance(output, new, old, rule)
            keep = _gate(output, named, target, old, rule)
            if keep is not None and rows.dim() and len(keep) == len(rows):
                rows = rows[keep]
            if rows.numel():
                parts.append(output.weight * rows.mean())
        if parts:
            losses.append(torch.stack(parts).sum() * (1.0 if trust is None else trust[i]))
    return torch.stack(losses).mean() if losses else None


def _gate(
    output: Output, named: Mapping[str, Output], target: Mapping[str, Tensor], old: Tensor, rule: Rule
) -> Tensor | None:
    if rule.gate <= 0:
        return None
    if output.gate is not None and output.gate in target and output.gate in named:
        return confidence(named[output.gate], target[output.gate].to(old)) > rule.gate
    if rule.gate_scores and output.kind == "bernoulli":
        return confidence(output, old) > rule.gate
    return None
