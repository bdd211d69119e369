"""Profile "egovlp": a local EgoVLP or EgoVLPv2 checkpoint, video clips and text in one space.

The published checkpoints could not be had where this was written: the code was held against the published definitions and
tested on small random checkpoints of their form. A checkpoint of any other form is refused, tensor by tensor.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from vilco_app.encoders.base import Blocks, Features, ImageVectors, TextVectors
from vilco_app.encoders.cells import unit
from vilco_app.encoders.hub_cache import cached_file, digest, missing
from vilco_app.encoders.runtime import Network, RuntimeOptions, convert, open_network
from vilco_app.encoders.weights import TOKENIZER, built_folder
from vilco_app.values import VilcoError

VERSION = "1"  # raise whenever stored vectors change
RECIPE = "1"  # raise whenever the converted files would differ
LONGEST = 77  # tokens; narrations and questions are short
RATE = 2.0  # samples per second the window is stated for


class EgoVlpProfile:
    """See `vilco_app.encoders.base.Profile`. name: `egovlp:CHECKPOINT`.

    A sample's clip is its frame with its neighbours in the same batch (the checkpoint's number of frames), so frames must
    come in time order. Raises VilcoError when the checkpoint is absent, unreadable, or not of that form.
    """

    aligned = True

    def __init__(
        self,
        name: str,
        models: Path,
        runtime: RuntimeOptions | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> None:
        from tokenizers import Tokenizer

        runtime = runtime or RuntimeOptions()
        path = Path(name.partition(":")[2]).expanduser()
        if not path.is_file():
            raise missing(
                f"an EgoVLP checkpoint ({path if str(path) != '.' else 'no path given'})",
                "Get it from its authors and name it: egovlp:/path/to/checkpoint.pth",
            )
        target = models / "encoders" / f"egovlp-{digest(path)}@{VERSION}"

        def build(folder: Path) -> None:
            if progress:
                progress(0, 1, f"converting {path.name}, once")
            _build(path, folder)

        folder = built_folder(target, RECIPE, build)
        settings = json.loads((folder / "settings.json").read_text())

        def module(kind: str) -> Callable[[], Any]:
            return lambda: _modules(path)[kind]

        self._video: Network = open_network(folder, "video", runtime, module("video"))
        self._text_network = open_network(folder, "text", runtime, module("text"), "f32")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(LONGEST)
        self._tokenizer.no_padding()
        self.id = target.name
        self.name, self.version = target.name.partition("@")[0], VERSION
        self.frames, self.short_side = int(settings["frames"]), int(settings["side"])
        self.preprocess = f"rgb-squeezed-{self.short_side}x{self.frames}"
        self.window = self.frames / RATE
        self.dim = self.global_dim = self.region_dim = self.text_dim = int(settings["dim"])
        self.blocks = Blocks(("clip",), (self.dim,), (1.0,))
        self.text_encoder = self
        self.text = lru_cache(maxsize=256)(self._text)

    def encode(self, frames: np.ndarray) -> Features:
        """frames [B, H, W, 3] uint8 in time order -> unit clip vectors; the one region of a sample is the whole frame."""
        b = len(frames)
        around = np.arange(b)[:, None] + np.arange(self.frames) - (self.frames - 1) // 2  # [B, T]
        vectors = np.concatenate([self.clips(frames[row][None]) for row in np.clip(around, 0, b - 1)])
        boxes = np.tile(np.array([0, 0, 1, 1], np.float32), (b, 1))
        return Features(vectors, vectors, boxes, np.ones(b, np.int64))

    def clips(self, clips: np.ndarray) -> np.ndarray:
        """clips [B, T, H, W, 3] uint8 -> unit vectors [B, D]."""
        return unit(self._video(np.ascontiguousarray(clips))[0])

    def rest(self) -> None:
        """Give back what encoding a batch took; the next batch takes it again."""
        self._video.rest()

    def image(self, image: np.ndarray) -> ImageVectors:
        """image [H, W, 3] uint8, taken as a clip in which nothing moves."""
        vector = self.clips(np.repeat(image[None, None], self.frames, 1))
        return ImageVectors(vector[0], vector)

    def dense(self, frames: np.ndarray) -> np.ndarray:
        """Always raises VilcoError("no-dense"): the space-time model has no maps of single frames."""
        raise VilcoError(
            "no-dense",
            f"the profile {self.id} cannot find boxes.",
            "Use the embedded, clip or dino profile for pictures.",
        )

    def sentences(self, texts: Sequence[str]) -> np.ndarray:
        """TextEncoder door: unit sentence vectors [N, D]."""
        return (
            unit(np.stack([self.tokens(text)[0] for text in texts])) if texts else np.zeros((0, self.dim), np.float32)
        )

    def tokens(self, text: str) -> np.ndarray:
        """TextEncoder door: token vectors [L, D]; the first stands for the sentence."""
        ids = np.array([self._tokenizer.encode(text).ids], np.int64)
        return self._text_network(ids, np.ones_like(ids))[0][0]

    def _text(self, text: str) -> TextVectors:
        tokens = self.tokens(text)
        sentence = unit(tokens[0])
        return TextVectors(sentence, tokens, sentence, sentence)


def _modules(path: Path) -> dict[str, Any]:
    import torch

    from vilco_app.encoders.egovlp_model import DualEncoder

    model = DualEncoder(path)

    class Part(torch.nn.Module):
        def __init__(self, run: Callable[..., torch.Tensor]) -> None:
            super().__init__()
            self.model, self.run = model, run

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            return self.run(*inputs)

    return {"video": Part(model.video).eval(), "text": Part(model.text).eval(), "model": model}


def _build(path: Path, folder: Path) -> None:
    import torch

    parts = _modules(path)
    model = parts["model"]
    if model.roberta:
        tokenizer = path.parent / "tokenizer.json"
        found = tokenizer if tokenizer.is_file() else cached_file("roberta-base", ("tokenizer.json",))
        if found is None:
            raise missing("the tokenizer of roberta-base", f"Put its tokenizer.json beside {path.name}.")
    else:
        found = TOKENIZER.verified()  # DistilBERT's vocabulary is that of the packaged text encoder
    shutil.copyfile(found, folder / "tokenizer.json")
    frames, side = model.video_model.frames, model.video_model.side
    clips = torch.zeros(2, frames, side, side + 8, 3, dtype=torch.uint8)
    convert(parts["video"], (clips,), folder / "video.xml", half=True)
    ids = torch.full((2, 9), 5, dtype=torch.int64)
    convert(parts["text"], (ids, torch.ones_like(ids)), folder / "text.xml", half=True)
    settings = {"frames": frames, "side": side, "dim": model.dim}
    (folder / "settings.json").write_text(json.dumps(settings))
