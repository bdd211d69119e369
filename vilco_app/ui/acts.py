"""What a person does besides asking: says what is right, takes an answer along as a file, stops and resumes jobs."""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
import threading
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

from vilco_app.corrections import question_keys
from vilco_app.memory import EpisodicMemory
from vilco_app.ui.worker import Indexer
from vilco_app.values import Answer, VilcoError
from vilco_app.words import span

KEPT_ANSWERS = 200  # the last ones of all open pages; an older one is asked for again in a second


class Acts:
    """The acts of one page server. An answer is spoken of by the token it was shown with. Thread-safe."""

    def __init__(self, memory: EpisodicMemory, indexer: Indexer) -> None:
        self._memory, self._indexer = memory, indexer
        self._lock = threading.Lock()
        self._answers: OrderedDict[str, Answer] = OrderedDict()

    def keep(self, answer: Answer) -> str:
        """Keep an answer that is shown now -> its token."""
        token = secrets.token_urlsafe(12)
        with self._lock:
            self._answers[token] = answer
            while len(self._answers) > KEPT_ANSWERS:
                self._answers.popitem(last=False)
        return token

    def answer(self, token: str) -> Answer:
        """Raises VilcoError("answer-gone")."""
        with self._lock:
            found = self._answers.get(token)
        if found is None:
            raise VilcoError("answer-gone", "This answer is too old to speak of.", "Ask again.")
        return found

    def say(self, token: str, said: dict[str, Any]) -> str:
        """File what a person said of an answer -> a sentence for them.

        said: {"absent": true}; or {"rank": K} with "start" and "end" (seconds) where the edges are others; or
        {"nothing": true} to take back all that was said of this question. Raises VilcoError.
        """
        answer = self.answer(token)
        if said.get("nothing") is True:
            for correction in self.said(answer):
                self._memory.take_back(correction)
            return "Taken back. Ask again for what vilco finds by itself."
        if said.get("absent") is True:
            self._memory.correct(answer, absent=True)
            return "Noted: it is not in here. The same question says so from now on."
        rank, start, end = said.get("rank"), said.get("start"), said.get("end")
        numbers = all(v is None or (isinstance(v, int | float) and not isinstance(v, bool)) for v in (start, end))
        if not isinstance(rank, int) or isinstance(rank, bool) or not numbers:
            raise VilcoError("bad-correction", "This is not a moment of the answer.", "Press a moment first.")
        made = self._memory.correct(answer, rank, start, end)
        spans = ", ".join(span(a, b, " to ") for a, b in made.windows)
        name = Path(answer.moments[rank - 1].path).name
        return f"Noted: {spans} of {name} is right. The same question answers so from now on."

    def said(self, answer: Answer) -> list[str]:
        """Ids of the corrections of this very question."""
        return [c.id for key in question_keys(answer) for c in self._memory.catalogue.corrections(key)]

    def save(self, token: str, to: str) -> Path:
        """Write an answer as one file in a new folder of its own, which the caller removes; several files come zipped.

        Raises VilcoError.
        """
        answer = self.answer(token)
        folder = Path(tempfile.mkdtemp(prefix="vilco-"))
        try:
            name = re.sub(r"[^\w-]+", "-", answer.query).strip("-")[:60] or "answer"
            written = self._memory.export(answer, to, folder / (name if to == "clips" else f"{name}.{to}"))
            files = [path for path in written if path.is_file()]
            if to != "clips" and len(files) == 1:
                return files[0]
            with zipfile.ZipFile(folder / f"{name}.zip", "w") as packed:
                for path in files:
                    packed.write(path, path.name)
            return folder / f"{name}.zip"
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def stop(self, job: int) -> None:
        """Stop a job; what it did stays. Raises VilcoError."""
        self._memory.jobs.stop(job)

    def resume(self, job: int) -> None:
        """Go on with a stopped or failed job soon. Raises VilcoError."""
        self._memory.jobs.resume(job)
        self._indexer.go_on()

    def dismiss(self) -> None:
        """Forget what was refused lately."""
        self._indexer.dismiss()


def add_routes(server: Any, acts: Acts) -> None:
    """Put /said, /saved, /jobs and /dismiss on a FastAPI server; a VilcoError comes back as its JSON with status 400."""
    from fastapi import HTTPException
    from fastapi.responses import FileResponse, JSONResponse, Response
    from starlette.background import BackgroundTask

    def refused(error: VilcoError) -> Response:
        return JSONResponse(error.to_json(), status_code=400)

    @server.post("/said/{token}")
    def said(token: str, said: dict[str, Any]) -> Response:
        try:
            return JSONResponse({"note": acts.say(token, said)})
        except VilcoError as error:
            return refused(error)

    @server.post("/saved/{token}/{to}")
    def saved(token: str, to: str) -> Response:
        try:
            path = acts.save(token, to)
        except VilcoError as error:
            return refused(error)
        done = BackgroundTask(shutil.rmtree, path.parent, ignore_errors=True)
        return FileResponse(path, filename=path.name, background=done)

    @server.post("/jobs/{job}/{act}")
    def job(job: int, act: str) -> Response:
        if act not in ("stop", "resume"):
            raise HTTPException(404, "no such act")
        try:
            acts.stop(job) if act == "stop" else acts.resume(job)
        except VilcoError as error:
            return refused(error)
        return JSONResponse({})

    @server.post("/dismiss")
    def dismiss() -> Response:
        acts.dismiss()
        return JSONResponse({})
