"""Defaults of the reading side, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadSettings:
    """How files are read. Pass another instance to change one value."""

    slack: float = 1e-3
    """Seconds a frame may lie before a tick and still answer it: Matroska rounds its clock to whole milliseconds."""

    threads: int = 0
    """Decoder threads; 0 lets FFmpeg choose by the number of cores."""

    scale_threads: int = 1
    """Scaler threads: one frame in fifteen is scaled, so starting threads costs more than it saves."""

    skip: bool = True
    """Leave out of decoding what no sample needs; off gives the plain decode that tests compare with."""

    batch: int = 32
    """Samples per batch: about 10 MB at short side 256, enough to fill an encoder."""

    lookahead_packets: int = 900
    """Compressed packets held to plan what to decode: 30 s at 30 fps, far beyond any tick at useful rates."""

    lookahead_bytes: int = 48 << 20
    """Bytes of compressed packets held at most, so that 4K intra footage keeps memory flat."""

    tolerated_errors: int = 64
    """Read errors in a row before a file counts as ended: a cut mp4 fails once for every packet its index promises."""

    untimed_frames: int = 250
    """Frames without a time at the beginning after which the file counts as having no clock at all."""

    seek_margin: float = 0.5
    """First step back (seconds, then four times more) when a seek lands after the wanted time."""

    probe_packets: int = 600
    """Packets at the beginning a probe looks at for intervals and key frames: 20 s at 30 fps, a few milliseconds."""

    tail: float = 5.0
    """Seconds before the promised end from which a probe reads to find the true one."""

    far_keys: float = 5.0
    """Seconds between key frames from which a person is told that seeking is coarse."""

    near: float = 0.2
    """Seconds before a wanted time from which every frame is decoded; further back, frames nobody refers to are not."""

    jump_back: float = 0.1
    """Seconds a transport stream's clock may step back before it counts as started again (ffmpeg's limit)."""

    jump_ahead: float = 10.0
    """Seconds it may leap ahead before the gap is closed (ffmpeg's limit)."""

    scan_bytes: int = 256 << 20
    """Transport streams up to this size are read through for such jumps before anything seeks in them (about 0.5 s)."""

    forward: float = 3.0
    """Seconds a random access reads on instead of seeking: about one group of pictures of a camera file."""

    decord: bool = True
    """Whether random access may use decord; off for files known to be damaged, where it returns wrong frames."""

    decord_from: int = 64
    """Times asked for at once from which decord is tried: opening a 10-minute file costs it 0.25 CPU seconds (PyAV 0.02),
    and single far frames twice what PyAV needs; it only draws level on long dense requests."""

    decord_timeout: float = 20.0
    """Seconds decord may take for one request before PyAV serves it: decord was seen hanging on damaged files."""

    decord_bytes: int = 768 << 20
    """Files above this size are read by PyAV: decord reads the whole file through when it opens it."""

    decord_packets: int = 900
    """Packets looked at for groups of pictures decord seeks wrongly in: 30 s, several groups of any camera."""

    decord_difference: float = 12.0
    """Mean difference (0 to 255) of decord's first frame from PyAV's, above which it is another frame: scalers differ by
    2 or 3, a turned or neighbouring picture by more."""
