"""The ViLCo network as a `Learner`: losses and declared outputs of a batch, categories, prompt slots, state.

Mixed batches are fine: a snapshot may hold nlq, mq and vq stages, and replay brings them into the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from vilco_app.continual.protocols import Batch, Output, Result, Sample
from vilco_app.network.batch import Collated, collate, pad_tokens
from vilco_app.network.config import NetworkConfig
from vilco_app.network.losses import info_nce
from vilco_app.network.terms import contrast, declare, inside_windows, localise
from vilco_app.network.vilco import Code, ViLCo
from vilco_app.network.visual_batch import VisualCollated, collate_visual, visual_result

KEY_PULL = 0.1  # weight of the key loss of the fixed prompt pools (L2P and the reference code)
MODULATE = ("fusion.", "score.", "anchor.", "query_side.", "visual.")  # the matching path; "boundary." is its own


class ViLCoLearner:
    """Implements continual.protocols Learner, HasBatches, HasHeads, HasPrompts, HasNarrations, HasClasses,
    HasRidge.

    categories: texts of all moment categories met so far, with the stage that brought each and its frozen text features.
    """

    def __init__(self, config: NetworkConfig) -> None:
        self.config = config
        self.net = ViLCo(config)
        self.module: nn.Module = self.net
        self.categories: dict[str, int] = {}
        self.brought: list[int] = []
        self.texts: list[tuple[torch.Tensor, torch.Tensor]] = []  # (sentence [Dt], tokens [S, Dt]) per category
        self.ready = False  # feature statistics are set
        self.class_view: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None
        self.ridge_view: Callable[[torch.Tensor], torch.Tensor] | None = None

    @property
    def device(self) -> torch.device:
        return next(self.net.parameters()).device

    # -- what a strategy may protect ---------------------------------------------------------------------------

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.net.named_parameters() if p.requires_grad or name == "prompts.keys"}

    def task_parameters(self, task: int) -> dict[str, nn.Parameter]:
        return {}  # one network for all stages: queries tell themselves apart

    def head_names(self) -> set[str]:
        return {n for n in self.shared_parameters() if n.startswith(MODULATE)}

    def boundary_names(self) -> set[str]:
        return {n for n in self.shared_parameters() if n.startswith("boundary.")}

    # -- before a stage ----------------------------------------------------------------------------------------

    def register(self, samples: Sequence[Sample], task: int) -> None:
        """Take in a stage before it is trained: feature statistics (first stage only) and new category names."""
        clips = [s for s in samples if s.meta["family"] != "vq"]
        if clips and not self.ready:
            seen: dict[int, torch.Tensor] = {}
            for s in clips:
                seen.setdefault(s.features["video"].data_ptr(), s.features["video"][s.features["valid"].bool()].float())
            rows = torch.cat(list(seen.values()))
            std = rows.std(0) if len(rows) > 1 else torch.ones(rows.shape[1])
            # one scale for all channels keeps the encoder's own geometry; per-channel noise would be blown up otherwise
            self.net.video_side.set_statistics(rows.mean(0), std.pow(2).mean().sqrt().expand_as(std))
            self.ready = True
        for s in clips:
            text = str(s.meta["text"])
            if s.meta["family"] == "mq" and text not in self.categories:
                self.categories[text] = len(self.categories)
                self.brought.append(task)
                self.texts.append((s.features["sentence"].float().cpu(), s.features["tokens"].float().cpu()))

    def open_slots(self, task: int, samples: Sequence[Sample], rng: torch.Generator) -> None:
        queries = [s.features["sentence"].float() for s in samples if "sentence" in s.features]
        if queries:
            self.net.prompts.open(torch.stack(queries), task, rng)

    def close_slots(self, task: int) -> None:
        self.net.prompts.close()

    def frozen_rows(self) -> dict[str, torch.Tensor]:
        prompts = self.net.prompts
        if prompts.closed == 0:
            return {}
        rows = torch.arange(len(prompts), device=self.device) < prompts.closed
        return {"prompts.prompts": rows, "prompts.keys": rows}

    def batches(self, samples: Sequence[Sample], size: int, rng: torch.Generator) -> list[list[int]]:
        """Steps of at most `size` queries, queries of one video together, videos in random order."""
        groups: dict[int, list[int]] = {}
        for i, s in enumerate(samples):
            owner = s.features["video"].data_ptr() if "video" in s.features else -1 - i
            groups.setdefault(owner, []).append(i)
        pieces = [g[k : k + size] for g in groups.values() for k in range(0, len(g), size)]
        out: list[list[int]] = []
        for p in torch.randperm(len(pieces), generator=rng).tolist():
            if out and len(out[-1]) + len(pieces[p]) <= size:
                out[-1] += pieces[p]
            else:
                out.append(list(pieces[p]))
        return out

    # -- losses ------------------------------------------------------------------------------------------------

    def collate(self, samples: Sequence[Sample]) -> tuple[list[int], Collated | None, list[int], VisualCollated | None]:
        """(rows of clip samples, their tensors, rows of visual samples, their tensors)."""
        clips = [i for i, s in enumerate(samples) if s.meta["family"] != "vq"]
        pictures = [i for i, s in enumerate(samples) if s.meta["family"] == "vq"]
        clip = collate([samples[i] for i in clips], self.config, self.categories, self.device) if clips else None
        picture = collate_visual([samples[i] for i in pictures], self.device) if pictures else None
        return clips, clip, pictures, picture

    def loss(self, batch: Batch, task: int) -> Result:
        terms, outputs, _ = self._forward(batch)
        return Result(terms, outputs)

    def outputs(self, batch: Batch, task: int) -> list[Output]:
        return self._forward(batch)[1]

    def _forward(self, batch: Batch) -> tuple[dict[str, torch.Tensor], list[Output], dict[str, torch.Tensor]]:
        clips, data, pictures, picture = batch.data
        b, device = len(batch.samples), self.device
        total = {"score": torch.zeros(b, device=device), "boundary": torch.zeros(b, device=device)}
        outputs: list[Output] = []
        kept: dict[str, torch.Tensor] = {}
        if data is not None:
            rows = torch.tensor(clips, device=device)
            pyramid, code, priors = self._see(data)
            score, reach, pull = torch.zeros_like(total["score"]), torch.zeros_like(total["score"]), code.pull
            if bool(data.nlq.any()):
                logits, distance = self.net.ground(pyramid, data.mask, code, priors)
                s, r = localise(logits, distance, data)
                score = score.index_add(0, rows, torch.where(data.nlq, s, 0.0))
                reach = reach.index_add(0, rows, torch.where(data.nlq, r, 0.0))
                outputs += declare("nlq", logits, distance, data.mask & data.nlq[:, None], rows, b)
            if bool(data.mq.any()):
                cells = self.net.anchors(pyramid, data.mask)
                distance = self.net.boundaries(pyramid, data.mask)
                logits = self._class_logits(cells)  # [B, P, C]
                if self.class_view is not None:
                    logits = self.class_view(logits, cells)
                own = data.category.clamp_min(0)[:, None, None].expand(-1, logits.shape[1], 1)
                prior = priors @ self.net.anchor.gain
                mine = logits.gather(-1, own)[..., 0] + prior
                s, r = localise(mine, distance, data)
                s = s + contrast(logits, data)
                score = score.index_add(0, rows, torch.where(data.mq, s, 0.0))
                reach = reach.index_add(0, rows, torch.where(data.mq, r, 0.0))
                full = logits.scatter_add(-1, own, prior[..., None])
                outputs += declare("mq", full, distance, data.mask & data.mq[:, None], rows, b)
                kept = {"logits": logits, "cells": cells}
            total["score"], total["boundary"] = score, reach
            if self.config.prompts in ("replace", "prepend") and len(self.net.prompts):
                total["keys"] = torch.zeros(b, device=device).index_add(0, rows, -KEY_PULL * pull)
        if picture is not None:
            rows = torch.tensor(pictures, device=device)
            s, r, declared = visual_result(self.net.visual, picture, rows, b)
            total["score"] = total["score"].index_add(0, rows, s)
            total["boundary"] = total["boundary"].index_add(0, rows, r)
            outputs += declared
        return total, outputs, kept

    def _see(self, data: Collated) -> tuple[torch.Tensor, Code, torch.Tensor]:
        """-> (pyramid [B, P, D] of each query's clip, code, priors at every level [B, P, K])."""
        from vilco_app.network.batch import spread
        from vilco_app.network.pyramid import pool_levels

        code = self.net.code(data.sentence, data.tokens, data.token_mask)
        parts, curves, order = [], [], []
        levels = self.config.levels
        for bucket, prior in zip(data.buckets, data.priors, strict=True):
            length = bucket.features.shape[1]
            if self.net.early is not None:
                rows = torch.tensor(bucket.rows, device=self.device)
                own, _ = self.net.video_early(
                    bucket.features[bucket.which], bucket.valid[bucket.which], code.rows(rows)
                )
            else:
                own = self.net.video(bucket.features, bucket.valid)[0][bucket.which]
            parts.append(spread(own, length, data.cells, levels))
            pooled = pool_levels(prior, bucket.valid[bucket.which], levels)
            curves.append(spread(pooled, length, data.cells, levels))
            order += bucket.rows
        back = torch.argsort(torch.tensor(order, device=self.device))
        return torch.cat(parts)[back], code, torch.cat(curves)[back]

    def _class_logits(self, cells: torch.Tensor) -> torch.Tensor:
        """Logits [B, P, C] of all categories met so far, without the zero-shot prior."""
        tokens, mask = pad_tokens([t for _, t in self.texts])
        sentence = torch.stack([s for s, _ in self.texts]).to(self.device)
        code = self.net.code(sentence, tokens.to(self.device), mask.to(self.device))
        return self.net.classify(cells, code.pooled)

    def class_task(self) -> list[int]:
        return list(self.brought)

    def class_rows(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Labelled cells of the batch's mq samples: (logits [n, C], unit anchor vectors [n, D], labels [n])."""
        view, self.class_view = self.class_view, None
        try:
            _, data, _, _ = batch.data
            kept = self._forward(batch)[2]
        finally:
            self.class_view = view
        if not kept or data is None:
            empty = torch.zeros(0, len(self.categories), device=self.device)
            return empty, torch.zeros(0, self.config.width, device=self.device), torch.zeros(0, dtype=torch.long)
        where = data.positive & data.mq[:, None] & (data.category >= 0)[:, None]
        labels = data.category[:, None].expand_as(where)[where]
        return kept["logits"][where], kept["cells"][where], labels

    def narration_loss(self, pairs: Sequence[Sample], negatives: Sequence[Sample]) -> torch.Tensor:
        """InfoNCE both ways between the pooled pyramid of each narrated stretch and its text (appendix C).

        The video is pooled over the narrated window only, on the two finest levels.
        """
        data = collate(pairs, self.config, {}, self.device)
        pyramid, code, _ = self._see(data)
        inside = inside_windows(data, pairs, self.config.levels)
        weight = (inside & data.mask)[..., None].to(pyramid.dtype)
        video = (pyramid * weight).sum(1) / weight.sum(1).clamp_min(1.0)
        text = self.net.told(code.pooled)
        further = None
        if negatives:
            tokens, mask = pad_tokens([s.features["tokens"] for s in negatives])
            sentence = torch.stack([s.features["sentence"].float() for s in negatives]).to(self.device)
            further = self.net.told(self.net.code(sentence, tokens.to(self.device), mask.to(self.device)).pooled)
        return info_nce(self.net.narrated(video), text, further)

    def ridge_rows(self, sample: Sample) -> tuple[torch.Tensor, torch.Tensor]:
        """(query [1, Dt], what it looks like [1, Dv]): the mean of the centred features inside the windows, unit length.

        A ridge regression from one to the other is a closed-form way from words to footage. No rows: a negative, a picture.
        """
        if sample.meta["family"] == "vq" or not len(sample.targets["windows"]):
            return torch.zeros(0, self.config.text_dim), torch.zeros(0, self.config.video_dim)
        look = self._inside_mean(sample) - self.net.video_side.mean.cpu()
        return sample.features["sentence"].float()[None], F.normalize(look, dim=-1)[None]

    # -- frozen summaries --------------------------------------------------------------------------------------

    def encode(self, sample: Sample) -> torch.Tensor:
        """Mean of the frozen video features inside the windows, beside the sentence vector, each unit length."""
        if sample.meta["family"] == "vq":
            return F.normalize(sample.features["query"].float().mean(0), dim=-1)
        sentence = F.normalize(sample.features["sentence"].float(), dim=-1)
        return torch.cat([F.normalize(self._inside_mean(sample), dim=-1), sentence])

    @staticmethod
    def _inside_mean(sample: Sample) -> torch.Tensor:
        """[Dv]: mean of the features inside the windows (of all of them, for a negative)."""
        video, windows = sample.features["video"].float(), sample.targets["windows"].float()
        middle = torch.arange(len(video)) + 0.5
        inside = torch.zeros(len(video), dtype=torch.bool)
        for start, end in windows.tolist():
            inside |= (middle >= start) & (middle <= end)
        return video[inside].mean(0) if bool(inside.any()) else video.mean(0)

    # -- state -------------------------------------------------------------------------------------------------

    def reset(self, seed: int) -> None:
        """Untrained weights again; feature statistics and category names stay."""
        mean, inverse = self.net.video_side.mean.clone(), self.net.video_side.inverse.clone()
        device = self.device
        fresh = ViLCo(NetworkConfig.from_json({**self.config.to_json(), "seed": seed})).to(device)
        self.net.prompts = fresh.prompts
        self.net.load_state_dict(fresh.state_dict())
        self.net.video_side.mean.copy_(mean)
        self.net.video_side.inverse.copy_(inverse)

    def state_dict(self) -> dict[str, Any]:
        prompts = self.net.prompts
        return {
            "module": {k: v.detach().clone() for k, v in self.net.state_dict().items()},
            "categories": list(self.categories), "brought": list(self.brought),
            "texts": [{"sentence": s, "tokens": t} for s, t in self.texts], "ready": self.ready,
            "closed": prompts.closed, "stage_of": list(prompts.stage_of),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        prompts = self.net.prompts
        rows = len(state["module"]["prompts.keys"])
        if rows < len(prompts):  # a state from before slots were opened
            prompts.keys = nn.Parameter(prompts.keys.data[:rows].clone(), requires_grad=prompts.keys.requires_grad)
            prompts.prompts = nn.Parameter(prompts.prompts.data[:rows].clone())
        prompts.grow(rows)
        module = dict(state["module"])
        if "visual.cell" not in module:  # saved when the picture head was another one, which no answer ever used
            module = {k: v for k, v in module.items() if not k.startswith("visual.")}
            module |= {k: v for k, v in self.net.state_dict().items() if k.startswith("visual.")}
        self.net.load_state_dict(module)
        self.categories = {text: i for i, text in enumerate(state["categories"])}
        self.brought = [int(t) for t in state["brought"]]
        self.texts = [(t["sentence"], t["tokens"]) for t in state["texts"]]
        self.ready = bool(state["ready"])
        prompts.closed, prompts.stage_of = int(state["closed"]), [int(s) for s in state["stage_of"]]
