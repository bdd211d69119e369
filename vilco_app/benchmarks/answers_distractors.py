"""Distractor footage given by the person: any videos of a folder, varied where they are too short for the hours asked.

The files are indexed as they are. What is missing is filled by passes over all of them, each mirrored at random, sped up or
slowed, cut to a part of the frame and re-lit: real footage with its blur, hands and clutter, but the more passes it takes,
the less new there is to see. The report says how many seconds of different footage there were.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from vilco_app.benchmarks.answers_haystack import HEIGHT, RATE, WIDTH
from vilco_app.values import VilcoError

SPEEDS = (0.5, 2.0)  # walking on against standing still
SHARES = (0.6, 1.0)  # of the frame's sides
LIGHTS = (0.75, 1.25)


def given_files(folder: Path, asked: Path, clips: Collection[str]) -> list[Path]:
    """The videos right in the folder, but for `asked` itself and what shares a clip with it.

    clips: names of the source clips the asked video is joined from. A file shares one when it has such a name, or when the
    NAME.json beside it lists one among its segments. Raises VilcoError when nothing is left.
    """
    from vilco_app.library.identity import SUFFIXES

    found = [p for p in sorted(folder.glob("*")) if p.suffix.lower() in SUFFIXES]
    left = [p for p in found if p.resolve() != asked.resolve() and not set(clips) & {p.name, *segment_clips(p)}]
    if not left:
        raise VilcoError(
            "no-distractors",
            f"{folder}: {len(found)} videos, none of which is free of what {asked.name} shows.",
            "Name a folder of other videos with --distractors.",
        )
    return left


def segment_clips(video: Path) -> set[str]:
    """Names of the clips a labelled video is joined from (NAME.json beside NAME.mp4); empty when it does not say."""
    try:
        segments = json.loads(video.with_suffix(".json").read_text()).get("segments", [])
        return {str(s["clip"]) for s in segments if "clip" in s}
    except (OSError, ValueError, TypeError, AttributeError):
        return set()


def seconds_of(files: Sequence[Path]) -> float:
    from vilco_app.video import probe

    return sum(probe(p).duration for p in files)


def varied(files: Sequence[Path], seed: int) -> Iterator[np.ndarray]:
    """Endless frames [HEIGHT, WIDTH, 3] uint8 at RATE: pass after pass over the files, each file varied anew every time."""
    from PIL import Image

    from vilco_app.video import open_recording, samples

    rng = np.random.default_rng(seed)
    while True:
        for i in rng.permutation(len(files)):
            mirrored, low, high = rng.random() < 0.5, *np.log(SPEEDS)
            speed, share, light = float(np.exp(rng.uniform(low, high))), rng.uniform(*SHARES), rng.uniform(*LIGHTS)
            place = rng.uniform(size=2)
            recording = open_recording([files[i]])
            for batch in samples(recording, RATE / speed, HEIGHT):
                for frame in batch.frames:
                    x, y, w, h = part(frame.shape[1], frame.shape[0], share, place)
                    cut = Image.fromarray(frame).resize((WIDTH, HEIGHT), box=(x, y, x + w, y + h))
                    pixels = np.asarray(cut, dtype=np.float32)[:, :: -1 if mirrored else 1]
                    yield np.clip(pixels * light, 0, 255).astype(np.uint8)


def part(width: int, height: int, share: float, place: np.ndarray) -> tuple[float, float, float, float]:
    """-> (x, y, w, h): `share` of the largest part of a frame that has our shape; place [2] in [0, 1]: where it lies."""
    w = min(width, height * WIDTH / HEIGHT) * share
    h = w * HEIGHT / WIDTH
    return float(place[0] * (width - w)), float(place[1] * (height - h)), w, h
