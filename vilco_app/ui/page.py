"""The page: ask on the left, see on the right, the library below the player."""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vilco_app.memory import EpisodicMemory
from vilco_app.ui import cards
from vilco_app.ui.acts import Acts
from vilco_app.ui.worker import Indexer
from vilco_app.values import Answer, VilcoError

EVERYWHERE = "all videos"
POLL_SECONDS = 1.5  # how often the page looks at the job table; a job's progress changes about as fast as one reads it

PLAYER = """
<div id="v-player">
  <div id="v-stage"><video id="v-video" controls preload="metadata" playsinline></video><div id="v-live"></div>
  <div id="v-draw" hidden></div><div id="v-message">Press a moment or a video to see it here</div></div>
  <div id="v-strip" role="group" aria-label="Moments in this video"></div>
  <div id="v-under"><div id="v-caption" aria-live="polite"></div>
  <div id="v-say" role="group" aria-label="Correct this moment" hidden><button type="button" data-edge="start">Starts here</button>
  <button type="button" data-edge="end">Ends here</button><button type="button" data-right>That's right</button></div></div>
</div>
"""


def build(memory: EpisodicMemory, indexer: Indexer, acts: Acts | None = None, questions: Sequence[str] = ()) -> Any:
    """The Gradio page of one home. acts: with them answers can be corrected and saved; questions: offered to press."""
    from vilco_app.ui.serve import quiet_gradio

    quiet_gradio()
    import gradio as gr

    with gr.Blocks(title="vilco", analytics_enabled=False, fill_width=True, delete_cache=(3600, 86400)) as page:
        gr.HTML('<header id="v-top"><b>vilco</b><span>ask your own video</span></header>', padding=False)
        with gr.Row(elem_id="v-main", equal_height=False):
            with gr.Column(scale=5, min_width=360, elem_id="v-ask"):
                with gr.Tabs(elem_id="v-kinds"):
                    with gr.Tab("In words"), gr.Row(elem_classes="v-line"):
                        text = gr.Textbox(
                            placeholder="where did I put the scissors?", label="Your question", show_label=False, lines=1, scale=5,
                            container=False, elem_id="v-text", max_length=1000,
                        )  # fmt: skip
                        ask = gr.Button("Ask", variant="primary", scale=1, min_width=96, elem_id="v-ask-button")
                    with gr.Tab("By activity"), gr.Row(elem_classes="v-line"):
                        category = gr.Textbox(
                            placeholder="wash dishes, use phone", label="Activities, with commas between", show_label=False,
                            lines=1, scale=5, container=False, elem_id="v-category", max_length=1000,
                        )  # fmt: skip
                        moments = gr.Button("Find every time", variant="primary", scale=1, min_width=170, elem_id="v-moments-button")  # fmt: skip
                    with gr.Tab("With a picture"):
                        # png: a lossy copy of a small cut is another picture; a bow tie's chance fell from 0.9 to 0.4
                        picture = gr.Image(
                            type="numpy", format="png", show_label=False, height=170, sources=["upload", "clipboard"],
                            container=False, buttons=[], elem_id="v-picture",
                        )  # fmt: skip
                        with gr.Row(elem_classes="v-line"):
                            frame = gr.Button("Mark it in the player", min_width=150, elem_id="v-frame-button")
                            find = gr.Button("Find it", variant="primary", min_width=96, elem_id="v-find-button")
                        spot = gr.Textbox(visible="hidden", elem_id="v-spot")
                where = gr.Dropdown([EVERYWHERE], value=EVERYWHERE, label="Where to look", show_label=False, container=False, elem_id="v-where", filterable=False)  # fmt: skip
                result = gr.HTML(cards.welcome(questions), elem_id="v-result", padding=False)
                answer = gr.JSON(visible=False)
            with gr.Column(scale=6, min_width=420, elem_id="v-see"):
                gr.HTML(PLAYER, elem_id="v-seen", padding=False)
                with gr.Column(elem_id="v-library", min_width=300):
                    gr.HTML("<h2>Your footage</h2>", padding=False)
                    shelf = gr.HTML(elem_id="v-shelf", padding=False)
                    with gr.Row(elem_id="v-add", elem_classes="v-line"):
                        path = gr.Textbox(
                            placeholder="file or folder on this computer", label="File or folder to add", show_label=False,
                            container=False, scale=5, elem_id="v-path",
                        )  # fmt: skip
                        add = gr.Button("Add", scale=1, min_width=80, elem_id="v-add-button")
                        upload = gr.UploadButton("Upload", file_types=["video"], file_count="multiple", scale=1, min_width=90, elem_id="v-upload")  # fmt: skip
        timer = gr.Timer(POLL_SECONDS)

        shown = [result, answer]
        asking: dict[str, Any] = {"concurrency_limit": 4, "show_progress": "minimal"}
        on_text = _answering(memory, indexer, acts, lambda q, v: memory.ask(q, video=v))
        gr.on([ask.click, text.submit], on_text, [text, where], shown, api_name="ask", **asking)
        on_moments = _answering(memory, indexer, acts, lambda q, v: memory.moments(_categories(q), video=v))
        gr.on([moments.click, category.submit], on_moments, [category, where], shown, api_name="moments", **asking)
        on_find = _answering(memory, indexer, acts, lambda q, v: memory.find(_needed(q), video=v))
        find.click(on_find, [picture, where], shown, api_name="find", **asking)
        frame.click(None, None, spot, js="() => window.vilco.mark()")
        spot.change(_cutter(memory), spot, picture, api_visibility="private", show_progress="hidden")

        adding = _adding(memory, indexer)
        gr.on([add.click, path.submit], adding, path, path, api_name="add")
        upload.upload(_uploading(memory, indexer), upload, None, api_visibility="private")
        look = _library(memory, indexer)
        seen = gr.State("")
        gr.on([page.load, timer.tick], look, [seen, where], [shelf, where, seen], api_visibility="private", show_progress="hidden", queue=True)  # fmt: skip
    return page


