"""One SQLite file shared by threads and processes: write-ahead log, busy timeout, stepwise migrations per component."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vilco_app.values import VilcoError

BUSY_SECONDS = 30.0  # longest write transaction of ours is far below a second; beyond this somebody hangs


def storage_error(error: Exception, where: Path) -> VilcoError:
    """Turn a low-level failure to read or write below `where` into what a person can act on."""
    import errno

    text = str(error).lower()
    number = getattr(error, "errno", None)
    if "disk is full" in text or number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return VilcoError(
            "disk-full", f"{where}: no space left to write ({error}).",
            "Free some space and run the same command again; everything indexed so far is kept.",
        )  # fmt: skip
    if "readonly" in text or "read-only" in text or "unable to open" in text or number in (
        errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST,
    ):  # fmt: skip
        return VilcoError(
            "home-not-writable", f"{where}: cannot be written ({error}).",
            "Point VILCO_HOME to a folder you may write to, or change the permissions of this one.",
        )  # fmt: skip
    if "locked" in text or "busy" in text:
        return VilcoError(
            "library-busy", f"{where}: another process held the library for {BUSY_SECONDS:.0f} s.",
            "Try again; if it stays so, end the vilco process that hangs.",
        )  # fmt: skip
    if isinstance(error, sqlite3.DatabaseError) and ("malformed" in text or "not a database" in text):
        return VilcoError(
            "damaged-library", f"{where}: the catalogue is damaged ({error}).",
            "Move the file away and add your videos again, or restore it from a backup.",
        )  # fmt: skip
    return VilcoError("storage-failed", f"{where}: {error}.", "Check the disk and the folder, then try again.")


class Database:
    """Connections to one file, one per thread.

    component, steps: steps[i] takes the component's tables from schema version i to i + 1; a file written by a later
    version is refused with VilcoError("newer-library"). Where the folder cannot be written, an existing library is
    opened for reading only.
    """

    def __init__(self, path: Path, component: str, steps: Sequence[str]) -> None:
        self.path, self.component, self.steps = path, component, tuple(steps)
        self._local = threading.local()
        self.read_only = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._migrate()
        except (sqlite3.Error, OSError) as error:
            failure = storage_error(error, path)
            if failure.code != "home-not-writable" or not path.is_file():
                raise failure from error
            self.read_only = True
            self._local = threading.local()
            self._check_version(self._version(self._connection()))

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            if self.read_only:
                connection = self._connect_to_read()
            else:
                connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA secure_delete = ON")  # what a person removes is overwritten, not unlinked
                connection.execute(
                    "PRAGMA synchronous = NORMAL"
                )  # data files are synced before their rows are committed
            connection.row_factory = sqlite3.Row
            self._local.connection = connection
        return connection

    def _connect_to_read(self) -> sqlite3.Connection:
        """Where nothing may be written, not even the log's own lock file, the file is read as it lies there."""
        for how in ("mode=ro", "mode=ro&immutable=1"):
            uri = f"{self.path.as_uri()}?{how}"
            connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
            try:
                connection.execute("SELECT 1 FROM sqlite_master").fetchone()
                return connection
            except sqlite3.OperationalError as error:
                failure = error
                connection.close()
        raise failure

    def _version(self, connection: sqlite3.Connection) -> int:
        known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_versions'").fetchone()
        if known is None:
            return 0
        row = connection.execute(
            "SELECT version FROM schema_versions WHERE component = ?", (self.component,)
        ).fetchone()
        return int(row[0]) if row else 0

    def _check_version(self, version: int) -> None:
        if version > len(self.steps):
            raise VilcoError(
                "newer-library",
                f"{self.path}: written by a newer vilco ({self.component} schema {version}, this one knows {len(self.steps)}).",
                "Update vilco, or use another VILCO_HOME.",
            )

    def _migrate(self) -> None:
        connection = self._connection()
        version = self._version(connection)
        self._check_version(version)
        if version == len(self.steps):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS schema_versions (component TEXT PRIMARY KEY, version INTEGER)"
            )
            version = self._version(connection)  # another process may have migrated while we waited
            self._check_version(version)
            for number, step in enumerate(self.steps[version:], start=version + 1):
                for statement in filter(None, (part.strip() for part in step.split(";"))):
                    connection.execute(statement)
                connection.execute("INSERT OR REPLACE INTO schema_versions VALUES (?, ?)", (self.component, number))
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def read(self, sql: str, arguments: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """All rows of a query. Raises VilcoError on a storage failure."""
        try:
            return self._connection().execute(sql, arguments).fetchall()
        except sqlite3.Error as error:
            raise storage_error(error, self.path) from error

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: everything inside happens, or nothing. Not to be nested. Raises VilcoError."""
        connection = self._connection()
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise storage_error(error, self.path) from error
