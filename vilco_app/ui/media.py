"""What the browser fetches besides the page: recordings in place (byte ranges, nothing copied) and thumbnails.

Only files of the library are served, by their id; a path never comes from the browser.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

from vilco_app.memory import EpisodicMemory
from vilco_app.values import Video, VilcoError

THUMBNAIL_WIDTH = 320  # pixels: twice the card's width, for dense screens


class Media:
    """Recordings and thumbnails of one home. Thread-safe."""

    def __init__(self, memory: EpisodicMemory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._making: dict[str, str] = {}  # video id -> "making" or why it failed
        self._plays: dict[str, bool] = {}
        self._one_proxy = threading.Lock()  # an encoder each takes all cores: one at a time, however many are pressed

    def video(self, video: str) -> Video | None:
        """The recording with exactly this id, or None."""
        if not re.fullmatch(r"[0-9a-f]{12}", video):
            return None
        try:
            return self._memory.resolve(video)
        except VilcoError:
            return None

    def source(self, video: str) -> dict[str, Any]:
        """How to play a recording: parts [{url, offset}] (seconds), or what is missing for that ("making", "gone")."""
        found = self.video(video)
        if found is None:
            return {"state": "gone", "message": "This recording is not in the library any more."}
        try:
            recording = self._memory.catalogue.recording(found.id)
            if self._playable(found):
                parts = [{"url": f"/media/{video}/{n}", "offset": p.offset} for n, p in enumerate(recording.parts)]
                return {"state": "ready", "parts": parts}
            if self.proxy(video).is_file():
                return {"state": "ready", "parts": [{"url": f"/media/{video}/proxy", "offset": 0.0}]}
            return self._start_proxy(found)
        except VilcoError as error:
            return {"state": "gone", "message": f"{error.message} {error.remedy}"}

    def proxy(self, video: str) -> Path:
        """Where the browser's copy of a recording it cannot play lies."""
        return self._memory.catalogue.cache_folder(video) / "proxy.mp4"

    def file(self, video: str, part: str) -> Path | None:
        """The file behind /media/ID/PART, or None."""
        found = self.video(video)
        if found is None:
            return None
        if part == "proxy":
            path = self.proxy(video)
        else:
            files = found.parts or (found.path,)
            if not re.fullmatch("[0-9]{1,4}", part) or int(part) >= len(files):
                return None
            path = Path(files[int(part)])
        return path if path.is_file() else None

    def thumbnail(self, video: str, milliseconds: int) -> bytes | None:
        """JPEG of the frame displayed then, or None where there is none or it was forgotten."""
        found = self.video(video)
        if found is None:
            return None
        from vilco_app.video import thumbnail

        try:
            time = min(max(0.0, milliseconds / 1000), max(0.0, found.duration - 0.05))
            if any(a <= time < b for a, b in self._memory.catalogue.catalogue.forgotten(found.id).get(found.id, ())):
                return None
            return thumbnail(self._memory.catalogue.recording(found.id), time, THUMBNAIL_WIDTH)
        except VilcoError:
            return None

    def _playable(self, video: Video) -> bool:
        with self._lock:
            known = self._plays.get(video.id)
        if known is None:
            from vilco_app.video import browser_playable, probe

            known = all(browser_playable(probe(Path(p))) for p in video.parts or (video.path,))
            with self._lock:
                self._plays[video.id] = known
        return known

    def _start_proxy(self, video: Video) -> dict[str, Any]:
        with self._lock:
            state = self._making.setdefault(video.id, "new")
            if state == "new":
                self._making[video.id] = "making"
        if state == "new":
            threading.Thread(target=self._make_proxy, args=(video,), name="proxy", daemon=True).start()
            state = "making"
        if state == "making":
            return {
                "state": "making",
                "message": "Your browser cannot play this format; a copy it can play is being made.",
            }
        return {"state": "gone", "message": state}

    def _make_proxy(self, video: Video) -> None:
        from vilco_app.video import make_proxy

        try:
            with self._one_proxy:
                self.proxy(video.id).parent.mkdir(parents=True, exist_ok=True)
                make_proxy(self._memory.catalogue.recording(video.id), self.proxy(video.id))
            outcome = None
        except VilcoError as error:
            outcome = f"{error.message} {error.remedy}"
        except OSError as error:
            outcome = f"No copy could be made ({error.strerror})."
        with self._lock:
            if outcome is None:
                self._making.pop(video.id, None)
            else:
                self._making[video.id] = outcome


def add_routes(server: Any, media: Media) -> None:
    """Put /source, /media and /thumb on a FastAPI server."""
    from fastapi import HTTPException
    from fastapi.responses import FileResponse, JSONResponse, Response

    @server.get("/source/{video}")
    def source(video: str) -> JSONResponse:
        return JSONResponse(media.source(video), headers={"Cache-Control": "no-store"})

    @server.get("/media/{video}/{part}")
    def file(video: str, part: str) -> FileResponse:
        path = media.file(video, part)
        if path is None:
            raise HTTPException(404, "not in the library")
        return FileResponse(path)  # answers byte ranges, so a player seeks without reading the whole file

    @server.get("/thumb/{video}/{milliseconds}")
    def thumb(video: str, milliseconds: int) -> Response:
        jpeg = media.thumbnail(video, milliseconds)
        if jpeg is None:
            raise HTTPException(404, "no such frame")
        return Response(jpeg, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})
