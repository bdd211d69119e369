"""Tables of the library, as steps from one schema version to the next. Never edit a released step; add one."""

STEPS = (
    """
    CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE videos (
        id TEXT PRIMARY KEY, path TEXT NOT NULL, parts TEXT NOT NULL, duration REAL NOT NULL, width INTEGER NOT NULL,
        height INTEGER NOT NULL, recorded_at TEXT, faults TEXT NOT NULL DEFAULT '', added TEXT NOT NULL
    );
    CREATE TABLE files (
        path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, digest TEXT NOT NULL, video TEXT
    );
    CREATE INDEX files_by_video ON files (video);
    CREATE TABLE indexed (
        video TEXT NOT NULL, profile TEXT NOT NULL, state TEXT NOT NULL, rate REAL NOT NULL, note TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (video, profile)
    );
    CREATE TABLE takes (
        id INTEGER PRIMARY KEY AUTOINCREMENT, video TEXT NOT NULL, profile TEXT NOT NULL, kind TEXT NOT NULL,
        rate REAL NOT NULL, global_dim INTEGER NOT NULL, region_dim INTEGER NOT NULL, rows INTEGER NOT NULL DEFAULT 0,
        groups INTEGER NOT NULL DEFAULT 0, regions INTEGER NOT NULL DEFAULT 0, seconds REAL NOT NULL DEFAULT 0,
        until REAL NOT NULL DEFAULT 0, UNIQUE (video, profile, kind)
    );
    CREATE TABLE segments (
        name TEXT PRIMARY KEY, profile TEXT NOT NULL, samples INTEGER NOT NULL, spans TEXT NOT NULL
    );
    CREATE TABLE forgotten (video TEXT NOT NULL, start REAL NOT NULL, stop REAL NOT NULL);
    CREATE INDEX forgotten_by_video ON forgotten (video);
    CREATE TABLE corrections (
        id TEXT PRIMARY KEY, key TEXT NOT NULL, query TEXT NOT NULL, kind TEXT NOT NULL, video TEXT NOT NULL,
        windows TEXT NOT NULL, created TEXT NOT NULL
    );
    CREATE INDEX corrections_by_key ON corrections (key, video);
    CREATE TABLE history (
        id INTEGER PRIMARY KEY AUTOINCREMENT, query TEXT NOT NULL, kind TEXT NOT NULL, answer TEXT NOT NULL,
        created TEXT NOT NULL
    )
    """,
)
