"""FAISS over prompt keys: a versioned cache of the keys in the checkpoint, used at answer time only.

The keys in the checkpoint are the truth; training computes scores by matmul (gradients). The index is rebuilt whole at
stage end, at load and at promotion (0.2 ms at a thousand keys) and swapped in one assignment, so readers never block.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from vilco_app.values import VilcoError


@dataclass(frozen=True)
class KeyVersion:
    """Which keys an index holds: count, dimension, and a digest of their bytes."""

    count: int
    dim: int
    digest: str


def version_of(keys: np.ndarray) -> KeyVersion:
    keys = np.ascontiguousarray(keys, dtype=np.float32)
    return KeyVersion(keys.shape[0], keys.shape[1], hashlib.blake2b(keys.tobytes(), digest_size=8).hexdigest())


class KeyIndex:
    """IndexFlatIP over unit keys. `search` refuses keys of another version."""

    def __init__(self, keys: np.ndarray) -> None:
        self.refresh(keys)

    def refresh(self, keys: np.ndarray) -> KeyVersion:
        """Rebuild from keys [m, D]; check it against the matmul; swap."""
        import faiss

        version = version_of(keys)
        unit = _unit(keys)
        index = faiss.IndexFlatIP(max(1, version.dim))
        if version.count:
            index.add(unit)
        self._check(index, unit)
        self._state: tuple[KeyVersion, Any] = (version, index)
        return version

    @property
    def version(self) -> KeyVersion:
        return self._state[0]

    def search(self, queries: np.ndarray, top: int, version: KeyVersion | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(cosines [Q, N], slots [Q, N]) of the nearest keys. Raises VilcoError when `version` is not the index's."""
        mine, index = self._state
        if version is not None and version != mine:
            raise VilcoError(
                "stale-keys",
                f"prompt keys {version.digest} asked of an index of {mine.digest}.",
                "Load the snapshot again.",
            )
        top = min(top, mine.count)
        if top == 0:
            empty = np.zeros((len(queries), 0))
            return empty.astype(np.float32), empty.astype(np.int64)
        scores, slots = index.search(_unit(queries), top)
        return scores, slots

    @staticmethod
    def _check(index: Any, unit: np.ndarray, probes: int = 32, top: int = 4) -> None:
        """FAISS must agree with the matmul on 32 probe queries (scores to 1e-4)."""
        if len(unit) == 0:
            return
        rng = np.random.default_rng(0)
        q = _unit(rng.standard_normal((probes, unit.shape[1])))
        top = min(top, len(unit))
        scores, slots = index.search(q, top)
        exact = q @ unit.T
        want = -np.sort(-exact, axis=1)[:, :top]
        got = np.take_along_axis(exact, slots, axis=1)
        if not (np.allclose(scores, want, atol=1e-4) and np.allclose(got, want, atol=1e-4)):
            raise VilcoError(
                "key-index", "the FAISS index of the prompt keys disagrees with the matmul.", "Reinstall faiss-cpu."
            )


def _unit(x: np.ndarray) -> np.ndarray:
    x = np.ascontiguousarray(x, dtype=np.float32)
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
