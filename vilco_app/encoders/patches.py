"""What profiles over a square-input patch encoder share: one whole vector and a grid of cells per frame.

The whole frame is squeezed into the square (nothing at the sides is cut off, unlike a centre crop), inside the network,
so that frames come in at any aspect.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import numpy as np

from vilco_app.encoders.base import Blocks, Features, ImageVectors
from vilco_app.encoders.cells import centre_pool, cluster_cells, pack_regions, unit
from vilco_app.encoders.runtime import Network


class PatchProfile:
    """The picture half of a profile. The network: frames [B, H, W, 3] uint8 -> (whole [B, D], cells [B, h, w, D]).

    Encoders without a patch grid give cells [B, 1, 1, D]; the one region is then the whole frame.
    """

    window = 0.0
    frames = 1

    def __init__(self, vision: Network, dense: Callable[[], Network], dim: int, side: int) -> None:
        self._vision = vision
        self._open_dense = dense
        self._dense: Network | None = None
        self._lock = Lock()
        self.short_side = side
        self.dim = self.global_dim = self.region_dim = dim
        self.blocks = Blocks(("whole",), (dim,), (1.0,))

    def encode(self, frames: np.ndarray) -> Features:
        """frames [B, H, W, 3] uint8 -> Features with unit globals."""
        whole, cells = self._vision(np.ascontiguousarray(frames))
        vectors, boxes, counts = pack_regions(*cluster_cells(cells))
        return Features(unit(whole), vectors, boxes, counts)

    def clips(self, clips: np.ndarray) -> np.ndarray:
        """VideoEncoder door: clips [B, 1, H, W, 3] -> [B, D]."""
        return unit(self._vision(np.ascontiguousarray(clips[:, 0]))[0])

    def regions(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """RegionEncoder door: frames [B, H, W, 3] -> vectors [M, D], boxes [M, 4], counts [B]."""
        return pack_regions(*cluster_cells(self._vision(np.ascontiguousarray(frames))[1]))

    def dense(self, frames: np.ndarray) -> np.ndarray:
        """frames [B, H, W, 3] uint8 of any size -> cells [B, h, w, D]."""
        with self._lock:
            if self._dense is None:
                self._dense = self._open_dense()
        return self._dense(np.ascontiguousarray(frames))[1]

    def rest(self) -> None:
        """Give back what encoding a batch took; the next batch takes it again."""
        for network in (self._vision, self._dense):
            if network is not None:
                network.rest()

    def image(self, image: np.ndarray) -> ImageVectors:
        """image [H, W, 3] uint8 -> its vector as one frame; row 0: its cells around the middle, row 1: the whole vector."""
        whole, cells = self._vision(np.ascontiguousarray(image)[None])
        whole = unit(whole)
        return ImageVectors(whole[0], np.stack([unit(centre_pool(cells[0])), whole[0]]))
