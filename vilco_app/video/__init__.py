"""Video files: probe, read samples at their true times, frames by time, thumbnails, clips, browser proxies."""

from vilco_app.video.chapters import group_chapters, open_recording
from vilco_app.video.cut import browser_playable, cut_clip, make_proxy
from vilco_app.video.probe import FAULTS, Finding, examine, probe
from vilco_app.video.read import frames_at, samples, thumbnail
from vilco_app.video.sampling import ReadReport, SampleStream
from vilco_app.video.settings import ReadSettings
from vilco_app.video.types import Part, Reader, Recording, SampleBatch, VideoInfo

__all__ = [
    "FAULTS", "Finding", "Part", "ReadReport", "ReadSettings", "Reader", "Recording", "SampleBatch", "SampleStream", "VideoInfo",
    "browser_playable", "cut_clip", "examine", "frames_at", "group_chapters", "make_proxy", "open_recording", "probe", "samples",
    "thumbnail",
]  # fmt: skip
