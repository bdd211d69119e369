"""The network as a grounder: the same protocol as the zero-shot one, so that answers can fuse the two."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vilco_app.answering.grounding import Grounded
from vilco_app.answering.windows import Windows
from vilco_app.learning.samples import Clip, clip_of
from vilco_app.network.batch import padded
from vilco_app.network.decode import candidates, soft_nms
from vilco_app.network.grid import points
from vilco_app.network.keys import KeyIndex
from vilco_app.network.pyramid import pool_levels
from vilco_app.values import Kind, Source

if TYPE_CHECKING:
    from vilco_app.answering.curve import Passage, Scale
    from vilco_app.encoders.base import Blocks, TextVectors
    from vilco_app.network.learner import ViLCoLearner

PIECE = 2048  # cells the video side sees at once
MARGIN = 128  # cells of a neighbouring piece seen as context on each side (64 s: beyond what the finest levels reach)
KEPT_BYTES = 256 * 2**20  # of pyramids kept: about 200 recordings of 10 minutes


@dataclass
class Piece:
    """The video side of cells first:last (core: the part whose windows count). pyramid [1, P, D], mask [1, P], cells [1, P, D]."""

    first: int
    last: int
    core: tuple[int, int]
    pyramid: torch.Tensor
    mask: torch.Tensor
    anchors: torch.Tensor | None = None
    distance: torch.Tensor | None = None


class NetworkGrounder:
    """Windows from a snapshot's network. The video side is computed once per recording and kept (thread-safe).

    keys: the FAISS cache of the prompt keys; which slots a question uses is looked up there at answer time.
    """

    source: Source = "vilco"

    def __init__(self, learner: ViLCoLearner, blocks: Blocks) -> None:
        self.learner, self.blocks = learner, blocks
        learner.net.eval()
        self.keys = KeyIndex(learner.net.prompts.keys.detach().cpu().numpy())
        self._pieces: OrderedDict[tuple[Any, ...], Piece] = OrderedDict()
        self._clips: OrderedDict[tuple[Any, ...], Clip] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def propose(
        self, query: TextVectors, kind: Kind, passages: Sequence[Passage], scale: Scale | None = None
    ) -> Grounded:
        """Grounded curves (logits, standardised over the footage) and windows (scores: probabilities in (0, 1))."""
        with _one_thread():
            return self._propose(query, kind, passages)

    def _propose(self, query: TextVectors, kind: Kind, passages: Sequence[Passage]) -> Grounded:
        code = self._code(query)
        raw, windows = [], []
        for index, passage in enumerate(passages):
            curve, found, scores = self._passage(query, code, kind, passage)
            raw.append(curve)
            windows.append(Windows(found[:, 0], found[:, 1], scores, np.full(len(scores), index)))
        joined = np.concatenate(raw) if raw else np.zeros(1)
        mean, deviation = float(joined.mean()), float(joined.std()) + 1e-6
        curves = tuple(((c - mean) / deviation).astype(np.float32) for c in raw)
        return Grounded(curves, Windows.concatenate(windows), self.source)

    def slots(self, query: TextVectors, top: int = 4) -> list[tuple[int, float]]:
        """(slot, cosine) of the prompt keys nearest to a question: the memory panel. Slots are 0, 1, ... as opened."""
        scores, found = self.keys.search(np.asarray(query.sentence)[None], top)
        return list(zip(found[0].tolist(), scores[0].tolist(), strict=True))

    @torch.inference_mode()
    def _code(self, query: TextVectors) -> Any:
        device = self.learner.device
        sentence = torch.as_tensor(np.asarray(query.sentence, dtype=np.float32), device=device)[None]
        tokens = torch.as_tensor(np.asarray(query.tokens, dtype=np.float32), device=device)[None]
        return self.learner.net.code(sentence, tokens, torch.ones(tokens.shape[:2], dtype=torch.bool, device=device))

    @torch.inference_mode()
    def _passage(
        self, query: TextVectors, code: Any, kind: Kind, passage: Passage
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """-> (curve [n] logits at the passage's samples, windows [m, 2] seconds inside the passage, scores [m])."""
        clip = self._clip(passage)
        module, config = self.learner.net, self.learner.config
        low, high = (int(c) for c in clip.grid.cells(np.array([passage.start, passage.end])).round())
        low, high = max(0, low), min(clip.grid.length, max(high, low + 1))
        logit = np.full(high - low, -20.0, dtype=np.float32)
        windows, scores = [np.zeros((0, 2))], [np.zeros(0)]
        for piece in self._cover(clip, low, high, None if module.early is None else code):
            length = piece.mask.shape[1]
            cells = round(length / (2 - 0.5 ** (config.levels - 1)))
            prior = np.zeros((cells, len(self.blocks.stops)), dtype=np.float32)
            prior[: piece.last - piece.first] = clip.priors(query, self.blocks, piece.first, piece.last)
            curve = torch.from_numpy(prior).to(piece.pyramid.device)[None]
            curve = pool_levels(curve, piece.mask[:, :cells], config.levels)
            if self.learner.ridge_view is not None:
                out, distance = self._ridge(query, clip, piece, cells)
            elif kind == "moment":
                if piece.anchors is None:
                    piece.anchors = module.anchors(piece.pyramid, piece.mask)
                    piece.distance = module.boundaries(piece.pyramid, piece.mask)
                assert piece.distance is not None
                out = module.classify(piece.anchors, code.pooled)[..., 0] + curve @ module.anchor.gain
                distance = piece.distance
            else:
                out, distance = module.ground(piece.pyramid, piece.mask, code, curve)
            dense = out.masked_fill(~piece.mask, -20.0)[0].float().cpu().numpy()
            u, step = points(cells, config.levels)
            found, score = candidates(
                1 / (1 + np.exp(-dense.astype(np.float64))), distance[0].float().cpu().numpy(), u, step
            )
            middle = found.mean(axis=1) + piece.first
            mine = (middle >= piece.core[0]) & (middle < piece.core[1])
            windows.append(found[mine] + piece.first)
            scores.append(score[mine])
            a, b = max(piece.core[0], low), min(piece.core[1], high)
            # the curve: the best of the four finest levels (up to 4 s a cell)
            best = np.full(cells, -20.0, dtype=np.float32)
            offset = 0
            for level in range(min(4, config.levels)):
                n = cells // 2**level
                best = np.maximum(best, np.repeat(dense[offset : offset + n], 2**level))
                offset += n
            logit[a - low : b - low] = best[a - piece.first : b - piece.first]
        seconds = clip.grid.seconds(np.concatenate(windows)).clip(passage.start, passage.end)
        score = np.concatenate(scores)
        wide = seconds[:, 1] - seconds[:, 0] > 0.05
        kept, decayed = soft_nms(seconds[wide], score[wide])
        at = clip.grid.cells(passage.times).astype(int).clip(low, high - 1) - low
        return logit[at], kept, decayed

    def _ridge(self, query: TextVectors, clip: Clip, piece: Piece, cells: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Closed form: cosine of each cell with the look the question is regressed to, at every level [1, P]; a window is
        as long as the cell that stands out (distances of one cell to either side)."""
        learner = self.learner
        assert learner.ridge_view is not None
        sentence = torch.as_tensor(np.asarray(query.sentence, dtype=np.float32))[None]
        look = torch.nn.functional.normalize(learner.ridge_view(sentence)[0].float(), dim=-1)
        x = torch.zeros(cells, learner.config.video_dim)
        x[: piece.last - piece.first] = (
            clip.features(piece.first, piece.last).float() - learner.net.video_side.mean.cpu()
        )
        cosine = (torch.nn.functional.normalize(x, dim=-1) @ look)[None, :, None].to(piece.mask.device)
        pooled = pool_levels(cosine, piece.mask[:, :cells], learner.config.levels)[..., 0]
        return 10.0 * pooled - 5.0, torch.ones(*pooled.shape, 2, device=pooled.device)

    def _clip(self, passage: Passage) -> Clip:
        key = (passage.stored.video.id, len(passage.stored), passage.stored.forgotten)
        with self._lock:
            if key in self._clips:
                self._clips.move_to_end(key)
                return self._clips[key]
        clip = clip_of(passage.stored, self.blocks, self.learner.config.stride)
        with self._lock:
            self._clips[key] = clip
            while len(self._clips) > 64:
                self._clips.popitem(last=False)
        return clip

    def _cover(self, clip: Clip, low: int, high: int, code: Any) -> list[Piece]:
        """Pieces whose cores tile cells low:high. Aligned to the recording, so that passages of it share them."""
        total = clip.grid.length
        if total <= PIECE:
            return [self._piece(clip, 0, total, (0, total), code)]
        hop = PIECE - 2 * MARGIN
        out = []
        for k in range(low // hop, (high - 1) // hop + 1):
            core = (k * hop, min((k + 1) * hop, total))
            out.append(self._piece(clip, max(0, core[0] - MARGIN), min(total, core[1] + MARGIN), core, code))
        return out

    def _piece(self, clip: Clip, first: int, last: int, core: tuple[int, int], code: Any) -> Piece:
        key = (clip.stored.video.id, len(clip.stored), clip.stored.forgotten, first, last)
        if code is None:
            with self._lock:
                if key in self._pieces:
                    self._pieces.move_to_end(key)
                    return self._pieces[key]
        module, device = self.learner.net, self.learner.device
        size = padded(last - first, self.learner.config.multiple)
        features = torch.zeros(1, size, self.learner.config.video_dim, device=device)
        features[0, : last - first] = clip.features(first, last).to(device).float()
        valid = torch.zeros(1, size, dtype=torch.bool, device=device)
        valid[0, : last - first] = torch.from_numpy(clip.valid[first:last].copy())
        with torch.inference_mode():
            if code is not None:
                pyramid, mask = module.video_early(features, valid, code)
                return Piece(first, last, core, pyramid, mask)
            pyramid, mask = module.video(features, valid)
        piece = Piece(first, last, core, pyramid, mask)
        with self._lock:
            self._pieces[key] = piece
            self._bytes += pyramid.nbytes
            while self._bytes > KEPT_BYTES and len(self._pieces) > 1:
                self._bytes -= self._pieces.popitem(last=False)[1].pyramid.nbytes
        return piece


@contextmanager
def _one_thread() -> Iterator[None]:
    """One question is too little work to share: a second thread doubles its time and waits for whoever holds the core
    (10 minutes of footage on 2 cores: median 24 against 12 ms, p95 123 against 12)."""
    before = torch.get_num_threads()
    if before > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if before > 1:
            torch.set_num_threads(before)
