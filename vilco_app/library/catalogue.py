"""The catalogue: recordings, files, takes, segments, corrections, in one SQLite file shared by threads and processes."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path

from vilco_app.jobs.database import Database
from vilco_app.library.records import FileRecord, IndexedRecord, SegmentRecord, Span, Take, TakeKind, VideoRecord
from vilco_app.library.schema import STEPS
from vilco_app.values import Correction, Kind, VilcoError

REMEMBERED = 1000  # answers kept in the question history


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def bump(connection: sqlite3.Connection) -> None:
    """Tell every reader that what it may search has changed (part of the same transaction)."""
    connection.execute(
        "INSERT INTO settings VALUES ('version', '1') ON CONFLICT (name) DO UPDATE SET value = CAST(value AS INTEGER) + 1"
    )


def to_take(row: sqlite3.Row) -> Take:
    return Take(**{key: row[key] for key in row.keys()})  # noqa: SIM118


def to_segment(row: sqlite3.Row) -> SegmentRecord:
    return SegmentRecord(row["name"], row["profile"], row["samples"], tuple(Span(*s) for s in json.loads(row["spans"])))


class Catalogue:
    """Typed access to the library's tables. Every method is one transaction; raises VilcoError on storage failures."""

    def __init__(self, path: Path) -> None:
        self.db = Database(path, "library", STEPS)

    # Settings

    def version(self) -> int:
        """Grows whenever takes, segments or recordings change: cached views of an older version are stale."""
        return int(self.setting("version") or 0)

    def setting(self, name: str) -> str | None:
        rows = self.db.read("SELECT value FROM settings WHERE name = ?", (name,))
        return rows[0]["value"] if rows else None

    def put_setting(self, name: str, value: str) -> None:
        with self.db.write() as connection:
            connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    # Recordings and their files

    def videos(self, ids: Sequence[str] | None = None) -> list[VideoRecord]:
        """All recordings (or those asked for), oldest first."""
        rows = self.db.read("SELECT * FROM videos ORDER BY added, rowid")
        wanted = None if ids is None else set(ids)
        return [
            VideoRecord(
                r["id"], r["path"], tuple(json.loads(r["parts"])), r["duration"], r["width"], r["height"],
                r["recorded_at"], r["faults"],
            )
            for r in rows if wanted is None or r["id"] in wanted
        ]  # fmt: skip

    def put_video(self, video: VideoRecord, files: Iterable[FileRecord]) -> None:
        """Insert or update a recording together with the files it was made from."""
        with self.db.write() as connection:
            connection.execute(
                "INSERT INTO videos VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET path = excluded.path, "
                "parts = excluded.parts",
                (video.id, video.path, json.dumps(video.parts), video.duration, video.width, video.height,
                 video.recorded_at, video.faults, now()),
            )  # fmt: skip
            self._put_files(connection, files)
            bump(connection)

    def set_duration(self, video: str, duration: float) -> None:
        """Correct a duration that the container had wrong."""
        with self.db.write() as connection:
            connection.execute("UPDATE videos SET duration = ? WHERE id = ?", (duration, video))
            bump(connection)

    def files(self) -> dict[str, FileRecord]:
        """All known files by path."""
        rows = self.db.read("SELECT * FROM files")
        return {r["path"]: FileRecord(r["path"], r["size"], r["mtime_ns"], r["digest"], r["video"]) for r in rows}

    def files_of(self, video: str) -> list[FileRecord]:
        """The files a recording is made of now, as they were when its id was made (copies elsewhere do not count)."""
        listed = self.db.read("SELECT parts FROM videos WHERE id = ?", (video,))
        parts = {path for row in listed for path in json.loads(row["parts"])}
        rows = self.db.read("SELECT * FROM files WHERE video = ?", (video,))
        files = [FileRecord(r["path"], r["size"], r["mtime_ns"], r["digest"], r["video"]) for r in rows]
        return [file for file in files if file.path in parts]

    def put_files(self, files: Iterable[FileRecord]) -> None:
        with self.db.write() as connection:
            self._put_files(connection, files)

    def _put_files(self, connection: sqlite3.Connection, files: Iterable[FileRecord]) -> None:
        connection.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", [astuple(f) for f in files])

    def delete_video(self, video: str) -> None:
        """Drop a recording with its takes, corrections and history; its files are known no more.

        Its forgotten spans are kept: adding the same content again must not bring back what a person had removed.
        """
        with self.db.write() as connection:
            for table in ("indexed", "takes", "corrections", "files"):
                connection.execute(f"DELETE FROM {table} WHERE video = ?", (video,))
            connection.execute("DELETE FROM videos WHERE id = ?", (video,))
            connection.execute("DELETE FROM history WHERE instr(answer, ?) > 0", (json.dumps(video),))
            bump(connection)

    # How far a recording is, per profile

    def indexed(self, profile: str | None = None) -> list[IndexedRecord]:
        if profile is None:
            rows = self.db.read("SELECT * FROM indexed")
        else:
            rows = self.db.read("SELECT * FROM indexed WHERE profile = ?", (profile,))
        return [IndexedRecord(r["video"], r["profile"], r["state"], r["rate"], r["note"]) for r in rows]

    def set_indexed(self, record: IndexedRecord) -> None:
        """Nothing happens when the recording has been removed meanwhile."""
        with self.db.write() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO indexed SELECT ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM videos WHERE id = ?)",
                (*astuple(record), record.video),
            )
            bump(connection)

    # Takes

    def takes(self, profile: str | None = None, video: str | None = None) -> list[Take]:
        rows = self.db.read(
            "SELECT * FROM takes WHERE (? IS NULL OR profile = ?) AND (? IS NULL OR video = ?) ORDER BY id",
            (profile, profile, video, video),
        )
        return [to_take(row) for row in rows]

    def new_take(self, video: str, profile: str, kind: TakeKind, rate: float, global_dim: int, region_dim: int) -> Take:
        """Raises VilcoError("no-such-video") when the recording has been removed meanwhile."""
        with self.db.write() as connection:
            cursor = connection.execute(
                "INSERT INTO takes (video, profile, kind, rate, global_dim, region_dim) SELECT ?, ?, ?, ?, ?, ? "
                "WHERE EXISTS (SELECT 1 FROM videos WHERE id = ?)",
                (video, profile, kind, rate, global_dim, region_dim, video),
            )
            if cursor.rowcount != 1:
                raise VilcoError("no-such-video", f"{video}: was removed while it was indexed.", "Add it again.")
            return Take(int(cursor.lastrowid or 0), video, profile, kind, rate, global_dim, region_dim)

    def commit_take(self, take: Take) -> bool:
        """Publish a take's new counts; False when it is no longer in the catalogue (removed, forgotten, replaced)."""
        with self.db.write() as connection:
            cursor = connection.execute(
                "UPDATE takes SET rows = ?, groups = ?, regions = ?, seconds = ?, until = ? WHERE id = ?",
                (take.rows, take.groups, take.regions, take.seconds, take.until, take.id),
            )
            bump(connection)
            return cursor.rowcount == 1

    def delete_takes(self, ids: Sequence[int]) -> None:
        with self.db.write() as connection:
            connection.executemany("DELETE FROM takes WHERE id = ?", [(i,) for i in ids])
            bump(connection)

    def demote_take(self, take: Take) -> None:
        """A full take becomes the preview of a finer one that replaces it progressively."""
        with self.db.write() as connection:
            connection.execute(
                "DELETE FROM takes WHERE video = ? AND profile = ? AND kind = 'preview'", (take.video, take.profile)
            )
            connection.execute("UPDATE takes SET kind = 'preview' WHERE id = ?", (take.id,))
            bump(connection)

    # Segments

    def segments(self, profile: str) -> list[SegmentRecord]:
        return [
            to_segment(r) for r in self.db.read("SELECT * FROM segments WHERE profile = ? ORDER BY name", (profile,))
        ]

    def profiles(self) -> list[str]:
        """Profiles that have takes or segments."""
        rows = self.db.read("SELECT profile FROM takes UNION SELECT profile FROM segments")
        return [row["profile"] for row in rows]

    def segment_names(self) -> set[str]:
        return {r["name"] for r in self.db.read("SELECT name FROM segments")}

    def switch_segments(self, old: Sequence[str], new: Sequence[SegmentRecord]) -> None:
        """The atomic switch from one generation of a profile's segments to the next."""
        with self.db.write() as connection:
            connection.executemany("DELETE FROM segments WHERE name = ?", [(name,) for name in old])
            connection.executemany(
                "INSERT INTO segments VALUES (?, ?, ?, ?)",
                [(s.name, s.profile, s.samples, json.dumps([astuple(span) for span in s.spans])) for s in new],
            )
            bump(connection)

    # Corrections, history, forgotten spans

    def corrections(self, key: str | None, videos: Iterable[str] | None) -> list[Correction]:
        """By key (None: all), on the given recordings (None: all), oldest first."""
        rows = self.db.read("SELECT * FROM corrections WHERE ? IS NULL OR key = ? ORDER BY created, rowid", (key, key))
        wanted = None if videos is None else set(videos)
        return [
            Correction(
                r["id"], r["key"], r["query"], r["kind"], r["video"],
                tuple((float(a), float(b)) for a, b in json.loads(r["windows"])), r["created"],
            )
            for r in rows if wanted is None or r["video"] in wanted
        ]  # fmt: skip

    def correct(
        self, key: str, query: str, kind: Kind, video: str, windows: Sequence[tuple[float, float]]
    ) -> Correction:
        """File a correction; a newer one of the same question on the same recording replaces the older."""
        correction = Correction(uuid.uuid4().hex[:12], key, query, kind, video, tuple(windows), now())
        with self.db.write() as connection:
            connection.execute("DELETE FROM corrections WHERE key = ? AND video = ?", (key, video))
            connection.execute(
                "INSERT INTO corrections VALUES (?, ?, ?, ?, ?, ?, ?)",
                (correction.id, key, query, kind, video, json.dumps(correction.windows), correction.created),
            )
        return correction

    def delete_correction(self, correction: str) -> bool:
        with self.db.write() as connection:
            return connection.execute("DELETE FROM corrections WHERE id = ?", (correction,)).rowcount == 1

    def forgotten(self, video: str | None = None) -> dict[str, tuple[tuple[float, float], ...]]:
        """Spans (start, end) a person had removed, by recording, in time order."""
        rows = self.db.read("SELECT * FROM forgotten WHERE ? IS NULL OR video = ? ORDER BY start", (video, video))
        spans: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            spans.setdefault(row["video"], []).append((row["start"], row["stop"]))
        return {key: tuple(value) for key, value in spans.items()}

    def remember(self, query: str, kind: str, answer: str) -> None:
        """Keep an answer (its JSON) in the question history."""
        with self.db.write() as connection:
            connection.execute(
                "INSERT INTO history (query, kind, answer, created) VALUES (?, ?, ?, ?)", (query, kind, answer, now())
            )
            connection.execute("DELETE FROM history WHERE id <= (SELECT max(id) FROM history) - ?", (REMEMBERED,))

    def clear_history(self) -> int:
        with self.db.write() as connection:
            return connection.execute("DELETE FROM history").rowcount

    def history(self, limit: int) -> list[tuple[str, str, str, str]]:
        """(query, kind, answer JSON, created), newest first."""
        rows = self.db.read("SELECT query, kind, answer, created FROM history ORDER BY id DESC LIMIT ?", (limit,))
        return [tuple(row) for row in rows]
