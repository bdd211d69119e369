"""What a model says of a set of samples, in bounded memory: outputs to be remembered by, rows of its class head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vilco_app.continual.distil import flat_outputs
from vilco_app.continual.protocols import Batch, HasClasses, Learner, Sample
from vilco_app.continual.weights import evaluating

CHUNK = 16  # samples per pass: bounded memory whatever the stage's size


@torch.no_grad()
def with_outputs(learner: Learner, samples: Sequence[Sample], task: int, judge: bool = False) -> list[Sample]:
    """Copies of the samples carrying the learner's outputs on them (fp16 once compacted), without dropout.

    judge: trust each by exp(1 - max(1, loss / median loss)): answers that were wrong must not be preserved.
    """
    marked: list[Sample] = []
    losses: list[float] = []
    with evaluating(learner.module):
        for first in range(0, len(samples), CHUNK):
            # `stored` tells collate not to crop at random
            part = [replace(s.trim(), stored={"": torch.zeros(0)}) for s in samples[first : first + CHUNK]]
            batch = Batch.of(part)
            batch.data = learner.collate(part)
            result = learner.loss(batch, task)
            rows = result.per_sample()
            losses += [0.0] * len(part) if rows is None else rows.float().tolist()
            for sample, stored in zip(part, flat_outputs(result.outputs, len(part)), strict=True):
                marked.append(replace(sample, stored=stored))
    if not judge or not marked:
        return marked
    middle = max(float(torch.tensor(losses).median()), 1e-6)
    return [replace(s, trust=math.exp(1 - max(1.0, x / middle))) for s, x in zip(marked, losses, strict=True)]


@torch.no_grad()
def class_rows(learner: Learner, samples: Sequence[Sample]) -> tuple[Tensor, Tensor, Tensor]:
    """`HasClasses.class_rows` of all samples, without dropout: logits [n, C], embeddings [n, D], labels [n]."""
    assert isinstance(learner, HasClasses)
    rows = []
    with evaluating(learner.module):
        for first in range(0, len(samples), CHUNK):
            batch = Batch.of(samples[first : first + CHUNK], "replay")
            batch.data = learner.collate(batch.samples)
            rows.append(learner.class_rows(batch))
    logits, embeddings, labels = (torch.cat(parts) for parts in zip(*rows, strict=True))
    return logits, embeddings, labels
