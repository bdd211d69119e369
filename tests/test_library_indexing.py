"""Adding footage: what is stored is what was shown, once, however often and wherever the work was interrupted."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.library_stand_ins import DIM, TinyFootage, TinyProfile, vector, write_video
from vilco_app.library import Library
from vilco_app.library.indexing import IndexingDefaults
from vilco_app.library.library import LibraryDefaults
from vilco_app.values import VilcoError


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return make(tmp_path / "home")


def make(home: Path, **more: object) -> Library:
    defaults = LibraryDefaults(IndexingDefaults(batch=8, commit_seconds=0.0))
    return Library(home, "tiny@1", loader=lambda _: TinyProfile(), footage=TinyFootage(), defaults=defaults, **more)  # type: ignore[arg-type]


def check_rows(library: Library, video: str, seconds: float, seed: int, rate: float = 2.0) -> None:
    """Every sample of the recording is there once, at its time, with its own vectors."""
    stored = library.stored(video)
    times = np.arange(int(seconds * rate)) / rate
    assert np.array_equal(stored.times, times)
    assert np.allclose(stored.durations, 1 / rate)
    expected = np.stack([vector((round(t * 1000), seed), "global", DIM) for t in times])
    assert np.abs(stored.globals - expected).max() < 1e-3
    regions = np.stack([vector((round(t * 1000), seed), f"region{i}", 8) for t in times for i in range(2)])
    assert np.array_equal(stored.group, np.arange(len(times)))
    assert np.array_equal(stored.offsets, 2 * np.arange(len(times) + 1))
    assert np.abs(stored.regions() - regions).max() < 1 / 127
    assert np.allclose(stored.region_boxes[0] / 255, [0.1, 0.2, 0.5, 0.6], atol=1 / 255)


def test_a_recording_is_stored_sample_by_sample(library: Library, tmp_path: Path) -> None:
    path = write_video(tmp_path / "kitchen.mp4", 50, seed=1)
    seen: list[tuple[float, float, str]] = []
    report = library.add(path, TinyProfile(), progress=lambda *p: seen.append(p))
    (video,) = library.videos()
    assert report.added == (video.id,) and not report.refused and not report.warnings
    assert (video.path, video.duration, video.state, video.profile) == (str(path), 50.0, "ready", "tiny@1")
    assert video.indexed_seconds == pytest.approx(50.0)
    check_rows(library, video.id, 50, seed=1)
    assert seen[-1][0] == seen[-1][1] == 50.0 and all(a <= b for a, b, _ in seen)


def test_an_unchanged_file_is_free_and_a_moved_one_is_found(library: Library, tmp_path: Path) -> None:
    path, profile = write_video(tmp_path / "a.mp4", 10, seed=1), TinyProfile()
    (video,) = library.add(path, profile).added
    encoded = profile.encoded
    assert library.add(path, profile).unchanged == (video,)
    os.utime(path)  # touched, same content
    assert library.add(path, profile).unchanged == (video,)
    moved = tmp_path / "elsewhere" / "b.mp4"
    moved.parent.mkdir()
    path.rename(moved)
    assert library.videos()[0].state == "missing"
    assert library.add(tmp_path / "elsewhere", profile).unchanged == (video,)
    assert library.videos()[0].path == str(moved) and library.videos()[0].state == "ready"
    assert profile.encoded == encoded


def test_a_copy_beside_the_original_is_the_same_recording(library: Library, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", 10, seed=1)
    copy = Path(shutil.copy(path, tmp_path / "b.mp4"))
    library.add([path, copy], TinyProfile())
    (video,) = library.videos()
    assert video.path == str(path)
    assert library.resolve(copy).id == library.resolve(path).id == video.id


def test_changed_content_replaces_what_was_indexed(library: Library, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", 10, seed=1)
    (old,) = library.add(path, TinyProfile()).added
    write_video(path, 12, seed=2)
    report = library.add(path, TinyProfile())
    (video,) = library.videos()
    assert report.added == (video.id,) and video.id != old and "changed" in report.warnings[0]
    check_rows(library, video.id, 12, seed=2)


def test_chapter_files_are_one_recording_with_continuous_time(library: Library, tmp_path: Path) -> None:
    for number in (1, 2):
        write_video(tmp_path / f"GX0{number}0007.MP4", 10, seed=number)
    (video,) = library.add(tmp_path, TinyProfile()).added
    found = library.resolve(video)
    assert found.duration == 20 and len(found.parts) == 2
    assert np.array_equal(library.stored(video).times, np.arange(40) / 2)
    assert library.resolve(tmp_path / "GX020007.MP4").id == video
    assert library.add(tmp_path, TinyProfile()).unchanged == (video,)


def test_what_is_no_video_is_refused_in_one_line_and_leaves_nothing(library: Library, tmp_path: Path) -> None:
    (tmp_path / "folder" / ".hidden").mkdir(parents=True)
    write_video(tmp_path / "folder" / "good.mp4", 5, seed=1)
    (tmp_path / "folder" / "text.mp4").write_text("not a video")
    (tmp_path / "folder" / "notes.txt").write_text("left alone: no video's name")
    (tmp_path / "folder" / ".hidden" / "x.mp4").write_text("left alone: hidden")
    report = library.add([tmp_path / "folder", tmp_path / "nowhere.mp4"], TinyProfile())
    assert len(report.added) == 1 and len(library.videos()) == 1
    assert {Path(r.path).name: r.code for r in report.refused} == {
        "text.mp4": "not-a-video",
        "nowhere.mp4": "not-found",
    }
    assert all(r.reason and r.remedy for r in report.refused)


def test_names_no_catalogue_can_hold_and_pipes_cost_only_themselves(library: Library, tmp_path: Path) -> None:
    write_video(tmp_path / "good.mp4", 5, seed=1)
    try:
        write_video(Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.mp4")), 5, seed=2)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    os.mkfifo(tmp_path / "pipe.mp4")
    report = library.add(tmp_path, TinyProfile())
    assert len(report.added) == 1
    assert {Path(r.path).name: r.code for r in report.refused} == {"bad\\xff.mp4": "bad-name", "pipe.mp4": "not-a-file"}


def test_a_damaged_file_is_kept_as_far_as_it_is_readable(library: Library, tmp_path: Path) -> None:
    path = write_video(tmp_path / "cut.mp4", 60, seed=1, readable_to=21)
    (video,) = library.add(path, TinyProfile()).added
    found = library.resolve(video)
    assert found.state == "gaps" and "21.0 s of 60.0 s" in found.note
    assert found.indexed_seconds == pytest.approx(21)
    assert library.add(path, TinyProfile()).unchanged == (video,)


def test_it_can_be_asked_while_the_key_frames_are_read(library: Library, tmp_path: Path) -> None:
    path, profile = write_video(tmp_path / "long.mp4", 200, seed=1), TinyProfile()
    looks: list[tuple[str, int, bool]] = []

    def look(*_: object) -> None:
        (video,) = library.videos()
        stored = library.stored(video.id)
        spread = bool((np.diff(stored.times) > 0).all())
        assert stored.durations.sum() == pytest.approx(stored.times[-1] + stored.durations[-1] if len(stored) else 0)
        assert len(stored.region_scores(np.ones((1, 8)))[0]) == len(stored)
        looks.append((video.state, len(stored), spread))

    library.add(path, profile, progress=look)
    states = [state for state, _, _ in looks]
    assert states[0] == "preview" and "indexing" in states and states[-1] == "ready"
    assert all(spread for _, _, spread in looks)
    assert max(n for state, n, _ in looks if state == "preview") == 50  # a key frame every 4 s
    assert [n for state, n, _ in looks if state == "indexing"] == sorted(
        n for state, n, _ in looks if state == "indexing"
    )
    check_rows(library, library.videos()[0].id, 200, seed=1)
    assert len(library.catalogue.takes()) == 1


def test_a_recording_of_which_nothing_is_stored_yet_is_empty_in_the_right_shape(
    library: Library, tmp_path: Path
) -> None:
    (ready,) = library.add(write_video(tmp_path / "a.mp4", 5, seed=1), TinyProfile()).added
    library.add(write_video(tmp_path / "b.mp4", 5, seed=2), TinyProfile("tiny@2"))
    library.use_profile("tiny@1")
    waiting = next(v for v in library.videos() if v.id != ready)
    stored = library.stored(waiting.id)
    assert waiting.state == "waiting" and len(stored) == 0
    assert stored.globals.shape == (0, DIM) and stored.region_codes.shape == (0, 8)
    assert stored.region_scores(np.ones((2, 8))).shape == (2, 0)


def test_a_stopped_job_goes_on_where_it_was(tmp_path: Path) -> None:
    library = make(tmp_path / "home")
    path, profile = write_video(tmp_path / "long.mp4", 300, seed=1), TinyProfile()

    def stop(done: float, _: float, text: str) -> None:
        if "indexing" in text and done >= 100:
            library.jobs.stop(library.jobs.list()[0].id)
            time.sleep(0.6)  # the writer waits here, so the next steps must see the stop before the file ends

    report = library.add(path, profile, progress=stop)
    (video,) = library.videos()
    assert not report.added and "resume" in report.warnings[0]
    stored = len(library.stored(video.id))
    assert video.state == "indexing" and 200 <= stored < 600
    again = TinyProfile()
    assert library.add(path, again).added == (video.id,)
    assert again.encoded <= 600 - 100 * 2 + 16
    check_rows(library, video.id, 300, seed=1)


def test_ctrl_c_stops_the_whole_call_and_keeps_what_was_done(tmp_path: Path) -> None:
    library = make(tmp_path / "home")
    paths = [write_video(tmp_path / f"{i}.mp4", 300, seed=i) for i in range(2)]

    class Interrupted(TinyProfile):
        def encode(self, frames: np.ndarray):  # type: ignore[no-untyped-def]
            if self.encoded >= 400:
                raise KeyboardInterrupt
            return super().encode(frames)

    with pytest.raises(KeyboardInterrupt):
        library.add(paths, Interrupted())
    assert [job.state for job in library.jobs.list()] == ["stopped", "stopped"]
    assert library.videos()[0].indexed_seconds > 0
    again = TinyProfile()
    assert len(library.add(paths, again).added) == 2
    assert again.encoded <= 1200 + 150 - (400 - 150)  # both previews and both passes, less what was kept of the first
    for seed, path in enumerate(paths):
        check_rows(library, library.resolve(path).id, 300, seed)


def test_a_finer_rate_replaces_the_coarser_one_while_it_can_be_asked(library: Library, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", 60, seed=1)
    (video,) = library.add(path, TinyProfile(), rate=1.0).added
    counts: list[int] = []
    library.add(path, TinyProfile(), rate=4.0, progress=lambda *_: counts.append(len(library.stored(video))))
    assert min(counts) >= 60 and counts[-1] == 240
    check_rows(library, video, 60, seed=1, rate=4.0)
    assert library.add(path, TinyProfile(), rate=2.0).unchanged == (video,)


def test_two_profiles_live_side_by_side(library: Library, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", 10, seed=1)
    library.add(path, TinyProfile())
    (video,) = library.add(path, TinyProfile("tiny@2"), rate=1.0).added
    assert len(library.stored(video)) == 10
    other = Library(library.home, "tiny@1", footage=TinyFootage())
    assert len(other.stored(video)) == 20 and other.videos()[0].state == "ready"
    assert Library(library.home, "tiny@3").videos()[0].state == "waiting"


def test_a_still_picture_keeps_its_regions_once(library: Library, tmp_path: Path) -> None:
    path = write_video(tmp_path / "tripod.mp4", 50, seed=1, still=True)
    (video,) = library.add(path, TinyProfile()).added
    stored = library.stored(video)
    assert len(stored) == 100 and len(stored.offsets) - 1 == 5 and len(stored.region_scales) == 10
    scores = stored.region_scores(vector((0, 1), "region0", 8))
    assert scores.shape == (1, 100) and np.allclose(scores, 1, atol=0.02)


def test_resolve_by_path_id_prefix_and_name(library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [write_video(tmp_path / f"{i}.mp4", 1, seed=i) for i in range(40)]
    library.add(paths, TinyProfile())
    ids = [v.id for v in library.videos()]
    assert library.resolve(paths[3]).path == str(paths[3]) and library.resolve(ids[5]).id == ids[5]
    shared = next(a for a in "0123456789abcdef" if sum(i.startswith(a) for i in ids) > 1)
    with pytest.raises(VilcoError) as error:
        library.resolve(shared)
    assert error.value.code == "ambiguous-video"
    assert library.resolve("3.mp4").path == str(paths[3])  # the name answers show
    monkeypatch.chdir(tmp_path)
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    write_video(Path("3.mp4"), 2, seed=99)  # another file of that name is meant by it here
    for unknown in ("zz", "", tmp_path / "none.mp4", "3.mp4"):
        with pytest.raises(VilcoError) as error:
            library.resolve(unknown)
        assert error.value.code == "no-such-video"


@pytest.mark.parametrize("rate", [0, -1, float("nan"), 1000])
def test_a_senseless_rate_is_refused(library: Library, tmp_path: Path, rate: float) -> None:
    with pytest.raises(VilcoError, match="rate"):
        library.add(write_video(tmp_path / "a.mp4", 1, seed=1), TinyProfile(), rate=rate)


def test_queues_between_decoding_and_writing_are_bounded(library: Library, tmp_path: Path) -> None:
    path, profile = write_video(tmp_path / "a.mp4", 1000, seed=1), TinyProfile()
    profile.gate = threading.Event()
    given = 0
    footage = library.footage
    plain = footage.samples

    def counted(*a: object, **k: object):  # type: ignore[no-untyped-def]
        nonlocal given
        for batch in plain(*a, **k):  # type: ignore[arg-type]
            given += 1
            yield batch

    footage.samples = counted  # type: ignore[method-assign]
    thread = threading.Thread(target=library.add, args=(path, profile))
    thread.start()
    deadline = time.monotonic() + 10
    while given < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    waiting = given
    profile.gate.set()
    thread.join()
    assert 3 <= waiting <= 5  # one in the encoder, two queued, one in the reader's hand
    check_rows(library, library.videos()[0].id, 1000, seed=1)


def test_a_file_that_changes_while_it_is_read_is_not_kept_under_its_old_id(library: Library, tmp_path: Path) -> None:
    """A copy still in progress, or a file replaced: what was read is not what the id stands for."""
    path = write_video(tmp_path / "a.mp4", 300, seed=1)

    def meddle(at: float, _: float, text: str) -> None:
        if "indexing" in text and at >= 100 and path.stat().st_size < 10_000:
            path.write_text(path.read_text() + " " * 10_000)

    report = library.add(path, TinyProfile(), progress=meddle)
    assert not report.added and [r.code for r in report.refused] == ["changed"] and not library.videos()
    assert len(library.add(path, TinyProfile()).added) == 1
