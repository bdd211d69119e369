"""The default profile: EfficientNet-Lite0 and MiniLM joined by class names, from weights that come with the packages.

Two scores, stored as one vector per frame. ConSE (Norouzi et al. 2014): the frame's class probabilities pick a mean of
class-name embeddings, compared with the question's embedding. Query-to-class (q2c): the question picks classes by the
cosine of their names, their classifier rows are summed to one direction w_q, and the frame's pooled feature is projected
on it. Both are inner products, so FAISS does the searching. A third block holds colours, which class names do not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock

import numpy as np

from vilco_app.encoders.base import Blocks, Features, ImageVectors, TextVectors
from vilco_app.encoders.cells import centre_pool, cluster_cells, pack_regions, unit
from vilco_app.encoders.colours import COLOURS, colour_vector, colour_words
from vilco_app.encoders.runtime import Network, RuntimeOptions, open_network
from vilco_app.encoders.weights import built_folder
from vilco_app.values import Concept

VERSION = "1"  # raise whenever stored vectors change
RECIPE = "7"  # raise whenever the converted files would differ


Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class EmbeddedOptions:
    """Defaults, each measured in docs/encoders.md.

    temperature: softens the class probabilities. classes: how many of them ConSE sums (the paper's 10 are too few).
    sharpness: softmax factor on the cosine between question and class names. class_scale, colour_scale: bring the spread
    of those blocks to that of the ConSE cosine, so that the plain inner product is a fair sum of the scores.
    colour_weight: of the standardised colour score against the other two. short_side: pixels of the shorter frame side
    (more helps small objects, but not whole frames, and costs with its square). crop_sides: longer sides at which a picture
    of a thing is encoded, since in a frame the thing is small. concepts: classes shown to the person.
    """

    temperature: float = 1.5
    classes: int = 100
    sharpness: float = 15.0
    class_scale: float = 0.15
    colour_scale: float = 0.3
    colour_weight: float = 1.5
    short_side: int = 256
    crop_sides: tuple[int, ...] = (96, 160, 256)
    concepts: int = 5


LITTLE_WORDS = frozenset(
    [
        "a",
        "an",
        "the",
        "my",
        "your",
        "his",
        "her",
        "our",
        "their",
        "this",
        "that",
        "of",
        "in",
        "on",
        "at",
        "to",
        "with",
        "and",
        "or",
        "i",
        "me",
        "it",
        "is",
        "was",
    ]
)


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

    def knows(self, text: str) -> bool:
        """False when what the vocabulary has no piece for (an emoji, say) leaves nothing but little words."""
        pieces = self._tokenizer.encode(text, add_special_tokens=False).tokens
        left = [p for p in pieces if p != "[UNK]" and p.isalnum() and p not in LITTLE_WORDS]
        return bool(left) or "[UNK]" not in pieces

    def _all_tokens(self, texts: Sequence[str], batch: int = 32) -> list[np.ndarray]:
        encoded = [e.ids for e in self._tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(encoded)), key=lambda i: len(encoded[i]))  # batches of like length waste no padding
        out: list[np.ndarray] = [np.empty(0)] * len(encoded)
        for start in range(0, len(order), batch):
            places = order[start : start + batch]
            rows = [encoded[i] for i in places]
            longest = max(map(len, rows))
            ids = np.zeros((len(rows), longest), np.int64)  # [n, L], 0 = padding
            mask = np.zeros_like(ids)
            for i, row in enumerate(rows):
                ids[i, : len(row)], mask[i, : len(row)] = row, 1
            hidden = self._run(ids, mask)[0]
            for place, row, vectors in zip(places, rows, hidden, strict=True):
                out[place] = np.array(vectors[: len(row)], np.float32)
        return out


def embedded_folder(models: Path, progress: Progress | None = None) -> Path:
    """The folder of the converted packaged weights, converted now if they are not yet (needs torch, once, in a process of
    its own)."""

    def build(folder: Path) -> None:
        from vilco_app.encoders.apart import apart

        apart("vilco_app.encoders.embedded_convert:build_embedded", folder, progress)

    return built_folder(models / "encoders" / f"embedded@{VERSION}", RECIPE, build)


def open_minilm(folder: Path, runtime: RuntimeOptions) -> MiniLM:
    """The text encoder out of `embedded_folder`; also the questions' encoder of profiles that have none of their own."""

    def module() -> object:
        from vilco_app.encoders.embedded_convert import text_module

        return text_module(folder)

    return MiniLM(folder, open_network(folder, "text", runtime, module, "f32"))


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
        progress: Progress | None = None,
    ) -> None:
        from safetensors.numpy import load_file

        self.options = options or EmbeddedOptions()
        every_core = runtime or RuntimeOptions()
        # beside decoding, which is three quarters of indexing: fewer threads cost less CPU and the decoder has the rest
        runtime = runtime or RuntimeOptions(threads=max(1, (os.cpu_count() or 1) // 4))
        self.id = f"embedded@{VERSION}"
        self.name, self.version = "efficientnet-lite0", VERSION
        self.preprocess = f"rgb-short{self.options.short_side}-pm1"

        def module(name: str) -> Callable[[], object]:
            def make() -> object:
                from vilco_app.encoders import embedded_convert

                return getattr(embedded_convert, f"{name}_module")(self.folder)

            return make

        self.folder = embedded_folder(models, progress)
        self._vision = open_network(self.folder, "vision", runtime, module("vision"))
        self._open_dense = lambda: open_network(self.folder, "dense", every_core, module("dense"))
        self._dense: Network | None = None
        self._lock = Lock()
        self.text_encoder = open_minilm(self.folder, runtime)
        concepts = load_file(str(self.folder / "concepts.safetensors"))
        self._names, self._meanings, self._classes = concepts["names"], concepts["meanings"], concepts["classes"]
        self._words: list[str] = json.loads((self.folder / "words.json").read_text())
        self.short_side = self.options.short_side
        self.region_dim = self._classes.shape[1]
        self.text_dim = self.text_encoder.dim
        stops = tuple(int(n) for n in np.cumsum((self.text_dim, self.region_dim, len(COLOURS))))
        self.global_dim = self.dim = stops[-1]
        self.blocks = Blocks(("conse", "q2c", "colour"), stops, (1.0, 1.0, self.options.colour_weight), "q2c")
        self.text = lru_cache(maxsize=256)(self._text)

    def encode(self, frames: np.ndarray) -> Features:
        """frames [B, H, W, 3] uint8 -> Features; see the protocol."""
        logits, cells = self._vision(np.ascontiguousarray(frames))
        vectors, boxes, counts = pack_regions(*cluster_cells(cells))
        return Features(self._globals(frames, logits, cells), vectors, boxes, counts)

    def clips(self, clips: np.ndarray) -> np.ndarray:
        """VideoEncoder door: clips [B, 1, H, W, 3] -> [B, Dg]."""
        logits, cells = self._vision(np.ascontiguousarray(clips[:, 0]))
        return self._globals(clips[:, 0], logits, cells)

    def regions(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """RegionEncoder door: frames [B, H, W, 3] -> vectors [M, 256], boxes [M, 4], counts [B]."""
        _, cells = self._vision(np.ascontiguousarray(frames))
        return pack_regions(*cluster_cells(cells))

    def dense(self, frames: np.ndarray) -> np.ndarray:
        """frames [B, H, W, 3] uint8 of any size -> [B, H/16, W/16, 432], not centred; 448 on the shorter side is best."""
        with self._lock:  # opened on first need: zero-shot text questions never pay for it
            if self._dense is None:
                self._dense = self._open_dense()
        return self._dense(np.ascontiguousarray(frames))[0]

    def rest(self) -> None:
        """Give back what encoding a batch took (0.2 GB at 16 frames); the next batch takes it again."""
        for network in (self._vision, self._dense):
            if network is not None:
                network.rest()

    def image(self, image: np.ndarray) -> ImageVectors:
        """image [H, W, 3] uint8 of any size -> its vector as one frame; unit region vectors at the sizes of `crop_sides`,
        row 0 their mean."""
        whole = resize_short(image, self.short_side)[None]
        rows = []
        for side in self.options.crop_sides:
            _, cells = self._vision(resize_long(image, side)[None])
            rows.append(unit(centre_pool(cells[0])))
        regions = np.stack([unit(np.mean(rows, 0)), *rows])
        return ImageVectors(self._globals(whole, *self._vision(whole))[0], regions)

    def _globals(self, frames: np.ndarray, logits: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """logits [B, 1000], cells [B, h, w, 256] -> [B, 384 + 256 + 11]: ConSE vector, pooled feature / logit std, colours."""
        top = np.argpartition(logits, -self.options.classes, axis=1)[:, -self.options.classes :]
        kept = np.take_along_axis(logits, top, 1)
        p = np.exp((kept - logits.max(1, keepdims=True)) / self.options.temperature)
        p /= p.sum(1, keepdims=True)
        conse = unit(np.einsum("bk,bkd->bd", p, self._meanings[top]))
        projected = cells.mean((1, 2)) / logits.std(1, keepdims=True)
        return np.concatenate([conse, projected, colour_vector(frames)], 1).astype(np.float32)

    def _text(self, text: str) -> TextVectors:
        tokens = self.text_encoder.tokens(text)
        sentence = unit(tokens.mean(0))
        cosine = self._names @ sentence  # [1000]
        weights = np.exp(self.options.sharpness * (cosine - cosine.max()))
        weights /= weights.sum()
        thing = weights @ self._classes  # [256]
        colour = self.options.colour_scale * colour_words(text)
        scene = np.concatenate([sentence, self.options.class_scale * thing, colour])
        best = np.argsort(-weights)[: self.options.concepts]
        concepts = tuple(Concept(self._words[i], float(weights[i])) for i in best)
        if not self.text_encoder.knows(text):
            return TextVectors(sentence, tokens, scene.astype(np.float32), thing, understood=False)
        return TextVectors(sentence, tokens, scene.astype(np.float32), thing, concepts)


def resize_short(image: np.ndarray, short: int) -> np.ndarray:
    """image [H, W, 3] uint8 -> shorter side = short, aspect kept (bicubic). The longer side is at most 4 times that."""
    from PIL import Image

    h, w = image.shape[:2]
    scale = short / min(h, w)
    size = (min(4 * short, max(1, round(w * scale))), min(4 * short, max(1, round(h * scale))))
    if size == (w, h):
        return np.ascontiguousarray(image)
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))


def resize_long(image: np.ndarray, long: int) -> np.ndarray:
    """image [H, W, 3] uint8 -> longer side = long, aspect kept (bicubic). The shorter side is at least 32."""
    from PIL import Image

    h, w = image.shape[:2]
    scale = long / max(h, w)
    size = (max(32, round(w * scale)), max(32, round(h * scale)))
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))
