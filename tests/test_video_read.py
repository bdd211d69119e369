"""Reading recordings: batches, key frame pass, memory of what was left out, chapters, clocks, geometry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tests import media
from tests.video_cases import X264
from vilco_app.values import VideoRefused, VilcoError
from vilco_app.video import (
    Part,
    ReadSettings,
    Recording,
    SampleBatch,
    frames_at,
    group_chapters,
    open_recording,
    samples,
    thumbnail,
)
from vilco_app.video.geometry import Turn, displayed_size, scaled_size, turn_of
from vilco_app.video.sampling import bin_of


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return media.make(tmp_path_factory.mktemp("read") / "clip.mp4", 150)


@pytest.fixture(scope="module")
def chapters(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("card")
    bounds = (0, 70, 133, 190)
    return [media.make(folder / f"GX0{i + 1}0007.MP4", range(bounds[i], bounds[i + 1]), sound=i == 0) for i in range(3)]


def seen(batches: Iterator[SampleBatch]) -> list[tuple[float, int]]:
    return [
        (round(float(time), 3), media.number_in(frame))
        for batch in batches
        for time, frame in zip(batch.times, batch.frames, strict=True)
    ]


def test_batches_carry_times_durations_and_size(clip: Path) -> None:
    batches = list(samples(open_recording(clip), 2, 90, batch=5))
    assert [len(b) for b in batches] == [5, 5, 2]
    times = np.concatenate([b.times for b in batches])
    durations = np.concatenate([b.durations for b in batches])
    assert times[:3].tolist() == pytest.approx([0, 0.52, 1.0])
    assert (times + durations).tolist() == pytest.approx([*times[1:], 6.0])  # each to the next, the last to the end
    assert {b.frames.shape[1:] for b in batches} == {(90, 160, 3)} and batches[0].frames.dtype == np.uint8


def test_decoded_frames_are_let_go(clip: Path) -> None:
    """Without waiting for the garbage collector, or memory grows by every frame sampled."""
    import gc

    import av

    recording = open_recording(clip)
    gc.collect()
    gc.disable()
    try:
        alive = 0
        for _ in samples(recording, 25, 64, batch=8):
            alive = max(alive, sum(isinstance(o, av.VideoFrame) for o in gc.get_objects()))
    finally:
        gc.enable()
    assert alive < 30  # of 150


def test_small_sources_are_enlarged(clip: Path) -> None:
    assert next(samples(open_recording(clip), 1, 256)).frames.shape[1:] == (256, 455, 3)


def test_report_grows_and_says_all_was_read(clip: Path) -> None:
    stream = samples(open_recording(clip), 2, 64)
    list(stream)
    report = stream.report
    assert report.complete and report.status == "" and report.samples == 12
    assert report.readable_to == pytest.approx(6.0) and report.promised == pytest.approx(6.0)
    assert report.decoded < 100  # of 150: the rest is not needed for two frames a second


def test_leaving_early_frees_the_decoder(clip: Path) -> None:
    with samples(open_recording(clip), 25, 64, batch=4) as stream:
        assert len(next(stream)) == 4
    assert not stream.report.complete and stream.report.samples < 20
    assert list(stream) == []


def test_key_frame_pass_gives_key_frames_only(clip: Path) -> None:
    stream = samples(open_recording(clip), 2, 90, keyframes_only=True)
    assert seen(stream) == [(float(second), 25 * second) for second in range(6)]
    assert stream.report.decoded == 6
    assert seen(samples(open_recording(clip), 0.5, 90, keyframes_only=True)) == [(0.0, 0), (2.0, 50), (4.0, 100)]
    assert seen(samples(open_recording(clip), 2, 90, start=2.5, keyframes_only=True)) == [
        (3.0, 75),
        (4.0, 100),
        (5.0, 125),
    ]


@pytest.fixture(scope="module")
def open_groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames shown before a key frame that comes before them in the file, and refer to the group before it too."""
    codec = (*X264, "12", "-bf", "3", "-x264-params", "open-gop=1:scenecut=0")
    return media.make(tmp_path_factory.mktemp("read") / "open.mp4", 150, codec=codec)


@pytest.mark.parametrize("rate", [0.3, 1, 3, 7.3, 25, 60])
@pytest.mark.parametrize("which", ["clip", "open_groups"])
def test_any_rate_leaves_out_packets_without_changing_samples(
    which: str, rate: float, request: pytest.FixtureRequest
) -> None:
    recording = open_recording(request.getfixturevalue(which))
    lean, plain = samples(recording, rate, 48), samples(recording, rate, 48, settings=ReadSettings(skip=False))
    for ours, theirs in zip(lean, plain, strict=True):
        assert np.array_equal(ours.times, theirs.times) and np.array_equal(ours.frames, theirs.frames)
        assert np.allclose(ours.durations, theirs.durations)
    assert lean.report.decoded <= plain.report.decoded == 150


