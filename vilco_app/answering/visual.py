"""Picture questions: regions choose frames, dense matching on the frames decoded again decides, boxes become tracks."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vilco_app.answering.calibrate import picture_confidence
from vilco_app.answering.curve import Passage, region_scores, smooth
from vilco_app.answering.grounding import ZeroShotGrounder
from vilco_app.answering.matching import Match, PictureJudge, Sight, mean_cell, picture_cells, picture_of
from vilco_app.answering.options import Options
from vilco_app.answering.windows import Windows, best_windows, score_spans
from vilco_app.encoders.base import Profile
from vilco_app.encoders.cells import unit
from vilco_app.library.types import LibraryView
from vilco_app.values import Moment, Source, TimedBox, Track, Video, VilcoError

UNSEEN = 0.25  # confidence of a guess that no frame was looked at for


@dataclass(frozen=True)
class Appearance:
    """A stretch of one passage in which the thing may be seen: rows first:last, and the rows looked at with their match."""

    passage: int
    first: int
    last: int
    looked: dict[int, Match]

    @property
    def score(self) -> float:
        return max((m.score for m in self.looked.values()), default=-1.0)


@dataclass(frozen=True)
class Found:
    """tracks: best first; confidence that the thing is there at all; curves [n] per passage: the best region's score."""

    tracks: tuple[Track, ...]
    confidence: float
    curves: tuple[np.ndarray, ...]


