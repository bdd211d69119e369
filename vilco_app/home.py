"""Where a person's library and models lie."""

from __future__ import annotations

from pathlib import Path


def resolve_home(home: str | Path | None = None) -> Path:
    """The data folder: the argument, else $VILCO_HOME, else the checkout that holds app.py, else the user's data folder.

    It holds `indexes/` (library) and `models/` (snapshots and converted encoders).
    """
    import os

    if home is not None:
        return Path(home).expanduser().resolve()
    if os.environ.get("VILCO_HOME"):
        return Path(os.environ["VILCO_HOME"]).expanduser().resolve()
    checkout = Path(__file__).resolve().parent.parent
    if (checkout / "app.py").is_file() and (checkout / "pyproject.toml").is_file():
        return checkout
    import platformdirs

    return Path(platformdirs.user_data_dir("vilco", appauthor=False))
