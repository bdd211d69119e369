"""Questions as vectors, each encoded once."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from threading import Lock
from typing import Protocol

import numpy as np

from vilco_app.answering.options import Options
from vilco_app.answering.phrases import wanted
from vilco_app.encoders.base import Profile, TextVectors
from vilco_app.values import Kind


class Bender(Protocol):
    """What was taught of questions: turns the vectors of a known one towards what it looks like.

    sought [Dt]: `Questions.sought`. -> (vectors, taught questions they come from with their shares; none: unchanged).
    """

    def __call__(
        self, kind: Kind, vectors: TextVectors, sought: np.ndarray
    ) -> tuple[TextVectors, dict[str, float]]: ...

    def look(self, number: int) -> np.ndarray:
        """One of the taught directions [Dg], by any number: what questions look for that have no vectors of their own."""
        ...


class Questions:
    """text -> TextVectors, the most recent ones kept. Thread-safe."""

    def __init__(self, profile: Profile, options: Options) -> None:
        self._profile, self._options = profile, options
        self._kept: OrderedDict[str, TextVectors] = OrderedDict()
        self._lock = Lock()

    def __call__(self, text: str) -> TextVectors:
        """What is compared with pictures comes without the asking words; the rest (for the network) as typed."""
        typed = self._encode(text)
        looked_for = wanted(text) if self._options.strip_asking else text
        if looked_for == text:
            return typed
        short = self._encode(looked_for)
        return replace(
            typed, scene=short.scene, thing=short.thing, concepts=short.concepts, understood=short.understood
        )

    def sought(self, text: str) -> np.ndarray:
        """The sentence vector [Dt] of what a question looks for, without its asking words: what taught questions are known by."""
        return self._encode(wanted(text) if self._options.strip_asking else text).sentence

    def _encode(self, text: str) -> TextVectors:
        with self._lock:
            if text in self._kept:
                self._kept.move_to_end(text)
                return self._kept[text]
        vectors = self._profile.text(text)
        with self._lock:
            self._kept[text] = vectors
            while len(self._kept) > self._options.cached_questions:
                self._kept.popitem(last=False)
        return vectors
