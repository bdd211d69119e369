"""Profile "precomputed": features somebody computed elsewhere (EgoVLP, InternVideo, CLIP ...), one file per recording.

A folder with `features.json` {"schema": 1, "name": "egovlpv2", "stride": 0.533, "window": 1.067, "dim": 4096} and files named by
the recording's file stem or by the first 12 hex digits of its content hash: .npy, .npz, .safetensors or .pt, [N, dim].
Row k covers [k * stride, k * stride + window] seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from vilco_app.encoders.base import Blocks, Features, ImageVectors, TextVectors
from vilco_app.encoders.embedded import embedded_folder, open_minilm
from vilco_app.encoders.runtime import RuntimeOptions
from vilco_app.values import VilcoError

SUFFIXES = (".npy", ".npz", ".safetensors", ".pt")


@dataclass(frozen=True)
class FeatureTrack:
    """The rows of one recording: times [N] (middle of the window, s), durations [N] (s), vectors [N, dim] float32."""

    times: np.ndarray
    durations: np.ndarray
    vectors: np.ndarray


class PrecomputedProfile:
    """See `vilco_app.encoders.base.Profile`. name: `precomputed:FOLDER`. Not aligned; frames and pictures cannot be encoded.

    `track(recording)` gives the stored rows. Raises VilcoError naming the file and the field that is wrong.
    """

    aligned = False
    short_side = 256  # frames are decoded only for thumbnails
    region_dim = 0

    def __init__(
        self,
        name: str,
        models: Path,
        runtime: RuntimeOptions | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> None:
        self.folder = Path(name.partition(":")[2]).expanduser()
        settings = _settings(self.folder)
        self.name, self.stride, self.window = settings["name"], settings["stride"], settings["window"]
        self.global_dim = self.dim = settings["dim"]
        self.id = f"precomputed-{re.sub(r'[^a-z0-9]+', '-', self.name.lower()).strip('-')}@1"
        self.version = "1"
        self.preprocess = f"stride{self.stride:g}-window{self.window:g}"
        self.blocks = Blocks(("whole",), (self.dim,), (1.0,))
        self.text_encoder = open_minilm(embedded_folder(models, progress), runtime or RuntimeOptions())
        self.text_dim = self.text_encoder.dim
        self.text = lru_cache(maxsize=256)(self._text)

    def track(self, *keys: str | Path) -> FeatureTrack:
        """The rows of the recording known by any of `keys`: its id, its path or its file stem.

        Raises VilcoError("missing-features") when no file is there, VilcoError("bad-features") when one is not usable.
        """
        stems = [Path(str(key)).stem if Path(str(key)).suffix else str(key) for key in keys]
        for stem in stems:
            for suffix in SUFFIXES:
                path = self.folder / f"{stem}{suffix}"
                if path.is_file():
                    return self._track(path)
        raise VilcoError(
            "missing-features", f"{self.folder} holds no features of {' or '.join(stems)}.",
            f"Put one of {', '.join(stems[0] + s for s in SUFFIXES)} there, or use another profile.",
        )  # fmt: skip

    def _track(self, path: Path) -> FeatureTrack:
        vectors = np.asarray(read_features(path), dtype=np.float32)
        if vectors.ndim != 2 or vectors.shape[1] != self.dim:
            raise _bad(path, f"its shape is {list(vectors.shape)}, not [N, {self.dim}]")
        if not np.isfinite(vectors).all():
            raise _bad(path, "it holds values that are not numbers")
        k = np.arange(len(vectors), dtype=np.float64)
        return FeatureTrack(k * self.stride + self.window / 2, np.full(len(k), self.stride), vectors)

    def encode(self, frames: np.ndarray) -> Features:
        """Always raises VilcoError("no-encoder"): this profile has features, not an encoder."""
        raise self._no_encoder()

    def image(self, image: np.ndarray) -> ImageVectors:
        raise self._no_encoder()

    def dense(self, frames: np.ndarray) -> np.ndarray:
        raise self._no_encoder()

    def _no_encoder(self) -> VilcoError:
        return VilcoError(
            "no-encoder", f"the profile {self.id} reads features from files and cannot encode pictures.",
            "Use the embedded, clip or dino profile for picture questions.",
        )  # fmt: skip

    def _text(self, text: str) -> TextVectors:
        return TextVectors(self.text_encoder.sentences([text])[0], self.text_encoder.tokens(text))


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "features.json"
    try:
        data = json.loads(path.read_text())
        out: dict[str, Any] = {
            "name": str(data["name"]),
            "stride": float(data["stride"]),
            "window": float(data["window"]),
            "dim": int(data["dim"]),
        }
    except OSError:
        raise VilcoError(
            "missing-features", f"{path} is not there.",
            'Write it: {"schema": 1, "name": ..., "stride": seconds, "window": seconds, "dim": width}.',
        ) from None  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise _bad(path, f"{error!r}") from None
    for field in ("stride", "window"):
        if not out[field] > 0:
            raise _bad(path, f"{field} is {out[field]!r}, not a positive number of seconds")
    return out


def read_features(path: Path) -> np.ndarray:
    """One array out of a .npy, .npz, .safetensors or .pt file: the one named "features", else the only one.

    Nothing is unpickled. Raises VilcoError("bad-features").
    """
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as data:
                return _only(path, dict(data))
        if path.suffix == ".safetensors":
            from safetensors.numpy import load_file

            return _only(path, load_file(str(path)))
        import torch

        loaded = torch.load(path, map_location="cpu", weights_only=True)
        if isinstance(loaded, dict):
            loaded = _only(path, loaded)
        return loaded.float().numpy()
    except VilcoError:
        raise
    except Exception as error:  # each reader has its own errors for a damaged or foreign file
        raise _bad(path, str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__) from None


def _only(path: Path, arrays: dict[str, Any]) -> Any:
    if "features" in arrays:
        return arrays["features"]
    if len(arrays) != 1:
        raise _bad(path, f"it holds {', '.join(sorted(arrays))} and none is named features")
    return next(iter(arrays.values()))


def _bad(path: Path, reason: str) -> VilcoError:
    return VilcoError("bad-features", f"{path}: {reason}.", "Write the file again as one array [N, dim] of numbers.")
