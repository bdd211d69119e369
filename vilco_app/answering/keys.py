"""The key a correction is filed under: the same question finds it again, however it was typed."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from vilco_app.values import Kind, MomentQuery, Query, TextQuery, VisualQuery


def normalise(text: str) -> str:
    """Case, accents' encoding, punctuation at the ends and spaces do not make another question."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("_", " ")
    folded = re.sub(r"\s+", " ", folded).strip()
    return folded.strip(" ?!.,;:\"'…？！。").strip()


def make_key(kind: Kind, label: str, digest: str | None = None) -> str:
    """kind: of the query; label: its text or category; digest: of a picture's pixels, which then replaces the label."""
    return f"{kind}:{digest}" if digest is not None else f"{kind}:{normalise(label)}"


def keys_of(query: Query) -> list[str]:
    """One key per thing asked: one for a text or picture, one per category for a moment query."""
    if isinstance(query, TextQuery):
        return [make_key("text", query.text)]
    if isinstance(query, MomentQuery):
        return [make_key("moment", c) for c in query.categories]
    assert isinstance(query, VisualQuery)
    return [make_key("visual", query.name, query.digest)]


def picture_digest(image: object) -> str:
    """16 hex digits over the shape and pixels of an RGB array [H, W, 3] uint8."""
    import numpy as np

    pixels = np.ascontiguousarray(image, dtype=np.uint8)
    return hashlib.blake2b(repr(pixels.shape).encode() + pixels.tobytes(), digest_size=8).hexdigest()
