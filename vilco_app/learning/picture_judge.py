"""The trained picture head as the finder asks it: correspondence maps of frames -> verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import torch

from vilco_app.answering.matching import Verdict
from vilco_app.network.visual import SURE
from vilco_app.network.visual_maps import EVEN


class HeadJudge:
    """Implements answering.matching.PictureJudge with a learner's picture head.

    A frame's logit is brought to the scale of the cosines, so that an untrained head says what the zero-shot match says. frames, boxes: how
    much it counts (PictureJudge).
    """

    def __init__(self, learner: Any, frames: float = 0.0, boxes: float = 0.0) -> None:
        self.frames, self.boxes = frames, boxes
        self.head, self.device = learner.net.visual, learner.device

    def at(self, frames: float, boxes: float) -> HeadJudge:
        """The same head, counting so much."""
        other = copy(self)
        other.frames, other.boxes = frames, boxes
        return other

    def judge(self, maps: Sequence[np.ndarray]) -> list[Verdict]:
        out: list[Verdict | None] = [None] * len(maps)
        shapes = sorted({m.shape for m in maps})
        with torch.inference_mode():
            for shape in shapes:  # recordings of different shape may be asked together
                rows = [i for i, m in enumerate(maps) if m.shape == shape]
                cells, shown = self.head(torch.from_numpy(np.stack([maps[i] for i in rows])).to(self.device))
                inside = torch.sigmoid(cells).cpu().numpy() - 0.5
                scores = EVEN + shown.cpu().numpy() / SURE
                for i, s, c in zip(rows, scores, inside, strict=True):
                    out[i] = Verdict(float(s), c)
        return [v for v in out if v is not None]