class PictureFinder:
    """Finds the thing in a picture in passages of footage. grounder: shared with words, keeps segmentations.

    judge: a trained head that knows how much it counts; None: zero-shot.
    """

    def __init__(
        self, library: LibraryView, profile: Profile, options: Options, grounder: ZeroShotGrounder,
        judge: PictureJudge | None = None,
    ) -> None:  # fmt: skip
        self.library, self.profile, self.options, self.grounder = library, profile, options, grounder
        self.judge = judge

    def region_query(self, image: np.ndarray) -> np.ndarray:
        """The picture's region vector minus the library's mean region [Dr]: what it has that not every region has."""
        regions = self.profile.image(image).regions
        if not len(regions):
            raise VilcoError(
                "no-regions",
                f"profile {self.profile.id} stores whole frames only, so it cannot look for a thing in them.",
                "Index with a profile that has regions, such as embedded, clip or dino.",
            )
        vector = unit(regions[0].astype(np.float32))
        return unit(vector - self.library.statistics("regions").mean.astype(np.float32))

    def find(self, image: np.ndarray, direction: np.ndarray, passages: Sequence[Passage], top: int) -> Found:
        """image [H, W, 3] uint8; direction: `region_query` of it."""
        return self.found(self.look(image, direction, passages), top, self.judge)

    def look(self, image: np.ndarray, direction: np.ndarray, passages: Sequence[Passage]) -> Sight:
        """Choose frames by their regions and decode them."""
        raw = [region_scores(p, direction) for p in passages]
        joined = np.concatenate(raw)
        mean, deviation = float(joined.mean()), float(joined.std()) + 1e-6
        curves = tuple(
            smooth((c - mean) / deviation, p.times, self.options.smooth) for c, p in zip(raw, passages, strict=True)
        )
        maps = self._decode(passages, self._frames_to_look_at(passages, raw, curves))
        sight = Sight(passages, curves, direction, sorted(maps), maps)
        if maps:
            common = np.mean([mean_cell(m[None]) for m in maps.values()], axis=0)
            cells = picture_cells(self.profile, image)
            sight.picture = picture_of(cells, image.shape[1] / image.shape[0], common)
        return sight

    def found(self, sight: Sight, top: int, judge: PictureJudge | None = None) -> Found:
        """Tracks on what `look` saw; frames that the tracks need beside are decoded into the sight."""
        passages, curves = sight.passages, sight.curves
        if sight.picture is None:  # the files are gone; what was indexed can still be asked
            guesses = self._unseen(passages, curves, sight.direction, top)
            return Found(tuple(guesses), UNSEEN if guesses else 0.0, curves)
        seen = sight.matches(sight.first, judge)
        background = float(np.median([m.score for m in seen.values()]))
        appearances = self._appearances(passages, curves, seen)[: max(top, 1)]
        more = self._more_frames(passages, appearances, set(seen))
        sight.maps |= self._decode(passages, [k for k in more if k not in sight.maps])
        seen |= sight.matches([k for k in more if k in sight.maps], judge)
        shares = (judge.frames, judge.boxes) if judge is not None else (0.0, 0.0)
        source: Source = "zero-shot" if max(shares) <= 0 else "fused" if min(shares) < 1 else "vilco"
        tracks, sure = [], []
        for a in appearances:
            inside = {r: m for (p, r), m in seen.items() if p == a.passage and a.first <= r < a.last}
            track = self._track(passages[a.passage], Appearance(a.passage, a.first, a.last, inside), background, source)
            if track is not None:
                tracks.append(track)
                sure.append(max(m.sure for m in inside.values()))
        # confidence is calibrated on the zero-shot cosine, whoever ranks
        return Found(tuple(self._ordered(tracks)[:top]), picture_confidence(max(sure, default=-1.0)), curves)

    def _frames_to_look_at(
        self, passages: Sequence[Passage], raw: Sequence[np.ndarray], curves: Sequence[np.ndarray]
    ) -> list[tuple[int, int]]:
        """(passage, row) of the peaks of the best windows, then of the best frames left, none within 1 s of another."""
        windows = self._windows(passages, curves)
        chosen: list[tuple[int, int]] = []

        def take(p: int, rows: np.ndarray) -> None:
            times = passages[p].times
            for r in rows[np.argsort(-raw[p][rows])][:200]:
                if all(q != p or abs(times[r] - times[s]) >= 1.0 for q, s in chosen):
                    chosen.append((p, int(r)))
                    return

        for i in best_windows(windows, self.options.picture_frames // 2, self.options.overlap):
            p = int(windows.passage[i])
            times = passages[p].times
            take(p, np.flatnonzero((times >= windows.starts[i] - 1e-6) & (times < windows.ends[i])))
        order = sorted(((float(s), p, r) for p, c in enumerate(raw) for r, s in enumerate(c)), reverse=True)
        for _, p, r in order[: 50 * self.options.picture_frames]:
            if len(chosen) >= self.options.picture_frames:
                break
            take(p, np.array([r]))
        return chosen

    def _windows(self, passages: Sequence[Passage], curves: Sequence[np.ndarray]) -> Windows:
        total = sum(p.end - p.start for p in passages)
        parts = [
            score_spans(p, i, self.grounder.spans(p), c, total, self.options)
            for i, (p, c) in enumerate(zip(passages, curves, strict=True))
        ]
        return Windows.concatenate(parts)

    def _decode(
        self, passages: Sequence[Passage], rows: Sequence[tuple[int, int]]
    ) -> dict[tuple[int, int], np.ndarray]:
        """Dense maps [h, w, C] of the given samples, decoded once more; a recording whose file is gone gives none."""
        from vilco_app.video import frames_at, open_recording

        by_video: dict[str, list[tuple[int, int]]] = {}
        for p, r in rows:
            by_video.setdefault(passages[p].stored.video.id, []).append((p, r))
        parts = []
        for keys in by_video.values():
            keys.sort(key=lambda k: passages[k[0]].times[k[1]])  # in file order, so that decoding runs forward
            size = max(4, -(-len(keys) // self.options.readers))
            parts += [keys[i : i + size] for i in range(0, len(keys), size)]

        def read(keys: list[tuple[int, int]]) -> dict[tuple[int, int], np.ndarray]:
            video = passages[keys[0][0]].stored.video
            try:
                recording = open_recording([Path(p) for p in (video.parts or (video.path,))])
                times = [float(passages[p].times[r]) + 1e-4 for p, r in keys]
                frames = frames_at(recording, times, self.options.picture_side).frames
            except (VilcoError, OSError):
                return {}
            return dict(zip(keys, self.profile.dense(frames), strict=True))

        maps: dict[tuple[int, int], np.ndarray] = {}
        with ThreadPoolExecutor(self.options.readers) as pool:  # decoding waits for nobody's encoding
            for found in pool.map(read, parts):
                maps.update(found)
        return maps

    def _appearances(
        self, passages: Sequence[Passage], curves: Sequence[np.ndarray], seen: dict[tuple[int, int], Match]
    ) -> list[Appearance]:
        """Stretches around the frames looked at, best match first; a frame inside a better one's stretch joins it."""
        out: list[Appearance] = []
        for (p, r), m in sorted(seen.items(), key=lambda kv: -kv[1].score):
            for a in out:
                if a.passage == p and a.first <= r < a.last:
                    a.looked[r] = m
                    break
            else:
                first, last = self._stretch(passages[p], curves[p], r)
                for a in out:  # stretches do not overlap
                    if a.passage == p:
                        if a.last <= r:
                            first = max(first, a.last)
                        elif a.first > r:
                            last = min(last, a.first)
                out.append(Appearance(p, first, last, {r: m}))
        return sorted(out, key=lambda a: -a.score)

    def _stretch(self, passage: Passage, curve: np.ndarray, row: int) -> tuple[int, int]:
        """The span of the hierarchy around a row that stands out most as a scene: mean of the curve x sqrt(seconds)."""
        spans = self.grounder.spans(passage)
        around = spans[(spans[:, 0] <= row) & (spans[:, 1] > row)]
        times = passage.times
        ends = np.append(times[1:], passage.end)
        seconds = ends[around[:, 1] - 1] - times[around[:, 0]]
        around, seconds = (
            around[seconds <= self.options.longest_appearance],
            seconds[seconds <= self.options.longest_appearance],
        )
        if not len(around):
            return row, row + 1
        sums = np.concatenate([[0.0], np.cumsum(curve, dtype=np.float64)])
        means = (sums[around[:, 1]] - sums[around[:, 0]]) / (around[:, 1] - around[:, 0])
        worth = np.where(means > 0, means * np.sqrt(seconds), means)
        first, last = around[int(np.argmax(worth))]
        return int(first), int(last)

    def _more_frames(
        self, passages: Sequence[Passage], appearances: Sequence[Appearance], known: set[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Rows spread over the appearances for their tracks, most for the best ones."""
        left = self.options.track_frames
        out: list[tuple[int, int]] = []
        for rank, a in enumerate(appearances):
            times = passages[a.passage].times
            seconds = float(times[a.last - 1] - times[a.first]) + 0.5
            share = max(2, left // 2 if rank == 0 else left // 3)
            count = int(min(share, left, np.ceil(seconds / self.options.track_step) + 1))
            for r in np.unique(np.linspace(a.first, a.last - 1, max(count, 1)).round().astype(int)):
                if (a.passage, int(r)) not in known:
                    out.append((a.passage, int(r)))
                    left -= 1
        return out

    def _track(self, passage: Passage, a: Appearance, background: float, source: Source) -> Track | None:
        """Boxes where the match stands clear of the background, joined over short gaps to every stored sample."""
        if not a.looked:
            return None
        best = a.score
        level = min(background + self.options.keep_level * (best - background), best)
        rows = [r for r in sorted(a.looked) if a.looked[r].score >= level]
        times = passage.times
        ends = np.append(times[1:], passage.end)
        boxes: list[TimedBox] = []
        for i, r in enumerate(rows):
            here = np.array(a.looked[r].box)
            boxes.append(TimedBox(float(times[r]), *(float(v) for v in here)))
            if i + 1 < len(rows) and times[rows[i + 1]] - times[r] <= self.options.track_gap:
                there = np.array(a.looked[rows[i + 1]].box)
                for s in range(r + 1, rows[i + 1]):
                    part = (times[s] - times[r]) / (times[rows[i + 1]] - times[r])
                    boxes.append(TimedBox(float(times[s]), *(float(v) for v in (1 - part) * here + part * there)))
        video: Video = passage.stored.video
        start, end = max(float(times[rows[0]]), passage.start), min(float(ends[rows[-1]]), passage.end)
        return Track(Moment(video.id, video.path, start, end, best, source), tuple(boxes))

    def _unseen(
        self, passages: Sequence[Passage], curves: Sequence[np.ndarray], direction: np.ndarray, top: int
    ) -> list[Track]:
        """Guesses from stored regions alone: the best windows, at each sample the box of its best region."""
        windows = self._windows(passages, curves)
        tracks = []
        for i in best_windows(windows, top, self.options.overlap):
            p = passages[int(windows.passage[i])]
            start, end = float(windows.starts[i]), float(windows.ends[i])
            boxes = []
            for r in np.flatnonzero((p.times >= start - 1e-6) & (p.times < end)):
                group = int(p.stored.group[p.first + r])
                low, high = int(p.stored.offsets[group]), int(p.stored.offsets[group + 1])
                if high > low:
                    best = low + int(np.argmax(p.stored.regions(low, high) @ direction))
                    corners = np.asarray(p.stored.region_boxes[best], dtype=np.float64) / 255
                    boxes.append(TimedBox(float(p.times[r]), *(float(v) for v in corners)))
            video = p.stored.video
            tracks.append(Track(Moment(video.id, video.path, start, end, UNSEEN, "zero-shot"), tuple(boxes)))
        return tracks

    def _ordered(self, tracks: Sequence[Track]) -> list[Track]:
        """The last appearance first among those as sure as the best, the others behind by score.

        Those in front carry the best one's score: they are equally sure, and time ranks them.
        """
        if not tracks:
            return []
        best = max(t.moment.score for t in tracks)
        sure = [t for t in tracks if t.moment.score >= best - self.options.as_sure]
        rest = sorted(
            (t for t in tracks if t.moment.score < best - self.options.as_sure), key=lambda t: -t.moment.score
        )
        sure.sort(key=lambda t: t.moment.start, reverse=True)
        raised = [Track(_scored(t.moment, picture_confidence(best)), t.boxes) for t in sure]
        return raised + [Track(_scored(t.moment, picture_confidence(t.moment.score)), t.boxes) for t in rest]


def _scored(moment: Moment, score: float) -> Moment:
    return Moment(moment.video, moment.path, moment.start, moment.end, score, moment.source, moment.category)
