"""Words of the job floor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

JobState = Literal["waiting", "running", "done", "failed", "stopped"]
FINISHED: tuple[JobState, ...] = ("done", "failed", "stopped")
Progress = Callable[[float, float, str], None]
"""progress(done, total, text): called often, must be cheap."""


class Stopped(Exception):
    """Raised inside a handler when a person stopped the job; what was committed stays, `resume` goes on from there."""


class CannotRunHere(Exception):
    """Raised by a handler that lacks something only another process has; the job goes back to waiting."""


@dataclass(frozen=True)
class Job:
    """A durable piece of work. done, total: in the unit of the handler (seconds of video when indexing).

    error: {"code", "message", "remedy"} of a failed job. result: what the handler returned. label: for people.
    """

    id: int
    kind: str
    label: str
    payload: dict[str, Any]
    state: JobState
    done: float = 0.0
    total: float = 0.0
    text: str = ""
    error: dict[str, str] | None = None
    result: dict[str, Any] = field(default_factory=dict)
    attempts: int = 0
    created: str = ""
    updated: str = ""

    @property
    def finished(self) -> bool:
        return self.state in FINISHED

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id, "kind": self.kind, "label": self.label, "state": self.state, "done": round(self.done, 3),
            "total": round(self.total, 3), "text": self.text, "error": self.error, "result": self.result,
            "created": self.created, "updated": self.updated,
        }  # fmt: skip


class Context(Protocol):
    """What a handler may do to its job while it runs."""

    def progress(self, done: float, total: float, text: str = "") -> None: ...

    def kept(self) -> None:
        """Something durable was done: were the process to die now, a restart would not begin where this one began.

        A job whose process dies several times without ever getting here is given up.
        """
        ...

    def check(self) -> None:
        """Raise Stopped when the person stopped the job. Cheap; call it at least a few times per second."""
        ...


Handler = Callable[[Job, Context], "dict[str, Any] | None"]
