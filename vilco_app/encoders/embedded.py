"""The default profile: EfficientNet-Lite0 and MiniLM joined by class names, from weights that come with the packages.

Two scores, stored as one vector per frame. ConSE (Norouzi et al. 2014): the frame's class probabilities pick a mean of
class-name embeddings, compared with the question's embedding. Query-to-class (q2c): the question picks classes by the
cosine of their names, their classifier rows are summed to one direction w_q, and the frame's pooled feature is projected
on it. Both are inner products, so FAISS does the searching.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from vilco_app.encoders.base import Blocks, Features, ImageVectors, TextVectors
from vilco_app.encoders.cells import cluster_cells, pack_regions, unit
from vilco_app.encoders.runtime import RuntimeOptions, open_network
from vilco_app.encoders.weights import built_folder
from vilco_app.values import Concept

VERSION = "1"  # raise whenever stored vectors change


@dataclass(frozen=True)
class EmbeddedOptions:
    """Defaults, each measured in docs/encoders.md.

    temperature: softens the class probabilities (1.5 over 1: +2 points R@1). classes: how many of them ConSE sums (50; the
    paper's 10 loses 6 points). sharpness: softmax factor on the cosine between question and class names. short_side:
    pixels of the shorter frame side (256; 448 helps boxes, not frames). concepts: classes shown to the person.
    """

    temperature: float = 1.5
    classes: int = 50
    sharpness: float = 20.0
    short_side: int = 256
    concepts: int = 5


class MiniLM:
    """all-MiniLM-L6-v2: sentences -> unit vectors [N, 384] (mean over tokens) and token vectors [L, 384]."""

    name = "all-minilm-l6-v2"
    version = "1"
    preprocess = "wordpiece-uncased-256"
    dim = 384

    def __init__(self, folder: Path, run: Callable[..., list[np.ndarray]]) -> None:
        from tokenizers import Tokenizer

        self._run = run
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(256)  # what the model was trained with
        self._tokenizer.no_padding()

    def sentences(self, texts: Sequence[str]) -> np.ndarray:
        out = [t.mean(0) for t in self._all_tokens(texts)]
        return unit(np.stack(out)) if out else np.zeros((0, self.dim), np.float32)

    def tokens(self, text: str) -> np.ndarray:
        return self._all_tokens([text])[0]

    def _all_tokens(self, texts: Sequence[str], batch: int = 32) -> list[np.ndarray]:
        out: list[np.ndarray] = []
        for start in range(0, len(texts), batch):
            rows = [e.ids for e in self._tokenizer.encode_batch(list(texts[start : start + batch]))]
            longest = max(map(len, rows))
            ids = np.zeros((len(rows), longest), np.int64)  # [n, L], 0 = padding
            mask = np.zeros_like(ids)
            for i, row in enumerate(rows):
                ids[i, : len(row)], mask[i, : len(row)] = row, 1
            hidden = self._run(ids, mask)[0]
            out += [np.array(h[: len(row)], np.float32) for h, row in zip(hidden, rows, strict=True)]
        return out


class EmbeddedProfile:
    """Profile "embedded": see `vilco_app.encoders.base.Profile`. Converts its weights on first use (needs torch once)."""

    aligned = True
    window = 0.0
    frames = 1

    def __init__(
        self,
        models: Path,
        options: EmbeddedOptions | None = None,
        runtime: RuntimeOptions | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> None:
        from safetensors.numpy import load_file

        self.options = options or EmbeddedOptions()
        runtime = runtime or RuntimeOptions()
        self.id = f"embedded@{VERSION}"
        self.name, self.version = "efficientnet-lite0", VERSION
        self.preprocess = f"rgb-short{self.options.short_side}-pm1"

        def build(folder: Path) -> None:
            from vilco_app.encoders.embedded_convert import build_embedded

            build_embedded(folder, progress)

        self.folder = built_folder(models / "encoders" / self.id, build)

        def vision() -> object:
            from vilco_app.encoders.embedded_convert import vision_module

            return vision_module(self.folder)

        def text() -> object:
            from vilco_app.encoders.embedded_convert import text_module

            return text_module(self.folder)

        self._vision = open_network(self.folder, "vision", runtime, vision)
        self.text_encoder = MiniLM(self.folder, open_network(self.folder, "text", runtime, text, precision="f32"))
        concepts = load_file(str(self.folder / "concepts.safetensors"))
        self._names, self._meanings, self._classes = concepts["names"], concepts["meanings"], concepts["classes"]
        self._words: list[str] = json.loads((self.folder / "words.json").read_text())
        self.short_side = self.options.short_side
        self.region_dim = self._classes.shape[1]
        self.text_dim = self.text_encoder.dim
        self.global_dim = self.dim = self.text_dim + self.region_dim
        self.blocks = Blocks(("conse", "q2c"), (self.text_dim, self.global_dim), (1.0, 1.0))
        self.text = lru_cache(maxsize=256)(self._text)

    def encode(self, frames: np.ndarray) -> Features:
        """frames [B, H, W, 3] uint8 -> Features; see the protocol."""
        logits, cells = self._vision(np.ascontiguousarray(frames))
        vectors, boxes, counts = pack_regions(*cluster_cells(cells))
        return Features(self._globals(logits, cells), vectors, boxes, counts)

    def clips(self, clips: np.ndarray) -> np.ndarray:
        """VideoEncoder door: clips [B, 1, H, W, 3] -> [B, Dg]."""
        logits, cells = self._vision(np.ascontiguousarray(clips[:, 0]))
        return self._globals(logits, cells)

    def regions(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """RegionEncoder door: frames [B, H, W, 3] -> vectors [M, 256], boxes [M, 4], counts [B]."""
        _, cells = self._vision(np.ascontiguousarray(frames))
        return pack_regions(*cluster_cells(cells))

    def dense(self, frames: np.ndarray) -> np.ndarray:
        """frames [B, H, W, 3] uint8 of any size -> projected cells [B, h, w, 256] at stride 32."""
        return self._vision(np.ascontiguousarray(frames))[1]

    def image(self, image: np.ndarray) -> ImageVectors:
        """image [H, W, 3] uint8 of any size -> its vector as one frame, and unit region vectors (row 0: all of it)."""
        logits, cells = self._vision(resize_short(image, self.short_side)[None])
        vectors, _, _ = pack_regions(*cluster_cells(cells))
        everything = unit(cells.mean((1, 2)))  # [1, 256]
        return ImageVectors(self._globals(logits, cells)[0], np.concatenate([everything, vectors]))

    def _globals(self, logits: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """logits [B, 1000], cells [B, h, w, 256] -> [B, 384 + 256]: ConSE vector, pooled feature / logit std."""
        top = np.argpartition(logits, -self.options.classes, axis=1)[:, -self.options.classes :]
        kept = np.take_along_axis(logits, top, 1)
        p = np.exp((kept - logits.max(1, keepdims=True)) / self.options.temperature)
        p /= p.sum(1, keepdims=True)
        conse = unit(np.einsum("bk,bkd->bd", p, self._meanings[top]))
        projected = cells.mean((1, 2)) / logits.std(1, keepdims=True)
        return np.concatenate([conse, projected], 1).astype(np.float32)

    def _text(self, text: str) -> TextVectors:
        tokens = self.text_encoder.tokens(text)
        sentence = unit(tokens.mean(0))
        cosine = self._names @ sentence  # [1000]
        weights = np.exp(self.options.sharpness * (cosine - cosine.max()))
        weights /= weights.sum()
        direction = weights @ self._classes  # [256]
        best = np.argsort(-weights)[: self.options.concepts]
        concepts = tuple(Concept(self._words[i], float(weights[i])) for i in best)
        return TextVectors(sentence, tokens, np.concatenate([sentence, direction]), direction, concepts)


def resize_short(image: np.ndarray, short: int) -> np.ndarray:
    """image [H, W, 3] uint8 -> shorter side = short, aspect kept (bicubic). The longer side is at most 4 times that."""
    from PIL import Image

    h, w = image.shape[:2]
    scale = short / min(h, w)
    size = (min(4 * short, max(1, round(w * scale))), min(4 * short, max(1, round(h * scale))))
    if size == (w, h):
        return np.ascontiguousarray(image)
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))
