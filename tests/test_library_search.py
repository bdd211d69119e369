"""Search: the same answers as going through everything, whatever is indexed how, and whatever has been taken away."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.library_stand_ins import DIM, REGION_DIM, TinyFootage, TinyProfile, vector, write_video
from vilco_app.library import Library
from vilco_app.library import segments as segments_module
from vilco_app.library.generations import GenerationDefaults
from vilco_app.library.indexing import IndexingDefaults
from vilco_app.library.library import LibraryDefaults
from vilco_app.library.segments import SegmentDefaults
from vilco_app.values import VilcoError

SCANNED = SegmentDefaults(small=100_000, scanned=0)
PROJECTED = SegmentDefaults(small=0, scanned=0, components=DIM)
INVERTED = SegmentDefaults(small=0, scanned=0, components=DIM, inverted_above=10, probes=1.0, restricted_probes=1.0)


def make(home: Path, segments: SegmentDefaults = SCANNED, tail: int = 50, growth: int = 4) -> Library:
    defaults = LibraryDefaults(
        IndexingDefaults(batch=16, commit_seconds=0.0, publish_rows=100), segments,
        GenerationDefaults(tail=tail, growth=growth, largest=10_000),
    )  # fmt: skip
    return Library(home, "tiny@1", loader=lambda _: TinyProfile(), footage=TinyFootage(), defaults=defaults)


def fill(library: Library, folder: Path, seconds: tuple[float, ...]) -> list[str]:
    paths = [write_video(folder / f"{i}.mp4", s, seed=i) for i, s in enumerate(seconds)]
    return [library.add(path, TinyProfile()).added[0] for path in paths]


def brute(
    library: Library, videos: list[str], kind: str, question: np.ndarray, top: int
) -> list[tuple[str, float, float]]:
    """(recording, time, score) of the best, by looking at every stored vector."""
    found = []
    for video in videos:
        stored = library.stored(video)
        if kind == "globals":
            found += [
                (video, float(t), float(s))
                for t, s in zip(stored.times, stored.globals.astype(np.float32) @ question, strict=True)
            ]
        else:
            group = np.repeat(np.arange(len(stored.offsets) - 1), np.diff(stored.offsets))
            first = np.searchsorted(stored.group, group)
            scores = stored.regions() @ question
            found += [(video, float(t), float(s)) for t, s in zip(stored.times[first], scores, strict=True)]
    return sorted(found, key=lambda f: -f[2])[:top]


def check(library: Library, videos: list[str] | None = None, top: int = 20) -> None:
    rng = np.random.default_rng(0)
    everything = [v.id for v in library.videos()] if videos is None else videos
    for kind, dim, search in (
        ("globals", DIM, library.search_globals), ("regions", REGION_DIM, library.search_regions),
    ):  # fmt: skip
        questions = rng.standard_normal((3, dim)).astype(np.float32)
        for question, hits in zip(questions, search(questions, top, videos), strict=True):
            expected = brute(library, everything, kind, question, top)
            assert np.allclose(hits.scores, [e[2] for e in expected], atol=1e-3)
            assert (np.diff(hits.scores) <= 0).all()
            got = list(zip(hits.videos, hits.times.tolist(), strict=True))
            assert got[:5] == [e[:2] for e in expected[:5]]
            for video, row, time in zip(hits.videos, hits.rows, hits.times, strict=True):
                assert library.stored(video).times[row] == time
            assert (hits.boxes is None) == (kind == "globals")
            if hits.boxes is not None:
                assert hits.boxes.shape == (len(hits.rows), 4)


@pytest.mark.parametrize("segments", [SCANNED, PROJECTED, INVERTED], ids=["scanned", "projected", "inverted"])
def test_segments_answer_as_a_scan_does(tmp_path: Path, segments: SegmentDefaults) -> None:
    library = make(tmp_path / "home", segments)
    ids = fill(library, tmp_path, (60, 100, 40, 10, 5))
    assert library.catalogue.segments("tiny@1")
    assert set(library._view.snapshot().tails("globals"))  # some of it is scanned, some indexed
    check(library)
    check(library, [ids[2], ids[3]])
    check(library, [ids[1]])
    check(make(tmp_path / "home", SegmentDefaults()), [ids[1], ids[4]])  # few enough to be scanned


def test_an_exact_look_up_finds_the_sample_itself(tmp_path: Path) -> None:
    library = make(tmp_path / "home", INVERTED)
    ids = fill(library, tmp_path, (60, 60))
    (hits,) = library.search_globals(vector((12_500, 1), "global", DIM), 1)
    assert hits.videos == (ids[1],) and hits.times[0] == 12.5 and hits.rows[0] == 25
    (hits,) = library.search_regions(vector((3_000, 0), "region1", REGION_DIM), 1)
    assert hits.videos == (ids[0],) and hits.times[0] == 3.0
    assert hits.boxes is not None and np.allclose(hits.boxes[0], [0.4, 0.4, 0.9, 1.0], atol=1 / 255)


def test_small_segments_are_merged_and_nothing_is_doubled(tmp_path: Path) -> None:
    library = make(tmp_path / "home", tail=20, growth=3)
    fill(library, tmp_path, (10,) * 12)
    segments = library.catalogue.segments("tiny@1")
    rows = [(s.take, row) for g in segments for s in g.spans for row in range(s.first, s.last)]
    assert len(rows) == len(set(rows)) == 240 and len(segments) <= 5
    folders = {f.name for f in library.generations_folder.glob("*/segment-*")}
    assert folders == {s.name for s in segments}
    check(library, top=60)


@pytest.mark.parametrize("segments", [SCANNED, INVERTED], ids=["scanned", "inverted"])
def test_removed_footage_is_in_no_answer_and_in_no_index(tmp_path: Path, segments: SegmentDefaults) -> None:
    library = make(tmp_path / "home", segments)
    ids = fill(library, tmp_path, (60, 60, 60))
    asking = make(tmp_path / "home", segments)  # another process, with its maps open
    check(asking)
    library.remove(ids[1])
    for one in (library, asking):
        assert [v.id for v in one.videos()] == [ids[0], ids[2]]
        check(one)
        with pytest.raises(VilcoError):
            one.search_globals(np.ones(DIM), 5, [ids[1]])
    live = {t.id for t in library.catalogue.takes()}
    assert all(s.take in live for g in library.catalogue.segments("tiny@1") for s in g.spans)
    assert not (library.features_folder / ids[1]).exists()
    assert library.add(tmp_path / "1.mp4", TinyProfile()).added == (ids[1],)
    check(library)


def test_a_reader_in_the_middle_of_a_question_survives_a_new_generation(tmp_path: Path) -> None:
    library = make(tmp_path / "home")
    ids = fill(library, tmp_path, (60, 60))
    asking = make(tmp_path / "home")
    snapshot = asking._view.snapshot()
    library.remove(ids[0])
    asking._view._snapshot = snapshot  # as if the catalogue had been read just before
    asking.catalogue.version = lambda: snapshot.version  # type: ignore[method-assign]
    with pytest.raises(FileNotFoundError):
        asking._searcher._search(snapshot, "globals", np.ones((1, DIM), np.float32), 5, None)
    del asking.catalogue.version  # type: ignore[method-assign]
    (hits,) = asking.search_globals(np.ones(DIM), 5)
    assert set(hits.videos) == {ids[1]}


def test_a_question_sees_one_state_of_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = make(tmp_path / "home")
    ids = fill(library, tmp_path, (60, 60))
    asking = make(tmp_path / "home")
    looks, real = [], asking.catalogue.version
    monkeypatch.setattr(asking.catalogue, "version", lambda: looks.append(1) or real())
    with asking.still():
        assert len(asking.stored(ids[0])) == 120
        first = len(looks)
        library.correct("k", "q", "text", ids[1], [(1, 2)])
        library.add(write_video(tmp_path / "9.mp4", 60, seed=9), TinyProfile())
        with asking.still():
            assert [v.id for v in asking.videos()] == ids and len(asking.stored(ids[1])) == 120
        assert len(looks) == first
    assert len(asking.videos()) == 3
    with asking.still():
        assert len(asking.videos()) == 3
        library.remove(ids[0])
        (hits,) = asking.search_globals(np.ones(DIM), 5)  # the segment it knew is gone, so it looks again
        assert ids[0] not in hits.videos and len(asking.videos()) == 2


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_a_segment_that_goes_while_it_is_being_opened_is_not_half_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """Another process builds the next generation just before FAISS is called for the `moment`th time in a search."""
    library = make(tmp_path / "home", PROJECTED)
    ids = fill(library, tmp_path, (60, 60))
    asking, real, calls = make(tmp_path / "home", PROJECTED), segments_module.load_faiss, 0

    def load_faiss() -> object:
        nonlocal calls
        calls += 1
        if calls == moment:
            monkeypatch.setattr(segments_module, "load_faiss", real)
            library.remove(ids[0])
        return real()

    monkeypatch.setattr(segments_module, "load_faiss", load_faiss)
    expected = brute(library, [ids[1]], "globals", np.ones(DIM, np.float32), 5)
    (hits,) = asking.search_globals(np.ones(DIM), 5)
    assert calls == moment
    got = [(v, t) for v, t in zip(hits.videos, hits.times.tolist(), strict=True) if v == ids[1]]
    assert got[:1] == [expected[0][:2]]
    assert len(hits.rows) == 5 and not list(library.generations_folder.glob("*/.segment-*"))


def test_vectors_of_another_profile_are_refused(tmp_path: Path) -> None:
    library = make(tmp_path / "home")
    fill(library, tmp_path, (10,))
    with pytest.raises(VilcoError, match="dimensions"):
        library.search_globals(np.ones(DIM + 1), 5)


def test_an_empty_library_answers_with_nothing(tmp_path: Path) -> None:
    library = make(tmp_path / "home")
    assert len(library.search_globals(np.ones((2, DIM)), 5)) == 2
    assert library.search_regions(np.ones(REGION_DIM), 5)[0].videos == ()
    assert library.statistics("globals").n == 0


def test_statistics_are_mean_and_covariance_of_what_is_stored(tmp_path: Path) -> None:
    library = make(tmp_path / "home")
    ids = fill(library, tmp_path, (30, 20))
    for kind in ("globals", "regions"):
        rows = np.concatenate(
            [np.asarray(s.globals, np.float64) if kind == "globals" else s.regions() for s in map(library.stored, ids)]
        )
        for _ in range(2):  # made, then read back
            made = library.statistics(kind)
            assert made.n == len(rows)
            assert np.allclose(made.mean, rows.mean(axis=0), atol=1e-4)
            assert np.allclose(made.cov, np.cov(rows.T, bias=True), atol=1e-4)
    library.remove(ids[0])
    assert library.statistics("globals").n == 40
