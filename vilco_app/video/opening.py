"""Opening a file: the container, the stream to show, and why a file is refused, in one line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vilco_app.values import VideoRefused

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

LOCAL = "file"  # a playlist under the name of a video must not make us fetch what it lists
STILLS = frozenset({"image2", "heif", "avif"})


def refused(path: Path, reason: str, remedy: str, code: str = "not-a-video") -> VideoRefused:
    """One line: file, reason, remedy."""
    return VideoRefused(code, f"{path.name}: {reason}.", remedy)


def open_container(path: Path) -> InputContainer:
    """Open a file. Raises VideoRefused with the reason a person can act on."""
    import av

    if not path.exists():
        raise refused(path, "there is no such file", "Check the path.", "no-such-file")
    if path.is_dir():
        raise refused(path, "it is a folder", "Name the files in it, or add the folder.", "is-a-folder")
    if path.stat().st_size == 0:
        raise refused(path, "it is empty (0 bytes)", "Copy it again from the camera or card.", "empty-file")
    try:
        container = av.open(str(path), metadata_errors="ignore", options={"protocol_whitelist": LOCAL})
    except PermissionError:
        raise refused(path, "it may not be read", "Give yourself read permission.", "no-permission") from None
    except (av.FFmpegError, ValueError, OSError) as error:
        reason, remedy = _why_unopened(path, error)
        raise refused(path, reason, remedy) from None
    brand = container.metadata.get("major_brand", "").strip()
    if container.format.name in STILLS or container.format.name.endswith("_pipe") or brand in {"heic", "mif1", "avif"}:
        container.close()
        raise refused(path, "it is a still picture", "Ask with it instead: vilco find PICTURE.", "still-picture")
    return container


def _why_unopened(path: Path, error: Exception) -> tuple[str, str]:
    with path.open("rb") as file:
        head = file.read(4096)
    if head[4:8] in {b"ftyp", b"moov", b"mdat", b"wide", b"free"}:
        return (
            "its index (moov) is missing, so the recording was never finished or the copy is incomplete",
            "Copy it again; if the camera lost power, repair it with the camera or an untrunc tool.",
        )
    if head and all(byte in b"\t\n\r\x0c\x1b" or byte >= 32 for byte in head):
        return "it holds text, not video", "Give it its real name, or name a video file."
    return f"it is not a video FFmpeg can read ({short(error)})", "Try to play it; convert it to mp4 if it plays."


def choose_stream(container: InputContainer, path: Path, threads: int) -> VideoStream:
    """The stream a player would show: FFmpeg's best one that is not a cover picture. The others are switched off.

    Closes the container where it raises VideoRefused: no such stream, or no decoder for it.
    """
    from av.stream import Discard, Disposition

    streams = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
    if not streams:
        container.close()
        raise refused(
            path, "it has no video stream, only sound or data", "Name a file with pictures.", "no-video-stream"
        )
    best: Any = container.streams.best("video")
    stream: VideoStream = best if any(s is best or s.index == best.index for s in streams if best) else streams[0]
    if stream.codec_context is None:
        container.close()
        raise refused(path, "no decoder for its codec", "Convert it to H.264 mp4.", "no-decoder")
    for other in container.streams:
        if other.index != stream.index:
            other.discard = Discard.all  # neither read nor waited for
    stream.thread_type = "AUTO"
    if threads:
        stream.codec_context.thread_count = threads
    return stream


def short(error: BaseException) -> str:
    """What FFmpeg said, in its own words."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text.strip().rstrip(".").lower()
