"""Segments: the projection against its closed form, and how candidates of several meet."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.library_stand_ins import TinyProfile, write_video
from tests.test_library_search import SCANNED, make
from vilco_app.library.features import TakeArrays, take_folder
from vilco_app.library.records import Span
from vilco_app.library.segments import Segment, SegmentDefaults, build_segment, principal


def test_principal_components_of_slabs_are_those_of_the_whole() -> None:
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((500, 12)) * np.linspace(3, 0.1, 12) + 20 * rng.standard_normal(12)).astype(np.float32)
    basis, rest = principal(np.array_split(rows, 7), 4)
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    expected = np.linalg.svd(centred, full_matrices=False)[2][:4]
    assert np.allclose(np.abs(np.sum(basis * expected.T, axis=0)), 1, atol=1e-4)
    assert np.allclose(basis.T @ basis, np.eye(4), atol=1e-5) and np.allclose(basis.T @ rest, 0, atol=1e-3)
    question = rng.standard_normal(12).astype(np.float32)
    error = rows @ question - (rows @ basis @ (basis.T @ question) + rest @ question)
    assert np.allclose(error, centred @ (question - basis @ (basis.T @ question)), atol=1e-3)


def test_rough_scores_of_segments_with_other_means_can_be_compared(tmp_path: Path) -> None:
    """Vectors in a plane far from the origin, another one in each segment: two components then say all but the mean."""
    rng = np.random.default_rng(1)
    defaults = SegmentDefaults(small=0, components=2)
    question = rng.standard_normal(8).astype(np.float32)
    for name in ("a", "b"):
        library = make(tmp_path / name, SCANNED, tail=10_000)
        library.add(write_video(tmp_path / f"{name}.mp4", 60, seed=1), TinyProfile())
        (take,) = library.catalogue.takes()
        arrays = TakeArrays(take_folder(library.features_folder, take), take)
        plane = rng.standard_normal((take.rows, 2)) @ rng.standard_normal((2, 8)) + 5 * rng.standard_normal(8)
        arrays.globals = plane.astype(np.float16)
        root = tmp_path / name / "segments"
        record = build_segment(root, "p", [Span(take.id, 0, take.rows, 0, 0)], {take.id: arrays}, defaults)
        _, rows, scores = Segment(root, record, defaults).search("globals", question[None], 10, None)
        true = arrays.globals[rows[0]].astype(np.float32) @ question
        assert np.allclose(scores[0], true, atol=0.02 * np.abs(true).max())


class Resting(TinyProfile):
    rested = 0

    def rest(self) -> None:
        self.rested += 1


def test_a_profile_rests_once_all_is_indexed(tmp_path: Path) -> None:
    library, profile = make(tmp_path / "home"), Resting()
    library.add([write_video(tmp_path / f"{i}.mp4", 5, seed=i) for i in range(3)], profile)
    assert profile.rested == 1
    library.jobs.run_pending()  # and whenever the worker has nothing left to do
    assert profile.rested == 2
