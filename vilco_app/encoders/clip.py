"""Profile "clip": any open_clip model as one aligned image and text encoder, from weights already on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from vilco_app.encoders.base import TextVectors
from vilco_app.encoders.clip_weights import ClipSpec, canonical, parse_clip
from vilco_app.encoders.patches import PatchProfile
from vilco_app.encoders.runtime import Network, RuntimeOptions, open_network
from vilco_app.encoders.weights import built_by, built_folder

VERSION = "1"  # raise whenever stored vectors change
RECIPE = "1"  # raise whenever the converted files would differ

Progress = Callable[[int, int, str], None]


class ClipText:
    """The text tower: sentences -> unit vectors [N, D]; tokens [L, D] (start, words, end) in the joint space."""

    version = VERSION

    def __init__(self, folder: Path, network: Network, name: str, context: int, dim: int) -> None:
        from tokenizers import Tokenizer

        self.name, self.dim = name, dim
        self.preprocess = f"bpe-{context}"
        self._network = network
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(context)
        self._context = context

    def sentences(self, texts: Sequence[str]) -> np.ndarray:
        return np.concatenate([self._one(text)[0] for text in texts]) if texts else np.zeros((0, self.dim), np.float32)

    def tokens(self, text: str) -> np.ndarray:
        return self._one(text)[1]

    def both(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """-> sentence [D], tokens [L, D] in one run."""
        sentence, tokens = self._one(text)
        return sentence[0], tokens

    def _one(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        row = self._tokenizer.encode(text).ids
        ids = np.zeros((1, self._context), np.int64)  # the tower was built for this length; 0 = padding
        ids[0, : len(row)] = row
        sentence, tokens = self._network(ids)
        return sentence, tokens[0, : len(row)]


class ClipProfile(PatchProfile):
    """See `vilco_app.encoders.base.Profile`. name: `clip[:MODEL[:WEIGHTS]]`; converted on first use (needs torch once).

    Raises VilcoError when the weights are not on this machine or are not that model's.
    """

    aligned = True

    def __init__(
        self, name: str, models: Path, runtime: RuntimeOptions | None = None, progress: Progress | None = None
    ) -> None:
        runtime = runtime or RuntimeOptions()
        spec, folder = self._prepare(name, models, progress)
        settings = json.loads((folder / "settings.json").read_text())
        self.id = folder.name
        self.name, self.version = folder.name.partition("@")[0], VERSION
        self.preprocess = f"rgb-squeezed-{settings['side']}"
        self._spec = spec

        def vision() -> Network:
            return open_network(folder, "vision", runtime, self._torch_vision)

        super().__init__(vision(), vision, int(settings["dim"]), int(settings["side"]))
        network = open_network(folder, "text", runtime, self._torch_text, "f32")
        self.text_encoder = ClipText(folder, network, self.name, int(settings["context"]), self.dim)
        self.text_dim = self.dim
        self.text = lru_cache(maxsize=256)(self._text)

    @staticmethod
    def _prepare(name: str, models: Path, progress: Progress | None) -> tuple[str, Path]:
        """The folder of the converted model; found by its spec alone, so that a cold start imports no torch."""
        asked = canonical(name)
        for path in (models / "encoders").glob(f"clip-*@{VERSION}/settings.json"):
            if json.loads(path.read_text()).get("asked") == asked and built_by(path.parent) == RECIPE:
                return name, path.parent
        spec = parse_clip(name)
        target = models / "encoders" / f"{spec.slug}@{VERSION}"

        def build(folder: Path) -> None:
            from vilco_app.encoders.clip_convert import build_clip

            if progress:
                progress(0, 1, f"converting {spec.model}, once")
            build_clip(spec, folder)
            settings = json.loads((folder / "settings.json").read_text())
            (folder / "settings.json").write_text(json.dumps({**settings, "asked": asked}))

        return name, built_folder(target, RECIPE, build)

    def _torch_vision(self) -> object:
        from vilco_app.encoders.clip_convert import open_model, vision_module

        spec: ClipSpec = parse_clip(self._spec)
        return vision_module(open_model(spec), spec)

    def _torch_text(self) -> object:
        from vilco_app.encoders.clip_convert import open_model, text_module

        return text_module(open_model(parse_clip(self._spec)))

    def _text(self, text: str) -> TextVectors:
        sentence, tokens = self.text_encoder.both(text)
        return TextVectors(sentence, tokens, sentence, sentence)