def _answering(
    memory: EpisodicMemory, indexer: Indexer, acts: Acts | None, ask: Callable[[Any, Any], Answer]
) -> Callable[..., Iterator[tuple[str, Any]]]:
    """(query, where) -> (HTML, JSON): the same for every kind of question. While first footage is prepared, it waits."""

    def answered(query: Any, where: str) -> Iterator[tuple[str, Any]]:
        try:
            if not _searchable(memory) and indexer.busy:
                yield cards.waiting_card(), None
                while not _searchable(memory) and indexer.busy:
                    time.sleep(0.2)
            if not memory.videos():  # said before the encoders are waited for
                raise VilcoError(
                    "empty-library", "There is no footage yet.", "Add a file or folder under Your footage."
                )
            answer = ask(query, None if where in (None, "", EVERYWHERE) else where)
            token, said = (acts.keep(answer), bool(acts.said(answer))) if acts is not None else ("", False)
            yield cards.answer_html(answer, {v.id: v for v in memory.videos()}, token, said), answer.to_json()
        except VilcoError as error:
            yield cards.error_card(error), error.to_json()
        except Exception as error:  # the page stays usable; the whole story is on the terminal
            traceback.print_exc()
            told = VilcoError("internal", f"{type(error).__name__}: {error}.", "A fault of vilco: please report it.")
            yield cards.error_card(told), told.to_json()

    return answered


def _searchable(memory: EpisodicMemory) -> bool:
    return any(video.indexed_seconds > 0 for video in memory.videos())


def _categories(text: str) -> list[str]:
    return [c for c in (part.strip() for part in (text or "").split(",")) if c]


def _needed(picture: Any) -> Any:
    if picture is None:
        raise VilcoError("empty-query", "There is no picture yet.", "Upload one, or mark the thing in the player.")
    return picture


def _cutter(memory: EpisodicMemory) -> Callable[[str], Any]:
    """ "ID time x1 y1 x2 y2" of the player -> the marked part of that frame."""

    def cut(spot: str) -> Any:
        import gradio as gr

        from vilco_app.pictures import visual_query
        from vilco_app.values import Box

        try:
            video, time, *corners = spot.split()
            box = Box(*(float(c) for c in corners))
            return visual_query(memory.frame(video, float(time)), box, "frame").image
        except (VilcoError, ValueError, TypeError):
            return gr.skip()

    return cut


def _adding(memory: EpisodicMemory, indexer: Indexer) -> Callable[[str], str]:
    def add(path: str) -> str:
        import gradio as gr

        wanted = Path((path or "").strip().strip("\"'")).expanduser()
        if not (path or "").strip():
            return ""
        if not wanted.exists():
            gr.Warning(f"{cards.escape(str(wanted))} does not exist on this computer.")
            return path
        indexer.add([wanted])
        return ""

    return add


def _uploading(memory: EpisodicMemory, indexer: Indexer) -> Callable[[list[str] | None], None]:
    def upload(files: list[str] | None) -> None:
        kept = []
        folder = memory.home / "videos"
        folder.mkdir(parents=True, exist_ok=True)
        for file in files or []:
            target = free_name(folder, Path(file).name)
            shutil.move(file, target)
            kept.append(target)
        if kept:
            indexer.add(kept)

    return upload


def free_name(folder: Path, name: str) -> Path:
    """A path in `folder` that is not taken: NAME, else NAME-2, NAME-3, ... Never leaves the folder."""
    safe = Path(name.replace("\\", "/")).name.lstrip(".") or "video"
    target, number = folder / safe, 1
    while target.exists():
        number += 1
        target = folder / f"{Path(safe).stem}-{number}{Path(safe).suffix}"
    return target


def _library(memory: EpisodicMemory, indexer: Indexer) -> Callable[[str, str], tuple[Any, Any, str]]:
    """(what the page shows, place chosen) -> the shelf and the places to look in; skipped when nothing changed."""

    def look(seen: str, where: str) -> tuple[Any, Any, str]:
        import gradio as gr

        try:
            videos, jobs = memory.videos(), memory.jobs.list()
            html = cards.library_html(videos, jobs, indexer.messages, indexer.preparing)
        except VilcoError as error:
            return cards.error_card(error), gr.skip(), ""
        if html == seen:
            return gr.skip(), gr.skip(), seen
        choices = [(EVERYWHERE, EVERYWHERE), *((Path(v.path).name, v.id) for v in videos)]
        kept = where if any(where == value for _, value in choices) else EVERYWHERE
        return html, gr.update(choices=choices, value=kept), html

    return look


def theme() -> Any:
    """Quiet colours and the system's own fonts: nothing is fetched from a font server."""
    import gradio as gr

    fonts = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
    mono = ["ui-monospace", "Menlo", "Consolas", "monospace"]
    return gr.themes.Base(primary_hue="teal", neutral_hue="slate", radius_size="lg", font=fonts, font_mono=mono)


def style() -> str:
    """The page's own style sheet."""
    return (Path(__file__).parent / "style.css").read_text(encoding="utf-8")


def head() -> str:
    """The player's script, inline."""
    script = (Path(__file__).parent / "player.js").read_text(encoding="utf-8")
    return f"<script>{script}</script>"
