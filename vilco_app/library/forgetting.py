"""Forgetting a span of a recording: its samples leave the arrays, and everything drawn from them leaves the library."""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np

from vilco_app.library.catalogue import Catalogue, bump, to_take
from vilco_app.library.features import SAMPLE, TakeArrays, region_type, take_folder
from vilco_app.library.indexing import clip_durations, in_spans
from vilco_app.library.records import Take

SLAB = 4096  # samples copied at once: memory stays flat in the length of the recording


def rewrite(root: Path, old: Take, new: Take, window: float, spans: tuple[tuple[float, float], ...]) -> Take:
    """Write `new` as `old` without the samples that show any of the spans; returns it with its counts.

    A near-still group whose first sample goes loses its region vectors, because they were cut from that sample; the
    samples that borrowed them keep their whole-frame vectors.
    """
    arrays = TakeArrays(take_folder(root, old), old)
    times = np.asarray(arrays.samples["time"])
    keep = ~in_spans(times, window, spans)
    groups = np.asarray(arrays.samples["group"])
    source = np.r_[True, groups[1:] != groups[:-1]] if len(groups) else np.zeros(0, bool)
    whole = np.zeros(old.groups, bool)  # groups whose own sample stays
    whole[groups[source & keep]] = True
    left = np.unique(groups[keep])
    sizes = np.where(whole, np.diff(np.asarray(arrays.offsets)), 0)[left]
    table = np.zeros(int(keep.sum()), SAMPLE)
    table["time"] = times[keep]
    table["duration"] = clip_durations(times[keep], np.asarray(arrays.samples["duration"])[keep], spans)
    table["group"] = np.searchsorted(left, groups[keep])
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype("<i8")
    regions = np.repeat(whole, np.diff(np.asarray(arrays.offsets))) if old.groups else np.zeros(0, bool)
    folder = take_folder(root, new)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "samples.bin").write_bytes(table.tobytes())
    (folder / "groups.bin").write_bytes(offsets.tobytes())
    with open(folder / "globals.bin", "wb") as file:
        for a in range(0, old.rows, SLAB):
            file.write(np.asarray(arrays.globals[a : a + SLAB])[keep[a : a + SLAB]].tobytes())
    with open(folder / "regions.bin", "wb") as file:
        for a in range(0, old.regions, SLAB):
            file.write(
                np.asarray(arrays.regions[a : a + SLAB], region_type(old.region_dim))[regions[a : a + SLAB]].tobytes()
            )
    return replace(
        new, rows=len(table), groups=len(left), regions=int(offsets[-1]), seconds=float(table["duration"].sum()),
        until=old.until,
    )  # fmt: skip


def window_setting(profile: str) -> str:
    """Name of the setting that holds how many seconds one sample of the profile covers."""
    return f"window {profile}"


def touches(windows: list[tuple[float, float]], start: float, end: float) -> list[bool]:
    return [a < end and b > start for a, b in windows]


def forget(catalogue: Catalogue, root: Path, cache: Path, video: str, start: float, end: float) -> None:
    """Remove [start, end) seconds of a recording, in every profile, from features, corrections, history and caches.

    One transaction switches all readers; the caller holds the publish lock and rewrites the index segments afterwards.
    """
    stale: list[Take] = []
    shutil.rmtree(cache, ignore_errors=True)  # before, lest a crash leave pictures that nobody looks for any more
    with catalogue.db.write() as connection:  # held while copying: no writer can append to what is being copied
        connection.execute("INSERT INTO forgotten VALUES (?, ?, ?)", (video, start, end))
        rows = connection.execute("SELECT start, stop FROM forgotten WHERE video = ?", (video,)).fetchall()
        spans = tuple((row["start"], row["stop"]) for row in rows)
        for row in connection.execute("SELECT * FROM takes WHERE video = ?", (video,)).fetchall():
            old = to_take(row)
            stale.append(old)
            connection.execute("DELETE FROM takes WHERE id = ?", (old.id,))
            cursor = connection.execute(
                "INSERT INTO takes (video, profile, kind, rate, global_dim, region_dim) VALUES (?, ?, ?, ?, ?, ?)",
                (old.video, old.profile, old.kind, old.rate, old.global_dim, old.region_dim),
            )
            new = replace(old, id=int(cursor.lastrowid or 0))
            if old.rows:
                window = float(catalogue.setting(window_setting(old.profile)) or 0.0)
                try:
                    new = rewrite(root, old, new, window, spans)
                except FileNotFoundError:  # damaged: nothing in it can be used, and nothing of it is kept
                    connection.execute("DELETE FROM takes WHERE id = ?", (new.id,))
                    continue
            connection.execute(
                "UPDATE takes SET rows = ?, groups = ?, regions = ?, seconds = ?, until = ? WHERE id = ?",
                (new.rows, new.groups, new.regions, new.seconds, new.until, new.id),
            )
        _corrections(connection, video, start, end)
        _history(connection, video, start, end)
        bump(connection)
    for take in stale:
        shutil.rmtree(take_folder(root, take), ignore_errors=True)
    shutil.rmtree(cache, ignore_errors=True)  # and after: somebody may have looked meanwhile


def _corrections(connection: sqlite3.Connection, video: str, start: float, end: float) -> None:
    """Windows that touch the span go; a correction that has none left goes with them ("not in here" has none and stays)."""
    for row in connection.execute("SELECT id, windows FROM corrections WHERE video = ?", (video,)).fetchall():
        windows = [(float(a), float(b)) for a, b in json.loads(row["windows"])]
        hit = touches(windows, start, end)
        if not any(hit):
            continue
        left = [w for w, h in zip(windows, hit, strict=True) if not h]
        if left:
            connection.execute("UPDATE corrections SET windows = ? WHERE id = ?", (json.dumps(left), row["id"]))
        else:
            connection.execute("DELETE FROM corrections WHERE id = ?", (row["id"],))


def _history(connection: sqlite3.Connection, video: str, start: float, end: float) -> None:
    """Questions whose answer showed the span."""
    for row in connection.execute(
        "SELECT id, answer FROM history WHERE instr(answer, ?) > 0", (json.dumps(video),)
    ).fetchall():
        answer = json.loads(row["answer"])
        shown = [m for name in ("moments", "tracks") for m in answer.get(name, ())]
        windows = [(float(m["start"]), float(m["end"])) for m in shown if m.get("video") == video]
        if any(touches(windows, start, end)):
            connection.execute("DELETE FROM history WHERE id = ?", (row["id"],))
