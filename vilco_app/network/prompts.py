"""Episodic prompt memory: (key, prompt) pairs chosen by the query's own frozen embedding.

ViLCo-Bench, section 4 ("long-term replay buffer"): m prompts P_j [L, D] with keys K_j; the top-N by similarity to the query
stand in for the query. Modes:

- replace: the paper's. The N chosen prompts replace the query tokens.
- prepend: as L2P (Wang et al., CVPR 2022) and the reference code, with masks that keep both prompts and query visible.
- soft: ours (continual.md 5.3). Keys are k-means centres of each stage's query embeddings and never move afterwards, a
  query mixes all slots by softmax(cos / temperature), slots of earlier stages are frozen, query tokens stay.
- shared, random, off: controls: one prompt for everybody; random keys and prompts that are never trained; nothing.

Selection is the same in training and at answer time, per query, with no vote over the batch. The query that selects is the
profile's frozen sentence vector, so old keys cannot go stale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from vilco_app.network.config import NetworkConfig


class PromptMemory(nn.Module):
    """forward(sentence [B, D], tokens [B, S, D], mask [B, S]) -> (tokens [B, S', D], mask [B, S'], pull [B]).

    pull: cosine to the chosen keys; the learner adds -0.1 * pull to the loss of the fixed pools (L2P's key loss), from the
    first stage on, so that no key stays untrained.
    """

    def __init__(self, config: NetworkConfig, rng: torch.Generator) -> None:
        super().__init__()
        self.config, self.mode = config, config.prompts
        rows = {"soft": 0, "off": 0, "shared": 1}.get(self.mode, config.pool)
        d, length = config.text_dim, config.prompt_length
        trained = self.mode != "random"
        keys = torch.randn(rows, d, generator=rng) / d**0.5
        prompts = torch.randn(rows, length, d, generator=rng) * 0.02
        self.keys = nn.Parameter(keys, requires_grad=trained and self.mode not in ("soft", "shared"))
        self.prompts = nn.Parameter(prompts, requires_grad=trained)
        self.closed = 0  # rows of closed slots: no step may move them
        self.stage_of: list[int] = []  # which stage opened each row (soft mode), for the routing report

    def __len__(self) -> int:
        return int(self.keys.shape[0])

    def grow(self, rows: int) -> None:
        """Make room for `rows` rows in all (loading a snapshot)."""
        more = rows - len(self)
        if more > 0:
            d, length = self.config.text_dim, self.config.prompt_length
            self._extend(torch.zeros(more, d), torch.zeros(more, length, d))

    def open(self, queries: torch.Tensor, stage: int, rng: torch.Generator) -> None:
        """Soft mode: new slots for a stage, keys at the k-means centres of its query embeddings [n, D]."""
        if self.mode != "soft" or len(queries) == 0:
            return
        queries = F.normalize(queries.detach().float().cpu(), dim=-1)
        centres = spherical_kmeans(queries, min(self.config.stage_slots, len(torch.unique(queries, dim=0))), rng)
        shape = (len(centres), self.config.prompt_length, self.config.text_dim)
        # small start: nothing to the question's vector (`bent`); as tokens they are normalised and so as loud as words
        self._extend(centres, torch.randn(shape, generator=rng) * 0.02)
        self.stage_of += [stage] * len(centres)

    def close(self) -> None:
        """Freeze all slots opened so far (soft mode)."""
        if self.mode == "soft":
            self.closed = len(self)

    def _extend(self, keys: torch.Tensor, prompts: torch.Tensor) -> None:
        where = self.keys.device
        self.keys = nn.Parameter(torch.cat([self.keys.data, keys.to(where)]), requires_grad=self.keys.requires_grad)
        self.prompts = nn.Parameter(torch.cat([self.prompts.data, prompts.to(where)]))

    def similarity(self, sentence: torch.Tensor) -> torch.Tensor:
        """Cosine of query embeddings [B, D] with every key -> [B, m]."""
        return F.normalize(sentence, dim=-1) @ F.normalize(self.keys, dim=-1).T

    def weights(self, sentence: torch.Tensor) -> torch.Tensor:
        """What each slot contributes to each query [B, m] (rows sum to 1): the usage the memory panel shows."""
        score = self.similarity(sentence)
        if self.mode == "soft":
            return torch.softmax(score / self.config.temperature, dim=-1)
        if self.mode == "shared":
            return torch.ones_like(score)
        top = score.topk(min(self.config.top_n, len(self)), dim=-1).indices
        return torch.zeros_like(score).scatter(-1, top, 1.0 / top.shape[-1])

    def forward(
        self, sentence: torch.Tensor, tokens: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        b = len(sentence)
        if len(self) == 0:
            return tokens, mask, sentence.new_zeros(b)
        if self.mode in ("soft", "shared"):
            chosen = torch.einsum("bm,mld->bld", self.weights(sentence), self.prompts)  # [B, L, D]
            if self.config.prompt_bend:  # a prompt is a correction of the question: untrained, it repeats the question
                chosen = chosen + sentence[:, None]
            pull = sentence.new_zeros(b)
        else:
            score, top = self.similarity(sentence).topk(min(self.config.top_n, len(self)), dim=-1)
            chosen = self.prompts[top].flatten(1, 2)  # [B, N * L, D]
            pull = score.mean(-1) if self.mode != "random" else sentence.new_zeros(b)
        ones = torch.ones(chosen.shape[:2], dtype=torch.bool, device=mask.device)
        if self.mode == "replace":
            return chosen, ones, pull
        return torch.cat([chosen, tokens], dim=1), torch.cat([ones, mask], dim=1), pull

    def bent(self, sentence: torch.Tensor) -> torch.Tensor:
        """The question's own vector [B, D] plus `prompt_bend` times the mean of its mixed prompts (soft and shared modes).

        As tokens, prompts pass a layer norm and a mean beside a sentence vector many times as long: what they can say is
        bounded, whatever is learnt. This way is not.
        """
        if not self.config.prompt_bend or self.mode not in ("soft", "shared") or len(self) == 0:
            return sentence
        mean = torch.einsum("bm,md->bd", self.weights(sentence), self.prompts.mean(1))
        return sentence + self.config.prompt_bend * mean

    def routing(self, sentence: torch.Tensor, stages: list[int]) -> tuple[float, float]:
        """(usage entropy in nats over slots, share of queries whose heaviest slot belongs to their own stage)."""
        if len(self) == 0 or len(sentence) == 0:
            return 0.0, 0.0
        w = self.weights(sentence)
        usage = w.mean(0)
        entropy = float(-(usage * usage.clamp_min(1e-12).log()).sum())
        if not self.stage_of:
            return entropy, 0.0
        best = w.argmax(-1).tolist()
        return entropy, sum(self.stage_of[k] == s for k, s in zip(best, stages, strict=True)) / len(stages)


def spherical_kmeans(x: torch.Tensor, k: int, rng: torch.Generator, steps: int = 20) -> torch.Tensor:
    """Unit centres [k, D] of unit rows x [n, D]: k-means++ start, cosine assignment. Deterministic given rng."""
    centres = x[torch.randint(len(x), (1,), generator=rng)]
    while len(centres) < k:
        far = (1 - (x @ centres.T).max(-1).values).clamp_min(0)
        if float(far.sum()) <= 1e-9:
            break
        centres = torch.cat([centres, x[torch.multinomial(far, 1, generator=rng)]])
    for _ in range(steps):
        owner = (x @ centres.T).argmax(-1)
        sums = torch.zeros_like(centres).index_add_(0, owner, x)
        empty = sums.norm(dim=-1) < 1e-9
        centres = torch.where(empty[:, None], centres, F.normalize(sums, dim=-1))
    return centres
