"""The eleven basic colour terms (Berlin & Kay 1969) as a block of the frame vector.

ImageNet classes know shapes, not colours ("yellow" finds a spider and an orchid), but people tell things apart by colour.
A frame is cut into 6 x 8 tiles; per colour term the share of its pixels in the three tiles that show most of it, on a
log scale, is one dimension; a question with colour words looks along those dimensions, one without gets zero.
"""

from __future__ import annotations

import re

import numpy as np

COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white", "grey")
_TILES = (6, 8)
_SPELLINGS = {
    "gray": "grey",
    "violet": "purple",
    "golden": "yellow",
    "silver": "grey",
    "navy": "blue",
    "beige": "brown",
}


def colour_vector(frames: np.ndarray) -> np.ndarray:
    """frames [B, H, W, 3] uint8 -> [B, 11] float32 in [0, 1]: log(1 + 100 share) / log 101 per colour term."""
    b, h, w, _ = frames.shape
    rows = np.linspace(0, h - 1, 36).astype(int)  # 36 x 64 pixels are enough to see a colour
    cols = np.linspace(0, w - 1, 64).astype(int)
    rgb = frames[:, rows][:, :, cols].astype(np.float32) / 255
    value = rgb.max(-1)
    spread = value - rgb.min(-1)
    saturation = spread / np.maximum(value, 1e-6)
    r, g, bl = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    s = np.maximum(spread, 1e-6)
    hue = np.where(value == r, (g - bl) / s % 6, np.where(value == g, (bl - r) / s + 2, (r - g) / s + 4)) * 60
    lit = value >= 0.22
    vivid = lit & (saturation > 0.35)
    pale = lit & (saturation < 0.18)
    masks = {
        "red": vivid & ((hue < 12) | (hue > 345)),
        "orange": vivid & (hue >= 12) & (hue < 40) & (value > 0.55) & (saturation > 0.5),
        "yellow": vivid & (hue >= 40) & (hue < 68),
        "green": vivid & (hue >= 68) & (hue < 170),
        "blue": vivid & (hue >= 170) & (hue < 255),
        "purple": vivid & (hue >= 255) & (hue < 300),
        "pink": lit & ((hue >= 300) | (hue < 15)) & (saturation > 0.18) & (saturation <= 0.6) & (value > 0.6),
        "brown": vivid & (hue >= 8) & (hue < 45) & (value <= 0.55),
        "black": ~lit,
        "white": pale & (value > 0.75),
        "grey": pale & (value <= 0.75),
    }
    stack = np.stack([masks[c] for c in COLOURS], -1).astype(np.float32)  # [B, 36, 64, 11]
    tiles = stack.reshape(b, _TILES[0], 36 // _TILES[0], _TILES[1], 64 // _TILES[1], len(COLOURS)).mean((2, 4))
    share = np.sort(tiles.reshape(b, -1, len(COLOURS)), 1)[:, -3:].mean(1)
    return (np.log1p(100 * share) / np.log(101)).astype(np.float32)


def colour_words(text: str) -> np.ndarray:
    """[11] float32: 1 / n at each of the n colour terms named in the text (hyphens split), zeros without any."""
    out = np.zeros(len(COLOURS), np.float32)
    for word in re.findall(r"[a-z]+", text.lower()):
        word = _SPELLINGS.get(word, word)
        if word in COLOURS:
            out[COLOURS.index(word)] = 1
    return out / max(1.0, float(out.sum()))
