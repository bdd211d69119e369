"""Footage in which the same things recur under names nobody can know: to ask whether teaching helps other recordings.

Real photos that ship with installed packages are filmed: each of several recordings shows ten of twelve things, each once,
in another view (cut, mirrored, lit, tinted, panned over; filling the frame, or pasted small onto something else), between
stretches of other pictures. The same seed gives the same films. Fixed before anything was measured on it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vilco_app.values import VilcoError

PHOTOS = {  # the things: package and file
    "cheetah": ("gradio", "media_assets/images/cheetah1.jpg"),
    "groot": ("gradio", "media_assets/images/groot.jpeg"),
    "lion": ("gradio", "media_assets/images/lion.jpg"),
    "tower": ("gradio", "media_assets/images/tower.jpg"),
    "astronaut": ("skimage", "data/astronaut.png"),
    "cat": ("skimage", "data/chelsea.png"),
    "coffee": ("skimage", "data/coffee.png"),
    "coins": ("skimage", "data/coins.png"),
    "motorcycle": ("skimage", "data/motorcycle_left.png"),
    "rocket": ("skimage", "data/rocket.jpg"),
    "pagoda": ("sklearn", "datasets/images/china.jpg"),
    "flower": ("sklearn", "datasets/images/flower.jpg"),
}
OTHERS = (  # what is filmed between them and behind them, and never asked for
    ("gradio", "media_assets/images/cheetah.jpg"),
    ("gradio", "media_assets/images/bus.png"),
    ("skimage", "data/brick.png"),
    ("skimage", "data/camera.png"),
    ("skimage", "data/grass.png"),
    ("skimage", "data/gravel.png"),
    ("skimage", "data/horse.png"),
    ("skimage", "data/hubble_deep_field.jpg"),
    ("skimage", "data/ihc.png"),
    ("skimage", "data/moon.png"),
    ("skimage", "data/page.png"),
    ("skimage", "data/retina.jpg"),
    ("skimage", "data/text.png"),
    ("skimage", "data/color.png"),
)
MADE_UP = ("blorp", "zibbit", "quandle", "fimmo", "drasket", "wuggle", "plonth", "skerrity", "tovin", "glimsy", "mirtle", "krobbin")  # fmt: skip
PERSONAL = (  # as taught, and as asked
    ("the thing Anna brought from Lisbon", "Anna's souvenir from Portugal"),
    ("grandma's birthday present", "what grandmother got as a gift"),
    ("Tom's favourite", "the one Tom likes best"),
    ("my lucky charm", "the talisman that brings me luck"),
    ("the thing we argued about", "what our quarrel was over"),
    ("the heirloom from uncle Joe", "what uncle Joe left us in his will"),
    ("the prize from the school raffle", "what we won in the tombola at school"),
    ("our secret project", "the plan nobody else may know of"),
    ("the thing the neighbour wants back", "what belongs to the man next door"),
    ("my homework for Mr Okafor", "the assignment Mr Okafor set me"),
    ("the broken one", "the one that needs repair"),
    ("the insurance claim", "what the insurer has to pay for"),
)
ORDINARY = {  # as taught, and as asked
    "cheetah": ("the cheetah", "a spotted big cat"),
    "groot": ("the tree man", "a wooden creature"),
    "lion": ("the lion", "a big cat with a mane"),
    "tower": ("the tower", "the tall iron structure at night"),
    "astronaut": ("the astronaut", "a woman in a spacesuit"),
    "cat": ("the cat", "a kitten"),
    "coffee": ("the coffee", "a cup of espresso"),
    "coins": ("the coins", "old money"),
    "motorcycle": ("the motorcycle", "a motorbike"),
    "rocket": ("the rocket", "a spacecraft on its launch pad"),
    "pagoda": ("the pagoda", "a Chinese temple"),
    "flower": ("the flower", "an orange blossom"),
}
KINDS = ("made-up", "personal", "ordinary")
ASKED = ("find the part that shows {}", "show me {}", "where was {}?")  # in turn


@dataclass(frozen=True)
class Settings:
    """rate: frames per second of the films (the library samples 2). shown: things per recording. showing, between:
    seconds a thing, and what lies between two, is in view. small: share of showings pasted onto another picture, of `size`
    of the frame's height. cut: share of the photo that is seen. light, tint: factors of all channels, and of each."""

    recordings: int = 8
    taught: int = 3
    shown: int = 10
    rate: int = 4
    width: int = 384
    height: int = 256
    showing: tuple[float, float] = (5.0, 9.0)
    between: tuple[float, float] = (3.0, 6.0)
    small: float = 0.5
    size: tuple[float, float] = (0.4, 0.7)
    cut: tuple[float, float] = (0.5, 0.95)
    light: tuple[float, float] = (0.6, 1.3)
    tint: tuple[float, float] = (0.85, 1.15)
    seed: int = 7


@dataclass(frozen=True)
class Film:
    """A recording to be made: what is shown when. showings: (thing, or "" for something else, start, end) in seconds."""

    number: int
    showings: tuple[tuple[str, float, float], ...]

    def windows(self, thing: str) -> list[list[float]]:
        return [[s, e] for t, s, e in self.showings if t == thing]


