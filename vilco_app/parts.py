"""What a memory is made of: each part is loaded by the first who needs it and kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vilco_app.home import resolve_home

if TYPE_CHECKING:
    from vilco_app.answering import Answerer
    from vilco_app.encoders.base import Profile
    from vilco_app.library import Library

Progress = Callable[[float, float, str], None]


class Parts:
    """Encoders, library and answering of one home. Thread-safe."""

    def __init__(self, home: str | Path | None = None, profile: str = "auto", progress: Progress | None = None) -> None:
        """progress(done, total, text): told while encoders are prepared, once per home; it takes about half a minute."""
        self.home = resolve_home(home)
        self._profile_name, self._progress = profile, progress
        self._lock = threading.Lock()
        self._locks: dict[str, threading.RLock] = {}
        self._parts: dict[str, Any] = {}

    def _part(self, name: str, make: Callable[[], Any]) -> Any:
        """The part `name`, made by the first who asks; others wait for it, and for it alone."""
        with self._lock:
            lock = self._locks.setdefault(name, threading.RLock())
        with lock:
            if name not in self._parts:
                self._parts[name] = make()
            return self._parts[name]

    @property
    def profile(self) -> Profile:
        """The encoders in use."""

        def make() -> Any:
            from vilco_app.encoders import load_profile

            return load_profile(self._profile_name, self.home / "models", progress=self._progress)

        return self._part("profile", make)

    @property
    def catalogue(self) -> Library:
        """The library before any encoder is loaded: enough to list, show, remove, correct."""

        def make() -> Any:
            from vilco_app.library import Library

            return Library(self.home, loader=self._load)

        return self._part("catalogue", make)

    @property
    def library(self) -> Library:
        """The library as the profile in use sees it."""
        library = self.catalogue
        library.use_profile(self.profile.id)
        return library

    def _load(self, profile_id: str) -> Profile:
        """The profile a queued job was made for: ours, or another one of this machine."""
        if self.profile.id == profile_id:
            return self.profile
        from vilco_app.encoders import load_profile

        return load_profile(profile_id.rpartition("@")[0] or profile_id, self.home / "models")

    @property
    def answerer(self) -> Answerer:
        """What answers: the zero-shot grounder, with the active snapshot's network where one is active.

        Another process may learn, roll back or forget meanwhile, so the active snapshot is looked up for every question.
        """
        from vilco_app.learning.snapshots import Snapshots

        snapshots = Snapshots(self.home)
        active = _state(snapshots.path(snapshots.active()))
        name, answerer = self._part("answerer", lambda: (active, self._answerer()))
        if name != active:
            answerer = self._answerer()
            self._parts["answerer"] = active, answerer
        return answerer

    def _answerer(self) -> Answerer:
        from vilco_app import learning
        from vilco_app.answering import Answerer

        serving = learning.serving(self.home, self.profile)
        return Answerer(
            self.library, self.profile, network=serving.network, weights=serving.weights, snapshot=serving.snapshot,
            doubts=serving.doubts, judge=serving.judge, bend=serving.bend,
        )  # fmt: skip


def _state(folder: Path) -> tuple[object, ...]:
    """What tells a snapshot from another one and from itself before something it was taught was forgotten."""
    found: list[object] = [folder.name]
    for name in ("card.json", "directions.safetensors"):
        try:
            of = (folder / name).stat()
            found.append((of.st_ino, of.st_size, of.st_mtime_ns))
        except OSError:
            found.append(None)
    return tuple(found)
