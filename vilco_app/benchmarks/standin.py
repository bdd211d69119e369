"""A profile that costs nothing, for measuring what is not encoding."""

from __future__ import annotations

import numpy as np

from vilco_app.encoders.base import Blocks, Features, ImageVectors, TextVectors


class StandIn:
    """Mean colours as vectors. Implements encoders.base.Profile."""

    def __init__(self) -> None:
        self.id, self.aligned, self.short_side, self.window = "standin@1", True, 32, 0.0
        self.global_dim = self.region_dim = self.text_dim = 3
        self.blocks = Blocks(("colour",), (3,), (1.0,))

    def encode(self, frames: np.ndarray) -> Features:
        means = frames.reshape(len(frames), -1, 3).mean(axis=1).astype(np.float32) / 255
        whole = np.tile(np.array([[0, 0, 1, 1]], np.float32), (len(frames), 1))
        return Features(means, means, whole, np.ones(len(frames), np.int64))

    def text(self, text: str) -> TextVectors:
        vector = np.ones(3, np.float32) / np.sqrt(3, dtype=np.float32)
        return TextVectors(vector, vector[None], vector, vector)

    def image(self, image: np.ndarray) -> ImageVectors:
        mean = image.reshape(-1, 3).mean(axis=0).astype(np.float32) / 255
        return ImageVectors(mean, mean[None])

    def dense(self, frames: np.ndarray) -> np.ndarray:
        return frames[:, ::16, ::16].astype(np.float32) / 255