def films(settings: Settings) -> list[Film]:
    """What each recording shows: a random choice of things in random order, each once."""
    out = []
    for k in range(settings.recordings):
        rng = np.random.default_rng((settings.seed, k))
        showings, now = [], 0.0
        for thing in rng.permutation(sorted(PHOTOS))[: settings.shown]:
            for name, span in (("", settings.between), (str(thing), settings.showing)):
                seconds = round(float(rng.uniform(*span)) * settings.rate) / settings.rate
                showings.append((name, now, now + seconds))
                now += seconds
        out.append(Film(k, (*showings, ("", now, now + settings.between[0]))))
    return out


def names(training: int) -> dict[str, tuple[str, str, str]]:
    """thing -> (kind of name, as taught, as asked), without asking words. Three trainings name each thing in each way."""
    rng = np.random.default_rng((11, training))
    made, personal = rng.permutation(len(MADE_UP)), rng.permutation(len(PERSONAL))
    out = {}
    for k, thing in enumerate(sorted(PHOTOS)):
        kind = KINDS[(k + training) % 3]
        if kind == "made-up":
            word = MADE_UP[made[k]]
            out[thing] = kind, f"my {word}", f"that {word} of mine"
        else:
            out[thing] = (kind, *(PERSONAL[personal[k]] if kind == "personal" else ORDINARY[thing]))
    return out


def write_film(film: Film, settings: Settings, path: Path) -> None:
    """The recording as an H.264 file. Raises VilcoError when a package whose photos are filmed is not installed."""
    import av

    things = {name: _photo(*where) for name, where in PHOTOS.items()}
    others = [_photo(*where) for where in OTHERS]
    rng = np.random.default_rng((settings.seed, 1000 + film.number))
    with av.open(str(path), "w") as container:
        options = {"crf": "23", "preset": "ultrafast", "threads": "1"}
        stream = container.add_stream("libx264", rate=settings.rate, options=options)
        stream.width, stream.height, stream.pix_fmt = settings.width, settings.height, "yuv420p"
        for thing, start, end in film.showings:
            behind = others[int(rng.integers(len(others)))]
            count = round((end - start) * settings.rate)
            if not thing:
                frames = _view(behind, count, (settings.width, settings.height), settings, rng)
            elif rng.random() < settings.small:
                frames = _pasted(things[thing], behind, count, settings, rng)
            else:
                frames = _view(things[thing], count, (settings.width, settings.height), settings, rng)
            for frame in frames:
                for packet in stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")):
                    container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def _view(
    photo: np.ndarray, count: int, size: tuple[int, int], settings: Settings, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """count frames [h, w, 3] uint8 of `size` (w, h): a slow pan of a cut of the photo, mirrored or not, lit and tinted."""
    from PIL import Image

    if rng.random() < 0.5:
        photo = photo[:, ::-1]
    factor = rng.uniform(*settings.light) * rng.uniform(*settings.tint, size=3)
    height, width = photo.shape[:2]
    share = rng.uniform(*settings.cut)
    w = min(width, height * size[0] / size[1]) * share
    h = w * size[1] / size[0]
    begin, end = rng.uniform(size=2), rng.uniform(size=2)
    for k in range(count):
        x, y = (begin + (end - begin) * k / count) * (width - w, height - h)
        cut = Image.fromarray(np.ascontiguousarray(photo[int(y) : int(y + h), int(x) : int(x + w)])).resize(size)
        yield np.clip(np.asarray(cut, dtype=np.float32) * factor, 0, 255).astype(np.uint8)


def _pasted(
    photo: np.ndarray, behind: np.ndarray, count: int, settings: Settings, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """As `_view` of what is behind, with a smaller view of the photo moving over it, now and then partly out of the frame."""
    tall = int(settings.height * rng.uniform(*settings.size))
    size = (int(tall * rng.uniform(0.8, 1.3)), tall)
    begin, end = rng.uniform(-0.2, 1.2, size=2), rng.uniform(-0.2, 1.2, size=2)
    frames = _view(behind, count, (settings.width, settings.height), settings, rng)
    for k, (frame, thing) in enumerate(zip(frames, _view(photo, count, size, settings, rng), strict=True)):
        place = np.clip(begin + (end - begin) * k / count, -0.2, 1.2)
        x, y = (int(v) for v in place * (settings.width - size[0], settings.height - size[1]))
        x0, y0 = max(0, x), max(0, y)
        x1, y1 = min(settings.width, x + size[0]), min(settings.height, y + size[1])
        frame[y0:y1, x0:x1] = thing[y0 - y : y1 - y, x0 - x : x1 - x]
        yield frame


def _photo(package: str, file: str) -> np.ndarray:
    """[H, W, 3] uint8; what is transparent is white."""
    from PIL import Image

    spec = importlib.util.find_spec(package)
    path = Path(spec.origin).parent / file if spec is not None and spec.origin is not None else None
    if path is None or not path.is_file():
        raise VilcoError(
            "no-photos", f"the footage is made of photos of {package}, which has no {file} here.",
            "pip install scikit-image scikit-learn, or name footage of your own: --cases DIR",
        )  # fmt: skip
    image = Image.open(path).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image).convert("RGB"))
