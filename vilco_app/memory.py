"""EpisodicMemory: the one service object that page, command line and Python callers use.

Everything heavy is loaded on first use and kept; methods may be called from several threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vilco_app.parts import Parts, Progress
from vilco_app.values import (
    AddReport,
    Answer,
    Box,
    Correction,
    MomentQuery,
    PastQuestion,
    TextQuery,
    Video,
    VilcoError,
    VisualQuery,
)
from vilco_app.words import parse_time, plain_words

if TYPE_CHECKING:
    from vilco_app.jobs import Jobs
    from vilco_app.learning.types import EvaluationReport, LearnReport, ModelList

Videos = str | Path | Sequence[str | Path] | None  # ids, prefixes or paths; None: the whole library
Asked = tuple[list[Video], int, float | None]  # recordings to look in, top, before in seconds
Corners = Box | tuple[float, float, float, float]


class EpisodicMemory(Parts):
    """Hours of first-person video that can be asked.

    home: data folder (`resolve_home`). profile: the encoders to index and ask with; "auto" = the best on this machine.
    """

    @property
    def jobs(self) -> Jobs:
        """The durable job table of this home."""
        from vilco_app import learning

        learning.register_jobs(self.catalogue.jobs, self.home)
        return self.catalogue.jobs

    def resume(self, job: int, progress: Progress | None = None) -> None:
        """Go on with a stopped or failed job until it is done. Raises VilcoError when it fails again."""
        self.jobs.resume(job)
        done = self.jobs.run_until(job, progress)
        if done.error is not None:
            raise VilcoError(done.error["code"], done.error["message"], done.error["remedy"])

    def resume_all(self) -> None:
        """Work off what an earlier process left waiting; returns at once when another process is doing so."""
        self.jobs.run_pending()

    # --- the library -------------------------------------------------------------------------------------------

    def add(
        self, paths: str | Path | Iterable[str | Path], rate: float = 2.0, progress: Progress | None = None
    ) -> AddReport:
        """Index files or folders at `rate` samples per second; returns when done. Resumes, skips what is there.

        Raises VilcoError when a path does not exist; files that cannot be read are in the report's `refused`.
        """
        return self.library.add(_paths(paths), self.profile, rate=rate, progress=progress)

    def videos(self) -> list[Video]:
        """Every recording of the library."""
        return self.catalogue.videos()

    def resolve(self, ref: str | Path) -> Video:
        """The recording with this path, id or unique prefix of an id. Raises VilcoError."""
        return self.catalogue.resolve(str(ref))

    def remove(self, video: str | Path) -> str:
        """Take a recording out of the library (its file stays) -> its id."""
        found = self.resolve(video)
        self.catalogue.remove(found.id)
        return found.id

    def forget(self, video: str | Path, start: float | str, end: float | str) -> tuple[float, float]:
        """Remove [start, end] (seconds or H:MM:SS) of a recording from all that is stored -> the span forgotten."""
        span = parse_time(start, "start"), parse_time(end, "end")
        found = self.resolve(video)
        if span[0] >= span[1] or span[0] >= found.duration:
            raise VilcoError(
                "bad-span", f"{span[0]:g} to {span[1]:g} s is not a span of {found.path} ({found.duration:.1f} s long).",
                "Give a start before the end, both inside the video.",
            )  # fmt: skip
        span = span[0], min(span[1], found.duration)
        from vilco_app import learning

        with suppress(VilcoError):  # a damaged snapshot is named by the second round
            learning.forget(self.home, found.id, *span)  # first, so that a kill in between leaves nothing only taught
        self.library.forget(found.id, *span)
        learning.forget(self.home, found.id, *span)  # and what was learnt meanwhile
        return span

    # --- asking ------------------------------------------------------------------------------------------------

    def ask(
        self, text: str, video: Videos = None, top: int = 5, before: float | str | None = None, curve: bool = False,
        progress: Progress | None = None,
    ) -> Answer:  # fmt: skip
        """Answer a question in words with windows of time.

        video: where to look (a path not indexed yet is indexed first); top: how many moments; before: only moments that
        end by then, in the one video named; curve: keep the saliency curves. Raises VilcoError.
        """
        query = TextQuery(plain_words(text, "question"))
        return self._still(
            video,
            lambda: self._asked(video, top, before, progress),
            lambda asked: self.answerer.text(query, *asked, curve),
        )

    def moments(
        self, category: str | Sequence[str], video: Videos = None, top: int = 5, before: float | str | None = None,
        curve: bool = False, progress: Progress | None = None,
    ) -> Answer:  # fmt: skip
        """Every window of one or more activity categories. Parameters as in `ask`."""
        given = [category] if isinstance(category, str) else list(category)
        query = MomentQuery(tuple(dict.fromkeys(plain_words(c, "category") for c in given)))
        if not query.categories:
            raise VilcoError("empty-query", "no category was given.", "Name an activity, such as: wash dishes")
        return self._still(
            video,
            lambda: self._asked(video, top, before, progress),
            lambda asked: self.answerer.moments(query, *asked, curve),
        )

    def find(
        self, image: Any, box: Corners | None = None, video: Videos = None, top: int = 5,
        before: float | str | None = None, curve: bool = False, progress: Progress | None = None,
    ) -> Answer:  # fmt: skip
        """Where a thing was seen, the last time first: windows and box tracks.

        image: a picture's path, "VIDEO@TIME" for a frame of a recording, or an RGB array [H, W, 3] uint8.
        box: where the thing is in it (fractions x1, y1, x2, y2). Other parameters as in `ask`.
        """
        corners = box if isinstance(box, Box) or box is None else Box(*box)
        query = self._visual(image, corners)
        return self._still(
            video,
            lambda: self._asked(video, top, before, progress),
            lambda asked: self.answerer.find(query, *asked, curve),
        )

    def frame(self, video: str | Path, time: float) -> Any:
        """The frame [H, W, 3] uint8 displayed at `time` seconds of a recording."""
        from vilco_app.video import frames_at

        found = self.resolve(video)
        if not 0 <= time <= found.duration:
            raise VilcoError(
                "bad-time", f"{time:g} s is outside {found.path} ({found.duration:.1f} s long).",
                "Give a time inside the video.",
            )  # fmt: skip
        return frames_at(self.catalogue.recording(found.id), [time]).frames[0]

    def _visual(self, image: Any, box: Box | None) -> VisualQuery:
        from vilco_app.pictures import check_picture, read_picture, visual_query

        if not isinstance(image, str | Path):
            return visual_query(check_picture(image), box, "picture")
        spot = re.fullmatch(r"(.+)@([\d:.]+)", str(image))
        if spot and not Path(image).exists():
            pixels = self.frame(spot[1], parse_time(spot[2], str(image)))
            return visual_query(pixels, box, f"{Path(spot[1]).name}@{spot[2]}")
        return visual_query(read_picture(Path(image).expanduser()), box, Path(image).name)

    def _still(self, video: Videos, asked: Callable[[], Asked], answer: Callable[[Asked], Answer]) -> Answer:
        """`answer(asked())`, once more over what is left when another process removed a recording meanwhile.

        What was asked is checked before the encoders are waited for, which can take half a minute.
        """

        def once() -> Answer:
            given = asked()
            with self.library.still():  # one question, one state of the library
                return answer(given)

        try:
            found = once()
        except VilcoError as error:
            if error.code != "no-such-video" or video is not None:
                raise
            found = once()
        self.catalogue.remember(found)
        return found

    def _asked(self, video: Videos, top: int, before: float | str | None, progress: Progress | None) -> Asked:
        """(recordings to look in, top, before in seconds), checked."""
        if top < 1:
            raise VilcoError("bad-top", f"top is {top}.", "Ask for at least one moment.")
        limit = None if before is None else parse_time(before, "before")
        remedy = "Name the one video whose time is meant."
        if limit is not None and not video:
            raise VilcoError("before-needs-one-video", "before was given with no video named.", remedy)
        videos = self._chosen(video, progress)
        if limit is not None and len(videos) != 1:
            raise VilcoError("before-needs-one-video", f"before was given with {len(videos)} videos named.", remedy)
        return videos, top, limit

    def _chosen(self, video: Videos, progress: Progress | None) -> list[Video]:
        if video is None or (not isinstance(video, str | Path) and not video):
            videos = self.library.videos() if self.catalogue.videos() else []
            if not videos:
                raise VilcoError("empty-library", "the library holds no video.", "Add footage first: vilco add PATH")
            return videos
        refs = [video] if isinstance(video, str | Path) else list(video)
        found = [self._indexed(str(ref), progress) for ref in refs]
        return list({v.id: v for v in found}.values())

    def _indexed(self, ref: str, progress: Progress | None) -> Video:
        """The recording `ref` names; a file that is not indexed in this profile yet is indexed first."""
        path = Path(ref).expanduser()
        try:
            found = self.library.resolve(ref)
            if found.indexed_seconds > 0 or found.state in ("ready", "gaps") or not Path(found.path).exists():
                return found
            path = Path(found.path)
        except VilcoError:
            if not ref or not path.exists():
                raise
        if path.is_dir():  # an empty variable in a script must not index the working directory
            raise VilcoError("not-a-video", f"{path}: is a folder.", f"Name a video, or add it first: vilco add {path}")
        report = self.add(path, progress=progress)
        if report.refused:
            refusal = report.refused[0]
            raise VilcoError(refusal.code, f"{refusal.path}: {refusal.reason}", refusal.remedy)
        return self.library.resolve(str(path))

    # --- corrections and files ---------------------------------------------------------------------------------

    def correct(
        self, answer: Answer, rank: int | None = None, start: float | str | None = None,
        end: float | str | None = None, absent: bool = False,
    ) -> Correction:  # fmt: skip
        """Record what is right for a question; it answers the same question on the same footage from then on.

        rank alone: that moment is right. rank with start and end (seconds or H:MM:SS): it is right with these edges.
        start and end alone: the window of the best moment's recording. absent: it is in none of the answer's recordings.
        Raises VilcoError for a rank the answer has not, or edges outside the recording.
        """
        from vilco_app.corrections import corrected

        made = [
            self.catalogue.correct(c.key, c.query, answer.kind, c.video, c.windows)
            for c in corrected(answer, self.resolve, rank, start, end, absent)
        ]
        return made[0]

    def corrections(self) -> list[Correction]:
        """Everything that was corrected, oldest first."""
        return self.catalogue.corrections()

    def take_back(self, correction: str) -> Correction:
        """Undo a correction (its id or a unique prefix of it): its question is answered as before. Raises VilcoError.

        What a snapshot learnt from it stays learnt: go back with `use`.
        """
        return self.catalogue.take_back(correction)

    def history(self, limit: int = 20) -> list[PastQuestion]:
        """The questions asked last, newest first, with the answers given."""
        return self.catalogue.history(limit)

    def clear_history(self) -> int:
        """Forget which questions were asked -> how many there were."""
        return self.catalogue.clear_history()

    def export(self, answer: Answer, to: str, out: str | Path) -> list[Path]:
        """Write an answer as csv, srt, vtt, edl, otio or clips -> the paths written, the main one first."""
        from vilco_app.exports import exported_paths

        return exported_paths(answer, to, out, self.catalogue)

    # --- learning ----------------------------------------------------------------------------------------------

    def learn(
        self, stage: Any = None, strategy: str | None = None, corrections: bool = False,
        progress: Progress | None = None, preset: str = "auto",
    ) -> LearnReport:  # fmt: skip
        """Learn a stage (path or object), or everything corrected so far, into a new active snapshot.

        preset: "auto" (quick up to 64 examples), "quick", "full" or "paper" (its learning rate, epochs, batch).
        """
        from vilco_app import learning

        if corrections:
            stage = learning.corrections_stage(self.catalogue.corrections())
        return learning.learn_in_job(
            self.home, self.library, self.profile, stage, strategy, preset, progress,
            profile_name=None if self._profile_name == "auto" else self._profile_name,
        )  # fmt: skip

    def evaluate(
        self, stage: Any, progress: Progress | None = None, export: str | None = None, output: str | Path | None = None
    ) -> EvaluationReport:
        """Score the active snapshot on a stage, or a list of them.

        export, output: also write the predictions in a benchmark's form (ego4d-nlq, ego4d-mq, ego4d-vq, qvhighlights).
        """
        from vilco_app import learning

        stages = list(stage) if isinstance(stage, list | tuple) else [stage]
        return learning.evaluate(self.home, self.library, self.profile, stages, progress, export, output)

    def models(self) -> ModelList:
        """All snapshots and which one is active."""
        from vilco_app import learning

        return learning.models(self.home)

    def remove_snapshot(self, snapshot: str) -> str:
        """Delete a snapshot (id or unique prefix) that does not answer at present -> its id. Raises VilcoError."""
        from vilco_app.learning.snapshots import Snapshots

        return Snapshots(self.home).remove(snapshot)

    def use(self, snapshot: str) -> str:
        """Answer with this snapshot from now on -> its id."""
        from vilco_app import learning

        return learning.use(self.home, snapshot)


def _paths(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    return [Path(p).expanduser() for p in given]
