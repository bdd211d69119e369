"""The durable job table: who asked for what, how far it is, how it ended."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vilco_app.jobs.database import Database
from vilco_app.jobs.types import Job
from vilco_app.values import VilcoError

STEPS = (
    """
    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, key TEXT NOT NULL, label TEXT NOT NULL,
        payload TEXT NOT NULL, state TEXT NOT NULL, stop INTEGER NOT NULL DEFAULT 0,
        done REAL NOT NULL DEFAULT 0, total REAL NOT NULL DEFAULT 0, text TEXT NOT NULL DEFAULT '',
        error TEXT, result TEXT NOT NULL DEFAULT '{}', attempts INTEGER NOT NULL DEFAULT 0,
        claim INTEGER NOT NULL DEFAULT 0, created TEXT NOT NULL, updated TEXT NOT NULL
    );
    CREATE INDEX jobs_by_state ON jobs (state, id)
    """,
)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def catalogue_path(home: Path) -> Path:
    """The one SQLite file of a home."""
    return home / "indexes" / "catalogue.sqlite"


def to_job(row: sqlite3.Row) -> Job:
    return Job(
        id=row["id"], kind=row["kind"], label=row["label"], payload=json.loads(row["payload"]), state=row["state"],
        done=row["done"], total=row["total"], text=row["text"], error=json.loads(row["error"]) if row["error"] else None,
        result=json.loads(row["result"]), attempts=row["attempts"], created=row["created"], updated=row["updated"],
    )  # fmt: skip


class JobTable:
    """Rows of the job table as `Job` records; every change is one transaction."""

    def __init__(self, home: Path) -> None:
        self.db = Database(catalogue_path(home), "jobs", STEPS)

    def enqueue(self, kind: str, payload: dict[str, Any], label: str = "", key: str = "") -> int:
        """Add a job and return its id. With a key, an unfinished job of the same kind and key is returned instead.

        A stopped job of that key goes back to waiting: asking for the same thing again means going on with it.
        """
        with self.db.write() as connection:
            if key:
                row = connection.execute(
                    "SELECT id FROM jobs WHERE kind = ? AND key = ? AND state IN ('waiting', 'running', 'stopped') "
                    "ORDER BY id DESC LIMIT 1", (kind, key),
                ).fetchone()  # fmt: skip
                if row is not None:
                    connection.execute(
                        "UPDATE jobs SET stop = 0, payload = ?, state = CASE state WHEN 'stopped' THEN 'waiting' ELSE state "
                        "END WHERE id = ?", (json.dumps(payload), row["id"]),
                    )  # fmt: skip
                    return int(row["id"])
            cursor = connection.execute(
                "INSERT INTO jobs (kind, key, label, payload, state, created, updated) VALUES (?, ?, ?, ?, 'waiting', ?, ?)",
                (kind, key, label or kind, json.dumps(payload), now(), now()),
            )
            return int(cursor.lastrowid or 0)

    def get(self, job_id: int) -> Job:
        """Raises VilcoError("no-such-job")."""
        rows = self.db.read("SELECT * FROM jobs WHERE id = ?", (job_id,))
        if not rows:
            raise VilcoError("no-such-job", f"job {job_id}: there is none.", "See: vilco jobs")
        return to_job(rows[0])

    def list(self, limit: int = 100) -> list[Job]:
        """Unfinished jobs first, then the newest finished ones."""
        rows = self.db.read(
            "SELECT * FROM jobs ORDER BY state NOT IN ('running', 'waiting', 'stopped'), "
            "CASE WHEN state IN ('running', 'waiting', 'stopped') THEN id ELSE -id END LIMIT ?", (limit,),
        )  # fmt: skip
        return [to_job(row) for row in rows]

    def unfinished(self, kind: str) -> dict[str, int]:
        """Ids of the jobs of a kind that wait or run, by their key."""
        rows = self.db.read("SELECT id, key FROM jobs WHERE kind = ? AND state IN ('waiting', 'running')", (kind,))
        return {row["key"]: row["id"] for row in rows}

    def stop(self, job_id: int) -> Job:
        """Ask for a stop: a waiting job is stopped at once, a running one at its next check."""
        self.get(job_id)
        with self.db.write() as connection:
            connection.execute(
                "UPDATE jobs SET stop = state = 'running', state = CASE state WHEN 'waiting' THEN 'stopped' ELSE state END, "
                "updated = ? WHERE id = ? AND state IN ('waiting', 'running')", (now(), job_id),
            )  # fmt: skip
        return self.get(job_id)

    def resume(self, job_id: int) -> Job:
        """Put a stopped or failed job back into the queue; one that is done stays done."""
        self.get(job_id)
        with self.db.write() as connection:
            connection.execute(
                "UPDATE jobs SET stop = 0, error = NULL, attempts = 0, updated = ?, "
                "state = CASE WHEN state IN ('stopped', 'failed') THEN 'waiting' ELSE state END "
                "WHERE id = ? AND state != 'done'", (now(), job_id),
            )  # fmt: skip
        return self.get(job_id)

    # What only the worker (the process that holds the home's lock) does:

    def recover(self, limit: int) -> None:
        """Jobs marked running although nobody works: their worker died. Too many deaths without progress: failed."""
        with self.db.write() as connection:
            error = {
                "code": "worker-died", "message": f"the process working on it died {limit} times without progress.",
                "remedy": "Look at the file with: vilco doctor; then: vilco jobs resume ID",
            }  # fmt: skip
            connection.execute(
                "UPDATE jobs SET state = 'failed', error = ?, updated = ? WHERE state = 'running' AND attempts >= ?",
                (json.dumps(error), now(), limit),
            )
            connection.execute(
                "UPDATE jobs SET state = CASE stop WHEN 1 THEN 'stopped' ELSE 'waiting' END, stop = 0, updated = ? "
                "WHERE state = 'running'", (now(),),
            )  # fmt: skip

    def claim(self, kinds: tuple[str, ...], skip: frozenset[int], first: int = 0) -> tuple[Job, int] | None:
        """The next waiting job of these kinds, now running, with its claim number (older claims can change nothing).

        first: a job that goes before all others.
        """
        marks = ",".join("?" * len(kinds))
        with self.db.write() as connection:
            rows = connection.execute(
                f"SELECT * FROM jobs WHERE state = 'waiting' AND kind IN ({marks}) ORDER BY id != ?, id",
                (*kinds, first),
            ).fetchall()
            for row in rows:
                if row["id"] not in skip:
                    connection.execute(
                        "UPDATE jobs SET state = 'running', stop = 0, attempts = attempts + 1, claim = claim + 1, "
                        "updated = ? WHERE id = ?", (now(), row["id"]),
                    )  # fmt: skip
                    return to_job(row), int(row["claim"]) + 1
        return None

    def update(self, job_id: int, claim: int, done: float, total: float, text: str, kept: bool = False) -> bool:
        """Note progress; returns whether a stop was asked for (or the claim is no longer ours)."""
        with self.db.write() as connection:
            connection.execute(
                "UPDATE jobs SET attempts = CASE WHEN ? THEN 0 ELSE attempts END, done = ?, total = ?, text = ?, "
                "updated = ? WHERE id = ? AND claim = ? AND state = 'running'",
                (kept, done, total, text, now(), job_id, claim),
            )
        return self.stop_wanted(job_id, claim)

    def stop_wanted(self, job_id: int, claim: int) -> bool:
        rows = self.db.read("SELECT stop, claim, state FROM jobs WHERE id = ?", (job_id,))
        return not rows or bool(rows[0]["stop"]) or rows[0]["claim"] != claim or rows[0]["state"] != "running"

    def finish(
        self,
        job_id: int,
        claim: int,
        state: str,
        error: dict[str, str] | None = None,
        result: dict[str, Any] | None = None,
    ) -> None:
        with self.db.write() as connection:
            connection.execute(
                "UPDATE jobs SET state = ?, error = ?, result = ?, stop = 0, updated = ? "
                "WHERE id = ? AND claim = ? AND state = 'running'",
                (state, json.dumps(error) if error else None, json.dumps(result or {}), now(), job_id, claim),
            )
