"""Pictures learnt: samples as answers see frames, the weight chosen on the path of answers, answers that use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.picture_film import COLOURS, VIDEO, FilmLibrary, box, core, example, make_film, window
from vilco_app import learning
from vilco_app.answering.answerer import Answerer
from vilco_app.answering.visual import Found
from vilco_app.evaluation.visual import box_iou
from vilco_app.learning import picture_probes, presets, restoring
from vilco_app.learning.picture_judge import HeadJudge
from vilco_app.learning.picture_probes import goodness, held_probes
from vilco_app.learning.pictures import finder_of, looked, picture_of, picture_sample
from vilco_app.learning.resolving import resolve_stage
from vilco_app.learning.scoring import weigh
from vilco_app.network.config import NetworkConfig
from vilco_app.network.learner import ViLCoLearner
from vilco_app.network.visual_maps import CHANNELS
from vilco_app.pictures import visual_query
from vilco_app.stages import Example
from vilco_app.values import Moment, TimedBox, Track, VilcoError

CONFIG = NetworkConfig(5, 5, 1, width=16, heads=2, levels=4, stem_blocks=1, window=8, prompt_length=2)
TAUGHT, ASKED = list(COLOURS)[:6], list(COLOURS)[6:]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> FilmLibrary:
    path = tmp_path_factory.mktemp("film") / "film.mp4"
    return FilmLibrary(path, make_film(path))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "config_for", lambda profile: CONFIG)
    monkeypatch.setattr(presets, "QUICK", presets.Preset("quick", 5e-3, 8, 4, 24, 40))
    torch.set_num_threads(1)


def stage(names: list[str], **changes: Any) -> dict[str, Any]:
    return {"schema": 1, "name": "things", "family": "vq", "examples": [example(n) for n in names], **changes}


def asked(library: FilmLibrary, name: str, answerer: Answerer) -> tuple[Any, float]:
    """(answer, mean IoU of its first track's boxes with where the thing is) for another frame's picture of the thing."""
    time = window(name)[0] + 0.25
    from vilco_app.learning.pictures import frames_of
    from vilco_app.values import Box

    query = visual_query(frames_of(library, VIDEO, [time])[0], Box(*box(name, time)), name)
    answer = answerer.find(query, library.videos())
    first = answer.tracks[0]
    return answer, float(np.mean([box_iou((b.x1, b.y1, b.x2, b.y2), box(name, b.time)) for b in first.boxes]))


def test_samples_are_what_the_finder_sees_with_its_own_mistakes_as_negatives(library: FilmLibrary) -> None:
    resolved = resolve_stage(stage(TAUGHT), library, library.profile)
    finder = finder_of(library, library.profile)
    e = resolved.stage.examples[1]
    sample = picture_sample(e, resolved, 0, library, library.profile, finder)
    sight = looked(e, VIDEO, picture_of(e, resolved, library), finder)
    maps, times = sample.features["maps"], sample.meta["times"]
    shown = sight.maps[sight.first[0]].shape
    assert maps.shape == (len(times), *shown[:2], CHANNELS) and maps.dtype == torch.float16
    assert len(times) <= 16 and times == sorted(times) and maps.numel() * 2 < 4 * 2**20
    start, end = window("yellow")
    present = sample.targets["present"].tolist()
    assert sum(present) == 7  # six of the track, and the frame of the picture
    for t, p, b in zip(times, present, sample.targets["boxes"].tolist(), strict=True):
        assert p == (start <= t <= end) and (not p or b == pytest.approx(box("yellow", t), abs=1e-4))
    chosen = {round(float(sight.passages[p].times[r]), 2) for p, r in sight.first}
    assert len([t for t, p in zip(times, present, strict=True) if not p and round(t, 2) in chosen]) >= 3
    for k, t in enumerate(times):  # the very maps answers are judged by
        for p, r in sight.first:
            if abs(float(sight.passages[p].times[r]) - t) < 1e-6:
                expected = sight.picture.maps(sight.maps[p, r])
                assert maps[k].float().numpy() == pytest.approx(expected, abs=2e-2)


def test_forgotten_footage_is_neither_looked_at_nor_asked_with(library: FilmLibrary) -> None:
    from dataclasses import replace

    resolved = resolve_stage(stage(TAUGHT[:2]), library, library.profile)
    kept = library.all[VIDEO]
    spans = ((20.0, 40.0), window("yellow"))
    left = np.array([not any(a <= t <= b for a, b in spans) for t in kept.times])
    library.all[VIDEO] = replace(
        kept, forgotten=spans, times=kept.times[left], durations=kept.durations[left], globals=kept.globals[left],
        group=kept.group[left],
    )  # fmt: skip
    try:
        finder, (red, yellow) = finder_of(library, library.profile), resolved.stage.examples
        times = picture_sample(red, resolved, 0, library, library.profile, finder).meta["times"]
        with pytest.raises(VilcoError, match=r"example yellow: its picture .* forgotten"):
            picture_sample(yellow, resolved, 0, library, library.profile, finder)
    finally:
        library.all[VIDEO] = kept
    assert [t for t in times if t >= 20.0 or 6.0 <= t <= 9.0] == [] and any(10.0 < t < 20.0 for t in times)


def test_an_untrained_head_changes_no_track_and_weight_0_never_asks_it(library: FilmLibrary) -> None:
    class Never:
        frames = boxes = 0.0

        def judge(self, maps: Any) -> Any:
            raise AssertionError("asked")

    resolved = resolve_stage(stage(TAUGHT), library, library.profile)
    finder, e = finder_of(library, library.profile), resolved.stage.examples[0]
    sight = looked(e, VIDEO, picture_of(e, resolved, library), finder)
    plain = finder.found(sight, 5)
    assert finder.found(sight, 5, Never()) == plain
    assert plain.tracks[0].moment.source == "zero-shot"
    for frames, boxes, source in ((0.5, 0.0, "fused"), (0.0, 1.0, "fused"), (1.0, 1.0, "vilco")):
        found = finder.found(sight, 5, HeadJudge(ViLCoLearner(CONFIG), frames, boxes))
        assert found.confidence == plain.confidence
        assert [(t.moment.start, t.moment.end) for t in found.tracks] == [
            (t.moment.start, t.moment.end) for t in plain.tracks
        ]
        assert found.tracks[0].moment.source == source
        assert found.tracks[0].moment.score == pytest.approx(plain.tracks[0].moment.score, abs=1e-4)


def test_the_zero_shot_match_draws_the_core(library: FilmLibrary) -> None:
    """What the head has to learn here: without this the next test would show nothing."""
    answer, right = asked(library, ASKED[0], Answerer(library, library.profile))
    first = answer.tracks[0]
    inner = np.mean([box_iou((b.x1, b.y1, b.x2, b.y2), core(ASKED[0], b.time)) for b in first.boxes])
    assert inner > right and right < 0.5


def test_what_was_taught_is_weighed_on_the_path_of_answers_and_then_answers(
    tmp_path: Path, library: FilmLibrary
) -> None:
    made = learning.learn(tmp_path, library, library.profile, stage(TAUGHT))
    assert made.fusion.vq_boxes > 0 and "leave-one-out over 6" in made.fusion.reasons["vq boxes"]
    serving = learning.serving(tmp_path, library.profile)
    assert serving.network is None and serving.judge is not None
    assert (serving.judge.frames, serving.judge.boxes) == (made.fusion.vq, made.fusion.vq_boxes)
    trained = Answerer(library, library.profile, judge=serving.judge, snapshot=serving.snapshot)
    for name in ASKED:  # things it never saw
        answer, right = asked(library, name, trained)
        _, before = asked(library, name, Answerer(library, library.profile))
        start, end = window(name)
        assert start <= answer.moments[0].start < end and answer.moments[0].source in ("fused", "vilco")
        assert right > before + 0.1
    scores = learning.evaluate(tmp_path, library, library.profile, [stage(ASKED)]).stages[0].metrics
    learning.use(tmp_path, "base")
    assert learning.serving(tmp_path, library.profile).judge is None
    base = learning.evaluate(tmp_path, library, library.profile, [stage(ASKED)]).stages[0].metrics
    assert scores["recovery"] > base["recovery"]


def test_few_pictures_change_nothing_and_held_out_ones_are_kept_for_later(tmp_path: Path, library: FilmLibrary) -> None:
    few = stage([])
    few["examples"] = [example("red"), example("green"), example("blue", "heldout")]
    made = learning.learn(tmp_path, library, library.profile, few)
    assert made.fusion.vq == made.fusion.vq_boxes == 0 and "only 3 labelled examples" in made.fusion.reasons["vq"]
    assert learning.serving(tmp_path, library.profile).judge is None
    from vilco_app.learning.snapshots import Snapshots

    table = Snapshots(tmp_path).probes(made.snapshot)
    probes = held_probes(table, library, None)  # type: ignore[arg-type]
    assert [(p.example.id, len(p.example.track)) for p in probes] == [("blue", 6)]
    assert held_probes([{**table[0], "examples": [{**table[0]["examples"][0], "video": "gone"}]}], library, None) == []  # type: ignore[arg-type]


def test_goodness_is_time_and_place_half_each() -> None:
    e = Example(
        "e", "v", ((0.0, 2.0), (10.0, 14.0)), track=(TimedBox(11.0, 0.0, 0.0, 0.5, 0.5), TimedBox(13.0, 0, 0, 1, 1))
    )
    track = Track(Moment("v", "", 10.0, 12.0, 1.0), (TimedBox(11.5, 0.0, 0.0, 0.5, 1.0),))
    # half of the last window; the first box half covered, none within a second of the second
    assert goodness(Found((track,), 1.0, ()), e) == pytest.approx(0.5 * 0.5 + 0.5 * (0.5 + 0.0) / 2)
    assert goodness(Found((), 0.0, ()), e) == 0.0


def test_the_weight_of_pictures_follows_the_same_rule_as_that_of_words() -> None:
    grid = picture_probes.WEIGHTS
    better = np.tile(np.linspace(0.3, 0.6, len(grid)), (8, 1))
    assert weigh(better, grid)[0] == grid[-1] and weigh(better[:, ::-1], grid)[0] == 0
    assert weigh(better[:4], grid) == (
        0.0, "only 4 labelled examples to check the network by; 5 are needed before it may answer",
    )  # fmt: skip
    chance = np.full((8, len(grid)), 0.5)
    chance[0, 2] = 0.9  # one lucky picture is within one standard error
    assert weigh(chance, grid)[0] == 0


def test_corrections_of_pictures_say_why_they_are_not_learnt() -> None:
    from vilco_app.values import Correction

    only = [Correction("3", "visual:x", "picture", "visual", "v", ((1.0, 2.0),), "t")]
    with pytest.raises(VilcoError, match="neither the picture nor where"):
        learning.corrections_stage(only)
