"""Stage files, importers, exporters and splits, on small files in the benchmarks' own forms."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from vilco_app.stages import Stage, check_times, heldout, load_stage, save_stage
from vilco_app.stages.exporters import stage_to_nlq, write_predictions
from vilco_app.stages.importers import augment, import_narrations, import_stage, seconds
from vilco_app.stages.splits import by_category, by_object, by_template, save_splits, split_json
from vilco_app.values import VilcoError


def stage(*examples: dict[str, Any], family: str = "nlq", **more: Any) -> dict[str, Any]:
    return {"schema": 1, "name": "s", "family": family, "examples": list(examples), **more}


def example(**changes: Any) -> dict[str, Any]:
    return {"id": "e1", "video": "a.mp4", "query": "where is the kettle?", "windows": [[1, 2.5]], **changes}


def test_a_stage_file_is_read_written_and_read_again(tmp_path: Path) -> None:
    data = stage(
        example(), example(id="e2", query="umbrella?", windows=[], split="heldout", source={"query_idx": 3}),
        narrations=[{"video": "a.mp4", "time": 3, "text": "C lifts the kettle"}],
    )  # fmt: skip
    first = load_stage(data)
    save_stage(first, tmp_path / "s.json")
    again = load_stage(tmp_path / "s.json")
    assert again.examples == first.examples and again.narrations == first.narrations
    assert again.folder == tmp_path and again.examples[1].windows == () and again.part("heldout")[0].id == "e2"


def test_vq_examples_take_their_window_from_the_track() -> None:
    frame = {"video": "a.mp4", "time": 8.0, "box": [0.1, 0.2, 0.3, 0.5]}
    row = {"video": "a.mp4", "query_frame": frame, "before": 8, "track": [[3, 0.1, 0.2, 0.3, 0.4], [2, 0, 0, 0.5, 0.5]]}
    found = load_stage(stage(row, {"video": "a.mp4", "image": "x.png", "windows": []}, family="vq")).examples
    assert found[0].windows == ((2.0, 3.0),) and found[0].track[0].time == 2.0 and found[0].query_frame is not None
    assert found[1].windows == () and found[0].id != found[1].id


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (example(windows=[[5, 4]]), ["e1", "windows"]),
        (example(windows=[[-1, 4]]), ["e1", "windows"]),
        (example(windows=[[1, float("nan")]]), ["e1", "windows"]),
        (example(windows=[1, 2]), ["e1", "windows"]),
        (example(windows="all"), ["e1", "windows"]),
        (example(video=""), ["e1", "video"]),
        (example(query="  "), ["e1", "query"]),
        (example(split="test"), ["e1", "split"]),
        ({"id": "e1", "video": "a.mp4", "query": "x"}, ["e1", "windows"]),
        ({"id": "e1", "video": "a.mp4", "windows": []}, ["e1", "query"]),
        ("no object", ["example 0"]),
    ],
)
def test_errors_name_the_example_and_the_field(row: Any, words: list[str]) -> None:
    with pytest.raises(VilcoError) as caught:
        load_stage(stage(row))
    assert all(w in caught.value.message for w in words) and caught.value.remedy


@pytest.mark.parametrize("text", ["", "   ", "{", "[" * 100_000, "[]", '{"schema": 2}', '{"schema": 1, "family": "x"}'])
def test_broken_files_are_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(VilcoError, match="stage file"):
        load_stage(path)
    with pytest.raises(VilcoError):
        load_stage(stage())


def test_windows_are_held_against_the_length_of_the_video() -> None:
    found = load_stage(stage(example(windows=[[1, 10.1]])))
    assert check_times(found, lambda v: 10.0).examples[0].windows == ((1.0, 10.0),)
    with pytest.raises(VilcoError, match=r"e1.*outside"):
        check_times(found, lambda v: 9.0)
    assert check_times(found, lambda v: None).examples == found.examples


def test_tracks_and_query_frames_are_held_against_the_length_of_their_video() -> None:
    box = [0.1, 0.1, 0.5, 0.5]
    row = {"id": "p1", "video": "a.mp4", "query_frame": {"video": "b.mp4", "time": 30.0, "box": box}, "windows": [[1, 3]],
           "track": [[2.0, *box], [9.0, *box]]}  # fmt: skip
    found = load_stage(stage(row, family="vq"))
    assert check_times(found, {"a.mp4": 9.0, "b.mp4": 30.0}.get).examples == found.examples
    with pytest.raises(VilcoError, match=r"p1.*track.*9 s is outside"):
        check_times(found, {"a.mp4": 8.0, "b.mp4": 30.0}.get)
    with pytest.raises(VilcoError, match=r'p1.*query_frame.*outside "b.mp4"'):
        check_times(found, {"a.mp4": 9.0, "b.mp4": 20.0}.get)


def test_unknown_fields_are_kept_and_warned_of() -> None:
    found = load_stage(stage(example(colour="red"), mood=1))
    assert found.examples[0].extra == {"colour": "red"} and len(found.warnings) == 2
    assert found.to_json()["mood"] == 1 and found.to_json()["examples"][0]["colour"] == "red"


def test_the_same_question_answered_twice() -> None:
    with pytest.raises(VilcoError, match="e2"):
        load_stage(stage(example(), example(id="e2", query="Where is the  kettle?", windows=[])))
    found = load_stage(stage(example(), example(id="e2", windows=[[7, 8]])))
    assert "e2" in found.warnings[0] and len(found.examples) == 2
    with pytest.raises(VilcoError, match=r"e1.*twice"):
        load_stage(stage(example(), example(query="other")))


def test_the_heldout_part_is_a_fifth_and_always_the_same() -> None:
    share = sum(heldout(f"id{i}") for i in range(2000)) / 2000
    assert 0.17 < share < 0.23
    assert [heldout(f"id{i}") for i in range(50)] == [heldout(f"id{i}") for i in range(50)]
    assert [heldout(f"id{i}", seed=1) for i in range(50)] != [heldout(f"id{i}") for i in range(50)]
    unlucky = next(f"id{i}" for i in range(100) if heldout(f"id{i}"))
    assert load_stage(stage(example(id=unlucky))).part("train")  # a stage is never held out whole


NLQ = {
    "version": "2.0",
    "videos": [{"video_uid": "V", "split": "val", "clips": [{
        "clip_uid": "C", "video_start_sec": 100.0, "annotations": [{"annotation_uid": "A", "language_queries": [
            {"query": "what did I put in the sink?", "clip_start_sec": 3.0, "clip_end_sec": 5.5, "template": "Objects: What did I put in X?"},
            {"query": "", "clip_start_sec": 1.0, "clip_end_sec": 2.0},
            {"query": "where is the pan?", "clip_start_sec": 9.0, "clip_end_sec": 11.0, "template": "Objects: Where is object X?"},
        ]}]}]}],
}  # fmt: skip


def write(tmp_path: Path, data: Any, name: str = "a.json") -> Path:
    path = tmp_path / name
    path.write_text(json.dumps(data) if not isinstance(data, str) else data)
    return path


def test_ego4d_nlq_in_and_out_again(tmp_path: Path) -> None:
    found = import_stage("ego4d_nlq", write(tmp_path, NLQ), media="videos")
    assert [e.id for e in found.examples] == ["A_0", "A_2"] and "A_1" in found.warnings[0]
    assert found.examples[0].windows == ((103.0, 105.5),) and found.examples[0].video == "V"
    assert import_stage("ego4d_nlq", write(tmp_path, NLQ)).examples[0].windows == ((3.0, 5.5),)
    back = stage_to_nlq(found)["videos"][0]["clips"][0]["annotations"][0]["language_queries"]
    assert [(q["query"], q["clip_start_sec"], q["clip_end_sec"]) for q in back] == [
        ("what did I put in the sink?", 3.0, 5.5), ("where is the pan?", 9.0, 11.0)]  # fmt: skip
    out = tmp_path / "p.json"
    write_predictions("ego4d-nlq", [found], {"A_2": [(109.5, 111.0, 0.9)]}, out)
    rows = json.loads(out.read_text())["results"]
    assert rows == [{"clip_uid": "C", "annotation_uid": "A", "query_idx": 2, "predicted_times": [[9.5, 11.0]]}]


def test_ego4d_mq_raw_and_converted(tmp_path: Path) -> None:
    labels = [
        {"label": "use_phone", "start_time": 1.0, "end_time": 2.0, "primary": True},
        {"label": "use_phone", "start_time": 1.0004, "end_time": 2.0, "primary": True},
        {"label": "use_phone", "start_time": 7.0, "end_time": 9.0, "primary": True},
        {"label": "wash_hands", "start_time": 4.0, "end_time": 5.0, "primary": False},
    ]
    raw = {"videos": [{"video_uid": "V", "split": "val", "clips": [
        {"clip_uid": "C", "video_start_sec": 10.0, "annotations": [{"labels": labels}]}]}]}  # fmt: skip
    found = import_stage("ego4d_mq", write(tmp_path, raw))
    assert [(e.category, e.windows) for e in found.examples] == [("use_phone", ((1.0, 2.0), (7.0, 9.0)))]
    flat = {"C": {"video_id": "V", "subset": "val", "parent_start_sec": 10.0, "annotations": [
        {"segment": [1.0, 2.0], "label": "use_phone", "label_id": 16}]}}  # fmt: skip
    shifted = import_stage("ego4d_mq", write(tmp_path, flat), media="videos")
    assert shifted.examples[0].windows == ((11.0, 12.0),)
    out = tmp_path / "p.json"
    write_predictions("ego4d-mq", [shifted], {"C_use_phone": [(11.5, 12.0, 0.7)]}, out)
    got = json.loads(out.read_text())
    assert got["detect_results"] == {"C": [{"label": "use_phone", "score": 0.7, "segment": [1.5, 2.0]}]}
    assert got["retrieve_results"]["C"]["use_phone"] == [{"segment": [1.5, 2.0], "score": 0.7}]


def test_ego4d_vq_in_and_out_again(tmp_path: Path) -> None:
    size = {"original_width": 100, "original_height": 50}
    box = {"x": 10, "y": 5, "width": 20, "height": 10, **size}
    q = {"is_valid": True, "object_title": "mug", "query_frame": 60, "visual_crop": {"frame_number": 65, **box},
         "response_track": [{"frame_number": 21, **box}, {"frame_number": 20, **box}]}  # fmt: skip
    data = {"videos": [{"video_uid": "V", "clips": [{"clip_uid": "C", "clip_fps": 5, "annotations": [
        {"annotation_uid": "A", "query_sets": {"1": q, "2": {"is_valid": False}}}]}]}]}  # fmt: skip
    found = import_stage("ego4d_vq", write(tmp_path, data))
    e = found.examples[0]
    assert len(found.examples) == 1 and e.before == 12.0 and e.query_frame is not None and e.query_frame.time == 13.0
    assert e.track[0].to_json() == [4.0, 0.1, 0.1, 0.3, 0.3] and e.windows == ((4.0, 4.2),)
    out = tmp_path / "p.json"
    write_predictions("ego4d-vq", [found], {"A_1": [(4.0, 0.1, 0.1, 0.3, 0.3, 0.8)]}, out)
    clip = json.loads(out.read_text())["results"]["videos"][0]["clips"][0]
    track = clip["predictions"][0]["query_sets"]["1"]
    assert clip["clip_uid"] == "C" and track["score"] == 0.8
    assert track["bboxes"] == [{"fno": 20, "x1": 10.0, "y1": 5.0, "x2": 30.0, "y2": 15.0}]


def test_jsonl_forms(tmp_path: Path) -> None:
    flat = '{"query": "where is x?", "query_id": "A_4", "video_id": "C", "timestamps": [[1, 2]]}\n\n'
    e = import_stage("vilco", write(tmp_path, flat, "a.jsonl")).examples[0]
    assert (e.id, e.video, e.windows, e.source["query_idx"]) == ("A_4", "C", ((1.0, 2.0),), 4)
    line = '{"qid": 7, "query": "a dog", "duration": 150, "vid": "y_0_150", "relevant_windows": [[2, 8]], "saliency_scores": [[1, 2, 3]]}'
    found = import_stage("qvhighlights", write(tmp_path, line, "b.jsonl"))
    assert found.examples[0].extra["saliency_scores"] == [[1, 2, 3]]
    write_predictions("qvhighlights", [found], {"7": [(2.0, 8.0, 0.5)]}, tmp_path / "p.jsonl")
    row = json.loads((tmp_path / "p.jsonl").read_text())
    assert row == {"qid": 7, "query": "a dog", "vid": "y_0_150", "pred_relevant_windows": [[2.0, 8.0, 0.5]]}
    with pytest.raises(VilcoError, match="line 1"):
        import_stage("vilco", write(tmp_path, "{oops", "c.jsonl"))
    with pytest.raises(VilcoError, match="nosuch"):
        write_predictions("nosuch", [found], {}, tmp_path / "x")


def test_tables(tmp_path: Path) -> None:
    text = "video,query,start,end\na.mp4,where is it?,0:01:02.5,63.5\na.mp4,where is it?,80,90\na.mp4,unicorn,,\n"
    found = import_stage("table", write(tmp_path, text, "t.csv"))
    assert [(e.query, e.windows) for e in found.examples] == [
        ("where is it?", ((62.5, 63.5), (80.0, 90.0))),
        ("unicorn", ()),
    ]
    moments = import_stage("table", write(tmp_path, "video\tcategory\tstart\tend\na\twash\t1\t2\n", "m.tsv"))
    assert moments.family == "mq" and moments.folder == tmp_path
    for bad, word in (
        ("video,query,start,end\na,b,9,3\n", "line 2"),
        ("video,start\n", "query"),
        ("video,query,start,end\na,b,x,3\n", "line 2"),
    ):
        with pytest.raises(VilcoError, match=word):
            import_stage("table", write(tmp_path, bad, "b.csv"))


def test_narrations(tmp_path: Path) -> None:
    srt = "1\n00:00:01,000 --> 00:00:03,000\n#C C <i>picks up</i> a mug\nand drinks\n\n2\n00:01:00,000 --> 00:01:02,000\nhi\n"
    found = import_narrations(write(tmp_path, srt, "n.srt"), "a.mp4")
    assert [(n.time, n.text) for n in found] == [(2.0, "#C C picks up a mug and drinks"), (61.0, "hi")]
    vtt = "WEBVTT\n\n00:01.000 --> 00:02.000\nhello\n"
    assert import_narrations(write(tmp_path, vtt, "n.vtt"), "a.mp4")[0].time == 1.5
    table = import_narrations(write(tmp_path, "time,text\n0:10,C opens a door\n", "n.csv"), "a.mp4")
    assert table[0].time == 10.0 and table[0].video == "a.mp4"
    assert augment("#C C picks up the mug.") == [
        "picks up the mug",
        "the person picks up the mug",
        "when did I pick up the mug?",
    ]
    assert augment("C washes a cup")[2] == "when did I wash a cup?"
    assert seconds("1:02:03.5", "x") == 3723.5 and seconds("2,5", "x") == 2.5


def many(count: int, family: str = "mq") -> Stage:
    rows = []
    for i in range(count):
        name = f"c{i % 10}"
        base: dict[str, Any] = {
            "id": f"e{i}",
            "video": f"v{i % 7}",
            "windows": [[0, 1]],
            "source": {"object_title": name, "template": f"T{i % 3}" if i else None},
        }
        rows.append({**base, **({"category": name} if family == "mq" else {"query": f"question about {name} {i}"})})
    return load_stage(stage(*rows, family=family))


def test_category_groups_are_equal_balanced_and_reproducible() -> None:
    parts = by_category(many(60), stages=5, exclusive=False)
    assert [len(p.extra["categories"]) for p in parts] == [2] * 5
    assert Counter(c for p in parts for c in p.extra["categories"]) == Counter(f"c{i}" for i in range(10))
    assert sum(len(p.examples) for p in parts) == 60
    assert split_json(parts, "x", 0) == split_json(by_category(many(60), stages=5, exclusive=False), "x", 0)
    assert (
        split_json(by_category(many(60), seed=3, exclusive=False), "x", 3)["digest"]
        != split_json(parts, "x", 0)["digest"]
    )


def test_exclusive_groups_share_no_recording() -> None:
    parts = by_category(many(70), stages=5)
    seen = [{e.video for e in p.examples} for p in parts]
    assert sum(len(s) for s in seen) == len(set().union(*seen))
    ordered = by_category(many(60), stages=5, order=[f"c{i}" for i in range(10)], exclusive=False)
    assert ordered[0].extra["categories"] == ["c0", "c1"]
    with pytest.raises(VilcoError, match="outside"):
        by_category(many(60), order=["c0"] * 5)


def test_templates_and_objects(tmp_path: Path) -> None:
    parts = by_template(many(30, "nlq"))
    assert {p.name for p in parts} == {"T0", "T1", "T2"} and sum(len(p.examples) for p in parts) == 30
    objects = by_object(many(60), stages=5)
    assert sum(len(p.examples) for p in objects) == 60 and [len(p.extra["objects"]) for p in objects] == [2] * 5
    paths = save_splits(objects, "object titles", 0, tmp_path / "s")
    assert len(paths) == 6 and load_stage(paths[1]).examples == objects[0].examples
    assert json.loads(paths[0].read_text())["stages"][0]["examples"] == len(objects[0].examples)
