"""Indexing beside the page: one thread adds what is asked for, in order, through the home's durable job table."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path

from vilco_app.memory import EpisodicMemory
from vilco_app.values import VilcoError

KEPT_MESSAGES = 5  # what was refused lately; older refusals are still answered by `vilco add`


class Indexer:
    """Adds paths one after the other. `messages`: what was refused, newest last. Thread-safe."""

    def __init__(self, memory: EpisodicMemory) -> None:
        self._memory = memory
        self._wanted: queue.Queue[Callable[[], object]] = queue.Queue()
        self._lock = threading.Lock()
        self._messages: list[str] = []
        self._open = 0
        self._ready = threading.Event()

    def start(self) -> None:
        """Begin to work. Call it once the page is built: importing encoders beside it would hold the page up."""
        threading.Thread(target=self._work, name="indexer", daemon=True).start()

    def add(self, paths: list[Path]) -> None:
        """Index these files or folders soon; returns at once."""
        self._want(lambda: self._add(paths))

    def go_on(self) -> None:
        """Work off the jobs that wait, soon; returns at once."""
        self._want(self._memory.resume_all)

    def dismiss(self) -> None:
        """Forget what was refused lately."""
        with self._lock:
            self._messages = []

    def _want(self, work: Callable[[], object]) -> None:
        with self._lock:
            self._open += 1
        self._wanted.put(work)

    @property
    def busy(self) -> bool:
        """Whether something is still waiting or running."""
        with self._lock:
            return self._open > 0

    @property
    def messages(self) -> list[str]:
        with self._lock:
            return list(self._messages)

    @property
    def preparing(self) -> str:
        """What keeps the first question waiting, or ""."""
        return "" if self._ready.is_set() else "Preparing the encoders; the first time this takes about a minute."

    def _work(self) -> None:
        self._run(lambda: self._memory.profile)
        self._ready.set()
        self._run(self._memory.resume_all)  # what an earlier process left unfinished
        while True:
            self._run(self._wanted.get())
            with self._lock:
                self._open -= 1

    def _add(self, paths: list[Path]) -> None:
        report = self._memory.add(paths)
        for refusal in report.refused:
            name = f"{Path(refusal.path).name}: "
            self._note(f"{name}{refusal.reason.removeprefix(name)} {refusal.remedy}")

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except VilcoError as error:
            self._note(f"{error.message} {error.remedy}")
        except Exception as error:  # a thread that dies would leave the page waiting for ever
            self._note(f"Indexing failed: {error!r}. See: vilco jobs")

    def _note(self, text: str) -> None:
        with self._lock:
            self._messages = [*self._messages, text][-KEPT_MESSAGES:]
