"""Forgetting: what a person had removed is in no array, index, correction, question or cache, and does not come back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.library_stand_ins import DIM, REGION_DIM, TinyFootage, TinyProfile, vector, write_video
from tests.test_library_search import INVERTED, SCANNED, check, make
from vilco_app.library import Library
from vilco_app.library.segments import SegmentDefaults
from vilco_app.values import Answer, Moment, Searched, VilcoError


def answer(query: str, video: str, start: float, end: float) -> Answer:
    moment = Moment(video, "a.mp4", start, end, 1.0)
    return Answer(query, "text", 0.9, 0.5, Searched(1, 60, 60), (moment,))


@pytest.mark.parametrize("segments", [SCANNED, INVERTED], ids=["scanned", "inverted"])
def test_a_forgotten_span_is_gone_everywhere(tmp_path: Path, segments: SegmentDefaults) -> None:
    library = make(tmp_path / "home", segments)
    path = write_video(tmp_path / "a.mp4", 60, seed=1)
    (video,) = library.add(path, TinyProfile()).added
    asking = make(tmp_path / "home", segments)
    check(asking)
    library.correct("k1", "inside", "text", video, [(21, 22)])
    library.correct("k2", "both", "text", video, [(5, 6), (29, 31)])
    library.correct("k3", "absent", "text", video, [])
    for name, start in (("shows it", 25.0), ("does not", 40.0)):
        library.remember(answer(name, video, start, start + 3))
    cache = library.cache_folder(video)
    cache.mkdir(parents=True)
    (cache / "thumb.jpg").write_bytes(b"picture")
    before = {t.id for t in library.catalogue.takes()}

    library.forget(video, 20, 30)

    for one in (library, asking):
        stored = one.stored(video)
        assert stored.forgotten == ((20.0, 30.0),)
        assert np.array_equal(stored.times, np.concatenate([np.arange(0, 20, 0.5), np.arange(30, 60, 0.5)]))
        assert stored.durations.sum() == pytest.approx(50)
        for t in (20.0, 25.5, 29.5):
            for kind, dim, search in (("global", DIM, one.search_globals), ("region0", REGION_DIM, one.search_regions)):
                (hits,) = search(vector((round(t * 1000), 1), kind, dim), 1)
                assert hits.scores[0] < 0.98
        check(one)
    assert {(c.query, c.windows) for c in library.corrections()} == {("both", ((5.0, 6.0),)), ("absent", ())}
    assert [p.answer.query for p in library.history()] == ["does not"]
    assert not cache.exists()
    live = {t.id for t in library.catalogue.takes()}
    assert not live & before
    assert {s.take for g in library.catalogue.segments("tiny@1") for s in g.spans} <= live
    assert sorted(f.name for f in library.features_folder.glob("*/*/take*")) == sorted(f"take{i}" for i in live)


def test_indexing_again_does_not_bring_it_back(tmp_path: Path) -> None:
    library = make(tmp_path / "home")
    path = write_video(tmp_path / "a.mp4", 60, seed=1)
    (video,) = library.add(path, TinyProfile(), rate=1.0).added
    library.forget(video, 20, 30)
    library.forget(video, 50, 60)
    library.add(path, TinyProfile(), rate=2.0)
    stored = library.stored(video)
    assert np.array_equal(stored.times, np.concatenate([np.arange(0, 20, 0.5), np.arange(30, 50, 0.5)]))
    assert library.resolve(video).state == "ready"  # nothing unreadable, only forgotten
    library.add(path, TinyProfile("tiny@2"))
    assert len(library.stored(video)) == 80


def test_removing_and_adding_again_does_not_bring_it_back(tmp_path: Path) -> None:
    library = make(tmp_path / "home", SCANNED)
    path = write_video(tmp_path / "a.mp4", 60, seed=1)
    (video,) = library.add(path, TinyProfile()).added
    library.forget(video, 20, 30)
    library.forget(video, 25, 35)
    library.remove(video)
    assert library.add(path, TinyProfile(), rate=4).added == (video,)
    times = library.stored(video).times
    assert len(times) == 4 * 45 and not ((times >= 20) & (times < 35)).any()


def test_a_preview_and_what_a_crash_left_are_not_on_the_disk(tmp_path: Path) -> None:
    library = make(tmp_path / "home", SCANNED)
    path = write_video(tmp_path / "a.mp4", 90, seed=1)  # long enough for a preview
    (video,) = library.add(path, TinyProfile()).added

    def on_disk() -> list[str]:
        return sorted(f.name for f in library.features_folder.glob("*/*/take*"))

    live = [f"take{take.id}" for take in library.catalogue.takes()]
    assert on_disk() == live
    (library.features_folder / video / "tiny@1" / "take999").mkdir()  # killed after the switch, before the deletion
    library.forget(video, 20, 30)
    assert on_disk() == [f"take{take.id}" for take in library.catalogue.takes()] != live
    (library.features_folder / "0123456789ab" / "tiny@1" / "take7").mkdir(parents=True)
    library.remove(video)
    assert on_disk() == []


def test_removed_words_do_not_linger_in_the_catalogue_file(tmp_path: Path) -> None:
    library = make(tmp_path / "home", SCANNED)
    (video,) = library.add(write_video(tmp_path / "a.mp4", 60, seed=1), TinyProfile()).added
    library.correct("k", "where is the XYZZYSECRET", "text", video, [(21, 22)])
    library.forget(video, 20, 30)
    library.catalogue.db._connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"XYZZYSECRET" not in (tmp_path / "home" / "indexes" / "catalogue.sqlite").read_bytes()


def test_an_old_answer_cannot_be_corrected_into_the_span(tmp_path: Path) -> None:
    library = make(tmp_path / "home", SCANNED)
    (video,) = library.add(write_video(tmp_path / "a.mp4", 60, seed=1), TinyProfile()).added
    library.forget(video, 20, 30)
    with pytest.raises(VilcoError) as caught:
        library.correct("k", "inside", "text", video, [(5, 6), (29, 31)])
    assert caught.value.code == "forgotten-span" and library.corrections() == []
    assert library.correct("k", "beside", "text", video, [(10, 20), (30, 31)]).windows == ((10, 20), (30, 31))


def test_damaged_features_do_not_stop_forgetting(tmp_path: Path) -> None:
    library = make(tmp_path / "home", SCANNED)
    path = write_video(tmp_path / "a.mp4", 60, seed=1)
    (video,) = library.add(path, TinyProfile()).added
    for file in library.features_folder.rglob("samples.bin"):
        file.write_bytes(file.read_bytes()[:100])
    library.forget(video, 20, 30)
    assert not list(library.features_folder.glob("*/*/take*"))
    assert library.add(path, TinyProfile()).added == (video,)
    assert len(library.stored(video)) == 100


@pytest.mark.parametrize("name", ["samples.bin", "groups.bin"])
def test_overwritten_tables_are_told_of_and_made_anew(name: str, tmp_path: Path) -> None:
    library = make(tmp_path / "home", SCANNED)
    path = write_video(tmp_path / "a.mp4", 60, seed=1)
    (video,) = library.add(path, TinyProfile()).added
    for file in library.features_folder.rglob(name):
        file.write_bytes(b"\x7e" * file.stat().st_size)
    fresh = make(tmp_path / "home", SCANNED)
    with pytest.raises(VilcoError) as caught:
        fresh.stored(video)
    assert caught.value.code == "damaged-features"
    assert fresh.add(path, TinyProfile()).added == (video,) and len(fresh.stored(video)) == 120


def test_a_clip_that_reaches_into_the_span_goes_too(tmp_path: Path) -> None:
    library = make(tmp_path / "home")
    (video,) = library.add(write_video(tmp_path / "a.mp4", 60, seed=1), TinyProfile(window=2.0)).added
    Library(tmp_path / "home", footage=TinyFootage()).forget(video, 20, 30)  # a process that never loaded the profile
    times = library.stored(video).times
    assert times[times < 25].max() <= 18 and times[times > 25].min() >= 32


def test_a_near_still_group_loses_the_regions_of_a_forgotten_frame(tmp_path: Path) -> None:
    library = make(tmp_path / "home")
    (video,) = library.add(write_video(tmp_path / "a.mp4", 40, seed=1, still=True), TinyProfile()).added
    assert len(library.stored(video).region_scales) == 8  # four groups of 20 samples, two regions each
    library.forget(video, 9, 12)  # reaches over the first sample of the second group (10 s)
    stored = library.stored(video)
    scores = stored.region_scores(vector((0, 1), "region0", REGION_DIM))[0]
    blind = (stored.times >= 12) & (stored.times < 20)
    assert np.isneginf(scores[blind]).all() and (scores[~blind] > 0.98).all()


def test_forgetting_while_it_is_being_indexed(tmp_path: Path) -> None:
    library = make(tmp_path / "home")
    path = write_video(tmp_path / "a.mp4", 300, seed=1)
    done: list[float] = []

    def meddle(at: float, _: float, text: str) -> None:
        if "indexing" in text and at >= 100 and not done:
            done.append(at)
            other = make(tmp_path / "home")
            other.forget(other.videos()[0].id, 50, 250)

    (video,) = library.add(path, TinyProfile(), progress=meddle).added
    assert done
    stored = library.stored(video)
    assert np.array_equal(stored.times, np.concatenate([np.arange(0, 50, 0.5), np.arange(250, 300, 0.5)]))
    check(library)


def test_removing_while_it_is_being_indexed(tmp_path: Path) -> None:
    library = make(tmp_path / "home")
    path = write_video(tmp_path / "a.mp4", 300, seed=1)

    def meddle(at: float, _: float, text: str) -> None:
        if "indexing" in text and at >= 100 and library.catalogue.videos():
            other = make(tmp_path / "home")
            other.remove(other.videos()[0].id)

    report = library.add(path, TinyProfile(), progress=meddle)
    assert not report.added and [r.code for r in report.refused] == ["no-such-video"]
    assert not library.videos() and not library.catalogue.takes() and not library.catalogue.indexed()
    library._generations.tidy("tiny@1")
    assert not list(library.features_folder.glob("*/*/take*"))
    assert len(library.add(path, TinyProfile()).added) == 1
    check(library)


@pytest.mark.parametrize("span", [(-1, 5), (5, 5), (9, 3), (60, 70), (float("nan"), 5)])
def test_a_span_outside_the_video_is_refused(tmp_path: Path, span: tuple[float, float]) -> None:
    library = make(tmp_path / "home")
    (video,) = library.add(write_video(tmp_path / "a.mp4", 60, seed=1), TinyProfile()).added
    with pytest.raises(VilcoError):
        library.forget(video, *span)
    assert len(library.stored(video)) == 120


def test_corrections_are_found_by_key_and_the_newest_counts(tmp_path: Path) -> None:
    library = make(tmp_path / "home")
    (video,) = library.add(write_video(tmp_path / "a.mp4", 60, seed=1), TinyProfile()).added
    library.correct("k", "where", "text", video, [(1, 2)])
    newest = library.correct("k", "where", "text", video, [(3, 4), (8, 9.5)])
    assert library.corrections("k", [video]) == [newest] == library.corrections("k")
    assert newest.windows == ((3.0, 4.0), (8.0, 9.5))
    assert library.corrections("other", [video]) == [] == library.corrections("k", ["feedfeedfeed"])
    for windows in ([(5, 4)], [(50, 70)], [(-1, 2)]):
        with pytest.raises(VilcoError, match="window"):
            library.correct("k", "where", "text", video, windows)
    library.take_back(newest.id)
    assert library.corrections("k", [video]) == []
    with pytest.raises(VilcoError):
        library.take_back(newest.id)
