"""Picture questions on a film made here: coloured things on grey rooms, seen by a profile that sees only colour."""

import av
import numpy as np
import pytest

from tests.answering_fakes import FakeLibrary, FakeProfile
from vilco_app.answering import Answerer, picture_digest
from vilco_app.answering.matching import best_box, match, mean_cell
from vilco_app.answering.shortlist import around_hits
from vilco_app.encoders.base import ImageVectors
from vilco_app.evaluation.visual import box_iou
from vilco_app.library.types import Hits, Stored
from vilco_app.values import Correction, Video, VisualQuery

SIDE, WIDE, RATE = 192, 256, 4
MAGENTA, GREEN = (200, 20, 200), (20, 180, 40)


def room(time, rng):
    frame = np.full((SIDE, WIDE, 3), 60 + 20 * (int(time) // 5 % 4), dtype=np.float32)
    frame[: SIDE // 3] += 30
    return frame + rng.normal(0, 3, frame.shape)


def thing_box(time):
    """Where the magenta thing is: 5 to 10 s and 20 to 24 s, sliding to the right; None: out of view."""
    for start, end in ((5.0, 10.0), (20.0, 24.0)):
        if start <= time < end:
            x = 0.15 + 0.08 * (time - start)
            return x, 0.4, x + 0.2, 0.7
    return None


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    path = tmp_path_factory.mktemp("film") / "film.mp4"
    rng = np.random.default_rng(0)
    frames = []
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=RATE, options={"crf": "10", "g": "8"})
        stream.width, stream.height, stream.pix_fmt = WIDE, SIDE, "yuv420p"
        for k in range(30 * RATE):
            frame = room(k / RATE, rng)
            for box, colour in (
                (thing_box(k / RATE), MAGENTA),
                ((0.7, 0.1, 0.9, 0.3) if 12 <= k / RATE < 15 else None, GREEN),
            ):
                if box is not None:
                    x1, y1, x2, y2 = (round(v * s) for v, s in zip(box, (WIDE, SIDE) * 2, strict=True))
                    frame[y1:y2, x1:x2] = colour
            frame = np.clip(frame, 0, 255).astype(np.uint8)
            frames.append(frame)
            for packet in stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return path, np.stack(frames)


class ColourProfile(FakeProfile):
    """Cells are mean colours, regions the cells of a coarse grid."""

    def __init__(self):
        super().__init__(3)

    def dense(self, frames):
        b, h, w, _ = frames.shape
        cut = frames[:, : h // 16 * 16, : w // 16 * 16].astype(np.float32)
        return cut.reshape(b, h // 16, 16, w // 16, 16, 3).mean((2, 4)) / 255

    def image(self, image):
        mean = image.reshape(-1, 3).mean(0) / 255
        return ImageVectors(mean, mean[None] / np.linalg.norm(mean))


@pytest.fixture(scope="module")
def library(film):
    path, frames = film
    picked = frames[:: RATE // 2]  # 2 samples per second
    n = len(picked)
    profile = ColourProfile()
    grid = picked.reshape(n, 6, SIDE // 6, 8, WIDE // 8, 3).mean((2, 4)).reshape(n, 48, 3) / 255
    spread = grid.max(-1) - grid.min(-1)
    regions = np.take_along_axis(grid, np.argsort(-spread, 1)[:, :8, None], 1)  # the eight most colourful tiles
    regions = (regions / np.linalg.norm(regions, axis=-1, keepdims=True)).reshape(-1, 3)
    video = Video("f" * 12, str(path), 30.0, "ready", 30.0, "fake@1", (str(path),), WIDE, SIDE)
    stored = Stored(
        video, np.arange(n) / 2, np.full(n, 0.5), picked.mean((1, 2)).astype(np.float16) / 255, np.arange(n),
        np.arange(n + 1) * 8, np.round(regions * 127).astype(np.int8), np.full(8 * n, 1 / 127, dtype=np.float32),
        np.tile(np.array([0, 0, 255, 255], dtype=np.uint8), (8 * n, 1)),
    )  # fmt: skip
    made = FakeLibrary([stored])
    made.profile = profile
    return made


def ask(library, colour, **options):
    picture = np.full((58, 51, 3), colour, dtype=np.uint8)
    query = VisualQuery(picture, picture_digest(picture), "thing.png")
    return query, Answerer(library, library.profile).find(query, library.videos(), **options)


def test_the_last_appearance_comes_first_with_its_track(library):
    _, answer = ask(library, MAGENTA, curve=True)
    assert answer.kind == "visual" and len(answer.moments) == len(answer.tracks) >= 2
    for moment, track in zip(answer.moments, answer.tracks, strict=True):
        assert moment == track.moment
        assert track.boxes and all(moment.start - 1e-6 <= b.time <= moment.end for b in track.boxes)
        assert [b.time for b in track.boxes] == sorted(b.time for b in track.boxes)
    last, earlier = answer.moments[:2]
    assert last.start >= 19.5 and last.end <= 24.5 and earlier.start >= 4.5 and earlier.end <= 10.5
    ious = [box_iou((b.x1, b.y1, b.x2, b.y2), thing_box(b.time)) for b in answer.tracks[0].boxes]
    assert np.mean(ious) > 0.5 and min(ious) > 0.25
    assert answer.found and len(answer.curves[0].times) == 60
    assert [m.score for m in answer.moments] == sorted((m.score for m in answer.moments), reverse=True)


def test_before_hides_what_comes_later(library):
    _, answer = ask(library, MAGENTA, before=22.0)
    assert all(m.end <= 22.0 for m in answer.moments)
    _, early = ask(library, MAGENTA, before=19.0)
    assert 4.5 <= early.moments[0].start < 10.0


def test_something_else_is_found_where_it_is(library):
    _, answer = ask(library, GREEN, top=1)
    assert len(answer.tracks) == 1 and 11.5 <= answer.moments[0].start < 15.0


def test_a_corrected_picture_answers_first(library):
    query, _ = ask(library, MAGENTA)
    library.said.append(Correction("c", f"visual:{query.digest}", "x", "visual", "f" * 12, ((6.0, 8.0),), "2026"))
    try:
        _, answer = ask(library, MAGENTA)
    finally:
        library.said.clear()
    first = answer.tracks[0]
    assert (first.moment.start, first.moment.end, first.moment.source) == (6.0, 8.0, "correction")
    assert first.boxes  # taken from the track found there


def test_a_missing_file_is_answered_from_what_is_stored_as_a_guess(library):
    path = library.all["f" * 12].video.path
    library.renamed("f" * 12, path="gone.mp4", parts=("gone.mp4",))
    try:
        _, answer = ask(library, GREEN)
    finally:
        library.renamed("f" * 12, path=path, parts=(path,))
    assert not answer.found
    assert 11.5 <= answer.moments[0].start < 15.0 and answer.tracks[0].boxes


def test_the_best_box_covers_a_hot_rectangle():
    heat = np.zeros((14, 25))
    heat[3:8, 10:16] = 1.0
    assert best_box(heat, 6 / 5) == pytest.approx((10 / 25, 3 / 14, 16 / 25, 8 / 14))


def test_matching_is_blind_to_what_all_cells_share():
    rng = np.random.default_rng(0)
    maps = rng.normal(0, 0.1, size=(2, 6, 8, 16)) + 3 * np.eye(16)[0]
    thing = 3 * np.eye(16)[0] + np.eye(16)[5]
    maps[1, 2, 3] = thing
    found = match(maps, [thing[None]], 1.0, mean_cell(maps))
    assert found[1].score > 0.9 > 0.6 > found[0].score
    assert found[1].box[0] <= 3.5 / 8 <= found[1].box[2] and found[1].box[1] <= 2.5 / 6 <= found[1].box[3]


def test_passages_around_hits_are_merged_and_few(library):
    hits = Hits(("f" * 12,) * 3, np.array([2, 3, 50]), np.array([1.0, 1.5, 25.0]), np.ones(3))
    options = Answerer(library, library.profile).options
    found = around_hits(library, [hits], options)
    assert [(p.start, p.end) for p in found] == [(0.0, 30.0)]