def test_a_tiny_lookahead_still_gives_the_samples(clip: Path) -> None:
    recording = open_recording(clip)
    whole = seen(samples(recording, 2, 90))
    assert seen(samples(recording, 2, 90, settings=ReadSettings(lookahead_packets=3))) == whole
    assert seen(samples(recording, 2, 90, settings=ReadSettings(lookahead_bytes=1))) == whole


@pytest.mark.parametrize(
    "codec",
    [
        ("libx265", "-preset", "ultrafast", "-tag:v", "hvc1", "-x265-params", "log-level=none:pools=1:keyint=25"),
        ("mpeg4", "-bf", "2", "-g", "25", "-q:v", "4"),
    ],
    ids=["hevc", "mpeg4"],
)
def test_untrue_key_frame_flags_change_nothing(codec: tuple[str, ...], tmp_path: Path) -> None:
    """Without its sync table (stss) an mp4 calls every packet a key frame; leaving out and seeking by these flags would
    break the picture."""
    import av

    honest = media.make(tmp_path / "honest.mp4", 100, codec=("-c:v", *codec))
    lying = tmp_path / "lying.mp4"
    lying.write_bytes(honest.read_bytes().replace(b"stss", b"free"))
    with av.open(str(lying)) as container:
        assert sum(packet.is_keyframe for packet in container.demux(video=0)) == 100
    expected = [(0.0, 0), (0.52, 13), (1.0, 25), (1.52, 38), (2.0, 50), (2.52, 63), (3.0, 75), (3.52, 88)]
    assert seen(samples(open_recording(lying), 2, 90)) == seen(samples(open_recording(honest), 2, 90)) == expected
    assert seen(samples(open_recording(lying), 2, 90, start=2.2)) == expected[5:]
    at = frames_at(open_recording(lying), [3.94, 0.5, 3.1], 90)
    assert [media.number_in(frame) for frame in at.frames] == [98, 12, 77]


def test_times_stay_exact_at_ntsc_rates(tmp_path: Path) -> None:
    path = media.make(tmp_path / "ntsc.mp4", 90, rate=30000 / 1001)  # type: ignore[arg-type]
    got = seen(samples(open_recording(path), 1000, 90))
    assert [number for _, number in got] == list(range(90))
    assert [time for time, _ in got] == pytest.approx([n * 1001 / 30000 for n in range(90)], abs=1e-3)


def test_chapters_read_as_one(chapters: list[Path]) -> None:
    recording = open_recording(chapters)
    assert [part.offset for part in recording.parts] == pytest.approx([0, 2.8, 5.32])
    assert recording.duration == pytest.approx(7.6)
    whole = seen(samples(recording, 2, 90))
    assert whole == [
        (round(n / 25, 3), n) for n in (0, 13, 25, 38, 50, 63, 75, 88, 100, 113, 125, 138, 150, 163, 175, 188)
    ]
    for start in (1.0, 2.6, 2.8, 2.81, 5.33, 7.0):  # before, on and behind the joints
        assert seen(samples(recording, 2, 90, start=start)) == [pair for pair in whole if pair[0] >= start]
    at = frames_at(recording, [7.0, 0.0, 2.8, 2.79, 5.3, 100.0, -1.0], 90)
    assert [media.number_in(f) for f in at.frames] == [175, 0, 70, 69, 132, 189, 0]
    assert at.times.tolist() == pytest.approx([7.0, 0, 2.8, 2.76, 5.28, 7.56, 0])


def test_a_chapter_gone_bad_costs_itself(chapters: list[Path], tmp_path: Path) -> None:
    recording = open_recording(chapters)
    empty = tmp_path / "GX020007.MP4"
    empty.write_bytes(b"")
    first, second, third = recording.parts
    broken = Recording((first, Part(empty, second.offset, second.duration), third))
    stream = samples(broken, 2, 90)
    numbers = [number for _, number in seen(stream)]
    assert numbers == [0, 13, 25, 38, 50, 63, 133, 138, 150, 163, 175, 188]
    assert not stream.report.complete and "GX020007.MP4" in stream.report.errors[0]


