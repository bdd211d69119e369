"""Questions about nothing in particular: how high does a question score on this footage when it means something else?

The best window of an unrelated question is what a real one has to beat. The level depends on the footage (how varied, how
long), so it is measured on the footage searched, once, and kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

from vilco_app.answering.calibrate import Reached
from vilco_app.encoders.base import TextVectors

NULL_QUESTIONS = (
    "a hammer on a workbench",
    "a passport on a desk",
    "a giraffe behind a fence",
    "painting a fence",
    "a harbour with fishing boats",
    "planting seeds in a pot",
    "reading a newspaper on a train",
    "a red fire engine",
    "playing the drums",
    "a tray of oysters",
    "sewing a button on a coat",
    "the waiting room of a dentist",
    "a violin in its case",
    "changing a tyre at the roadside",
    "a green parrot in a cage",
    "feeding a baby with a spoon",
    "a lighthouse on a cliff",
    "sharpening a pencil",
    "a white piano on a stage",
    "measuring a plank with a tape",
    "a black helmet on a motorcycle",
    "a market stall with fish",
    "shovelling snow",
    "a telescope by a window",
)


class Levels:
    """Levels by footage, each measured when first needed. Thread-safe (at worst measured twice)."""

    def __init__(self, encode: Callable[[str], TextVectors], kept: int) -> None:
        self._encode, self._kept = encode, kept
        self._vectors: dict[str, TextVectors] = {}
        self._levels: OrderedDict[Hashable, Reached] = OrderedDict()
        self._lock = Lock()

    def of(self, footage: Hashable, count: int, reached: Callable[[TextVectors], Reached | None]) -> Reached:
        """Mean over `count` unrelated questions of what each reaches on the footage (None: it has no window)."""
        with self._lock:
            if footage in self._levels:
                return self._levels[footage]
        found = []
        for text in NULL_QUESTIONS[:count]:
            if text not in self._vectors:
                self._vectors[text] = self._encode(text)
            one = reached(self._vectors[text])
            found += [one] if one is not None else []
        heights = [r.height for r in found if r.height is not None]
        level = Reached(
            sum(r.score for r in found) / len(found) if found else 0.0, sum(heights) / len(heights) if heights else None
        )
        with self._lock:
            self._levels[footage] = level
            while len(self._levels) > self._kept:
                self._levels.popitem(last=False)
        return level
