"""Source, transform and sink in three threads with bounded queues between them: memory does not grow with the length."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")
WAIT = 0.1  # seconds between looks at the stop flag while a queue is full or empty


def run_pipeline(
    source: Iterable[A],
    transform: Callable[[A], B],
    sink: Callable[[B], None],
    depth: int = 2,
    check: Callable[[], None] | None = None,
) -> None:
    """sink(transform(item)) for each item of source, in order; source and sink run in threads of their own.

    depth: items that may wait between two steps. check: called between items, may raise to stop; everything transformed
    so far still reaches the sink. The first exception of any step ends all three and is raised here.
    """  # fmt: skip
    end = object()
    inbox: queue.Queue[Any] = queue.Queue(depth)
    outbox: queue.Queue[Any] = queue.Queue(depth)
    over = threading.Event()  # nobody needs more input
    broken = threading.Event()  # the sink takes no more
    failures: list[BaseException] = []

    def put(into: queue.Queue[Any], item: Any, flag: threading.Event) -> bool:
        while not flag.is_set():
            try:
                into.put(item, timeout=WAIT)
                return True
            except queue.Full:
                continue
        return False

    def feed() -> None:
        try:
            for item in source:
                if not put(inbox, item, over):
                    break
        except BaseException as error:  # must cross the thread, whatever it is
            failures.append(error)
        finally:
            close = getattr(source, "close", None)
            if close is not None:
                close()
            put(inbox, end, over)

    def drain() -> None:
        try:
            while (item := outbox.get()) is not end:
                sink(item)
        except BaseException as error:
            failures.append(error)
            broken.set()

    threads = [threading.Thread(target=feed, daemon=True), threading.Thread(target=drain, daemon=True)]
    for thread in threads:
        thread.start()
    try:
        while not broken.is_set():
            if check is not None:
                check()
            try:
                item = inbox.get(timeout=WAIT)
            except queue.Empty:
                continue
            if item is end or not put(outbox, transform(item), broken):
                break
    finally:
        over.set()
        put(outbox, end, broken)
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