def test_chapter_names(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    names = [
        a / "GX020007.MP4", a / "holiday.mp4", a / "GX010007.MP4", a / "GX010008.MP4", b / "GX030007.MP4",
        a / "GH010007.MP4", a / "GOPR0042.MP4", a / "GP010042.MP4", a / "GP020042.MP4", a / "GX040007.MP4",
        a / "DJI_0001.MP4", a / "DJI_0002.MP4", a / "GX010007.LRV",
    ]  # fmt: skip
    assert group_chapters(names) == [
        (a / "GX010007.MP4", a / "GX020007.MP4"),
        (a / "GX040007.MP4",),  # chapter 3 lies in another folder: nothing is joined across the gap
        (a / "holiday.mp4",),
        (a / "GX010008.MP4",),
        (b / "GX030007.MP4",),
        (a / "GH010007.MP4",),
        (a / "GOPR0042.MP4", a / "GP010042.MP4", a / "GP020042.MP4"),
        (a / "DJI_0001.MP4",),
        (a / "DJI_0002.MP4",),
        (a / "GX010007.LRV",),
    ]
    assert group_chapters([names[1], names[1]]) == [(names[1],)]


def test_refusals_reach_the_caller(tmp_path: Path) -> None:
    with pytest.raises(VideoRefused, match=r"nothing\.mp4: there is no such file"):
        open_recording(tmp_path / "nothing.mp4")
    with pytest.raises(VideoRefused, match="folder"):
        open_recording(tmp_path)
    with pytest.raises(VilcoError, match="at least one"):
        open_recording([])
    still = tmp_path / "still.png"
    media.ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x64:d=1", "-frames:v", "1", still)
    with pytest.raises(VideoRefused, match="vilco find"):
        open_recording(still)


def test_thumbnail_is_a_jpeg_of_that_moment(clip: Path) -> None:
    import io

    from PIL import Image

    picture = Image.open(io.BytesIO(thumbnail(open_recording(clip), 3.0, 200)))
    assert picture.format == "JPEG" and picture.size == (200, 112)
    assert media.number_in(np.asarray(picture)) == 75


def test_colours_are_those_of_the_picture(tmp_path: Path) -> None:
    """BT.601 below 720 lines, BT.709 from there on where the file says nothing; tags are believed."""
    for name, size, space in (("sd", "320x180", "bt470bg"), ("hd", "1280x720", "bt709"), ("tag", "320x180", "bt709")):
        path = tmp_path / f"{name}.mp4"
        tag = ("-colorspace", space) if name == "tag" else ("-bsf:v", "h264_metadata=matrix_coefficients=2")
        media.ffmpeg(
            "-f", "lavfi", "-i", f"color=0x20A0E0:s={size}:d=0.2:r=25", "-vf",
            f"scale=out_color_matrix={space},format=yuv420p", "-c:v", "libx264", *tag, path,
        )  # fmt: skip
        frame = frames_at(open_recording(path), [0.0]).frames[0]
        assert frame[5, 5].astype(int).tolist() == pytest.approx([0x20, 0xA0, 0xE0], abs=4), name


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(16, 512))
def test_scaled_size_keeps_the_short_side(width: int, height: int, short: int) -> None:
    w, h = scaled_size(width, height, short)
    assert min(w, h) == short
    assert abs(max(w, h) - max(width, height) * short / min(width, height)) <= 0.5
    assert (w >= h) == (width >= height) or short in (w, h)


@pytest.mark.parametrize("quarters", range(4))
@pytest.mark.parametrize("mirror", [False, True])
def test_turns_move_pixels_as_their_matrix_says(quarters: int, mirror: bool) -> None:
    """(x, y) goes to (a x + c y, b x + d y): checked on the corners of a picture with y down."""
    cos, sin = [(1, 0), (0, 1), (-1, 0), (0, -1)][quarters]
    a, b, c, d = (-cos, -sin, -sin, cos) if mirror else (cos, sin, -sin, cos)
    matrix = (np.array([a, b, 0, c, d, 0, 0, 0, 1 << 14]) * 65536).astype("<i4").tobytes()
    turn = turn_of(matrix)
    assert turn == Turn(quarters, mirror)
    picture = np.zeros((3, 5, 3), np.uint8)
    for number, (x, y) in enumerate([(0, 0), (4, 0), (0, 2), (4, 2)], start=1):
        picture[y, x] = number
    turned = turn.apply(picture)
    assert turned.shape[1::-1] == displayed_size(5, 3, Fraction(1), turn)
    height, width = turned.shape[:2]
    for x, y in ((-2, -1), (2, -1), (-2, 1), (2, 1)):  # from the centre
        to_x, to_y = a * x + c * y, b * x + d * y
        assert turned[height // 2 + to_y, width // 2 + to_x, 0] == picture[1 + y, 2 + x, 0]


@limits(max_examples=200)
@given(st.floats(0, 1e5), st.floats(0.1, 60))
def test_bins_hold_their_tick(time: float, rate: float) -> None:
    which = bin_of(time, rate, 1e-3)
    assert which / rate <= time + 1e-3 + 1e-6 and time + 1e-3 < (which + 1) / rate + 1e-6


def test_importing_the_package_stays_light() -> None:
    code = "import sys, vilco_app.video; print([m for m in ('av','decord','torch','PIL','imageio_ffmpeg') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
