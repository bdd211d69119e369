"""Append-only feature arrays of a take. What counts is the committed row count in the catalogue, not the file sizes.

Files of a take with N samples, G groups and M region rows:
samples.bin [N] (time f8, duration f8, group i8); globals.bin [N, Dg] f2; groups.bin [G + 1] i8 offsets into the region
rows; regions.bin [M] (code i1 [Dr], box u1 [4], scale f4).
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np

from vilco_app.encoders.base import Features
from vilco_app.jobs.database import storage_error
from vilco_app.library.records import Take
from vilco_app.values import VilcoError


@dataclass(frozen=True)
class StillDefaults:
    """When a sample shows so nearly what the group before it showed that its regions need not be stored again."""

    distance: float = 0.25  # ||a - b|| / ||b||: cosine 0.97 at equal length, well inside one object's own variation
    box: float = 0.08  # largest shift of a box edge, in fractions of the frame: the box still lies on the thing
    samples: int = 20  # longest group, 10 s at 2 fps: bounds what forgetting a group's first sample can blind


SAMPLE = np.dtype([("time", "<f8"), ("duration", "<f8"), ("group", "<i8")])


def region_type(dim: int) -> np.dtype:
    return np.dtype([("code", "i1", (dim,)), ("box", "u1", (4,)), ("scale", "<f4")])


def quantise(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[M, D] float -> codes [M, D] int8 and scales [M] float32 with vector = code * scale, error at most scale / 2."""
    scales = (np.abs(vectors).max(axis=1, initial=0.0) / 127).astype(np.float32)
    codes = np.rint(vectors / np.maximum(scales, 1e-12)[:, None])
    return np.clip(codes, -127, 127).astype(np.int8), scales


def take_folder(root: Path, take: Take) -> Path:
    """Where a take lies below the features folder."""
    return root / take.video / take.profile.replace("/", "_").replace(":", "_") / f"take{take.id}"


def file_sizes(take: Take) -> dict[str, int]:
    """Bytes that the committed rows of a take need in each of its files."""
    return {
        "samples.bin": take.rows * SAMPLE.itemsize, "globals.bin": take.rows * take.global_dim * 2,
        "groups.bin": (take.groups + 1) * 8, "regions.bin": take.regions * region_type(take.region_dim).itemsize,
    }  # fmt: skip


def intact(root: Path, take: Take) -> bool:
    """Whether what was committed is still on the disk."""
    folder = take_folder(root, take)
    try:
        if take.rows and all((folder / n).stat().st_size >= size for n, size in file_sizes(take).items()):
            TakeArrays(folder, take)
            return True
        return take.rows == 0
    except OSError:
        return False


class TakeWriter:
    """Appends samples to a take. Opening it throws away what was written after the last commit.

    Raises VilcoError("damaged-features") when the files hold less than what was committed.
    """

    def __init__(self, root: Path, take: Take, still: StillDefaults | None = None) -> None:
        self.take, self.folder, self.still = take, take_folder(root, take), still or StillDefaults()
        self.dtype = region_type(take.region_dim)
        self._files: dict[str, BinaryIO] = {}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if take.rows == 0:
                (self.folder / "groups.bin").write_bytes(np.zeros(1, "<i8").tobytes())
            for name, size in file_sizes(take).items():
                file = open(self.folder / name, "ab")  # noqa: SIM115
                self._files[name] = file
                if file.tell() < size:
                    raise VilcoError(
                        "damaged-features", f"{self.folder / name}: shorter than what was committed.",
                        "Remove the video and add it again.",
                    )  # fmt: skip
                file.truncate(size)
                file.seek(size)
        except OSError as error:
            raise storage_error(error, self.folder) from error
        self._last_time = float(TakeArrays(self.folder, take).samples["time"][-1]) if take.rows else -1.0
        self._vectors, self._boxes, self._members = self._running_group()
        self.synced = take  # what the last sync brought to the disk

    def _running_group(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Vectors and boxes of the last committed group and how many samples show it, as if we had never stopped."""
        take = self.take
        if take.groups == 0:
            return np.zeros((0, take.region_dim), np.float32), np.zeros((0, 4), np.uint8), 0
        arrays = TakeArrays(self.folder, take)
        first, last = int(arrays.offsets[-2]), int(arrays.offsets[-1])
        rows = arrays.regions[first:last]
        tail = np.asarray(arrays.samples["group"][-2 * self.still.samples :])
        return rows["code"] * rows["scale"][:, None], np.array(rows["box"]), int((tail == take.groups - 1).sum())

    def append(self, times: np.ndarray, durations: np.ndarray, features: Features) -> None:
        """Write B samples (times increasing, later than everything before). Not committed before `sync`."""
        take = self.take
        codes, scales = quantise(features.regions)
        boxes = np.rint(np.clip(features.boxes, 0, 1) * 255).astype(np.uint8)
        vectors = codes * scales[:, None]  # what a reader will see, so that a restart decides the same
        samples = np.zeros(len(times), SAMPLE)
        samples["time"], samples["duration"] = times, durations
        starts = np.concatenate([[0], np.cumsum(features.counts)])
        keep = np.zeros(len(codes), bool)
        ends: list[int] = []
        groups, regions = take.groups, take.regions
        for i, (a, b) in enumerate(pairwise(starts)):
            if groups == 0 or not self._is_still(vectors[a:b], boxes[a:b]):
                keep[a:b] = True
                groups, regions = groups + 1, regions + int(b - a)
                ends.append(regions)
                self._vectors, self._boxes, self._members = vectors[a:b], boxes[a:b], 0
            self._members += 1
            samples["group"][i] = groups - 1
        rows = np.zeros(int(keep.sum()), self.dtype)
        rows["code"], rows["box"], rows["scale"] = codes[keep], boxes[keep], scales[keep]
        try:
            self._files["samples.bin"].write(samples.tobytes())
            self._files["globals.bin"].write(features.globals.astype("<f2").tobytes())
            self._files["regions.bin"].write(rows.tobytes())
            self._files["groups.bin"].write(np.asarray(ends, "<i8").tobytes())
        except OSError as error:
            raise storage_error(error, self.folder) from error
        self.take = replace(
            take, rows=take.rows + len(times), groups=groups, regions=regions,
            seconds=take.seconds + float(durations.sum()), until=float(times[-1] + durations[-1]),
        ) if len(times) else take  # fmt: skip

    def _is_still(self, vectors: np.ndarray, boxes: np.ndarray) -> bool:
        """Whether every region given has its like, at the same place, in the running group, and the other way round."""
        if self._members >= self.still.samples or len(vectors) == 0 or len(self._vectors) == 0:
            return len(vectors) == len(self._vectors) and self._members < self.still.samples
        shift = np.abs(boxes[:, None].astype(np.int16) - self._boxes[None].astype(np.int16)).max(axis=2)  # [m, g]
        gap = np.linalg.norm(vectors[:, None] - self._vectors[None], axis=2)  # [m, g]
        size = np.linalg.norm(self._vectors, axis=1)[None]
        like = (shift <= self.still.box * 255) & (gap <= self.still.distance * np.maximum(size, 1e-9))
        return bool(like.any(axis=1).all() and like.any(axis=0).all())

    def last_time(self) -> float:
        """Time of the last committed sample when the writer was opened (s), or -1 for an empty take."""
        return self._last_time

    def sync(self) -> Take:
        """Bring everything appended to the disk and return the take's new counts, ready to be committed."""
        try:
            for file in self._files.values():
                file.flush()
                os.fsync(file.fileno())
            self.synced = self.take
        except OSError as error:
            raise storage_error(error, self.folder) from error
        return self.take

    def close(self) -> None:
        for file in self._files.values():
            try:
                file.close()
            except OSError:  # what could not be flushed was not committed either
                continue


PICKED = 16  # vectors looked at when a take is opened: noise over a tenth of a file is noticed, at 16 reads
LARGEST = 1e4  # scale of a region vector; encoders give lengths of about 1, noise any number


class TakeArrays:
    """The committed rows of a take, memory-mapped.

    Raises FileNotFoundError when the take has been removed meanwhile, or its tables do not fit what was committed.
    """

    def __init__(self, folder: Path, take: Take) -> None:
        def load(name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
            if 0 in shape:
                return np.zeros(shape, dtype)
            count = math.prod(shape)
            try:  # a plain array over the map: slicing np.memmap costs ten times as much
                with open(folder / name, "rb") as file:
                    mapped = mmap.mmap(file.fileno(), count * dtype.itemsize, access=mmap.ACCESS_READ)
            except ValueError:  # shorter than what was committed
                raise FileNotFoundError(2, "cut short", str(folder / name)) from None
            return np.frombuffer(mapped, dtype, count).reshape(shape)

        self.take = take
        self.samples = load("samples.bin", SAMPLE, (take.rows,))
        self.globals = load("globals.bin", np.dtype("<f2"), (take.rows, take.global_dim))
        self.offsets = load("groups.bin", np.dtype("<i8"), (take.groups + 1,)) if take.rows else np.zeros(1, np.int64)
        self.regions = load("regions.bin", region_type(take.region_dim), (take.regions,))
        if take.rows and not self._plausible():  # overwritten, or never brought to the disk
            raise FileNotFoundError(2, "does not hold what was committed", str(folder))

    def _plausible(self) -> bool:
        """Whether the two small tables, 24 and 8 bytes a row, are such as a writer leaves, since noise in them would send
        readers anywhere, and some of the vectors are numbers."""
        take, times, group = self.take, self.samples["time"], self.samples["group"]
        ends = (*group[[0, -1]], *self.offsets[[0, -1]])
        some = np.linspace(0, take.rows - 1, PICKED).astype(int)
        scales = self.regions["scale"][np.linspace(0, take.regions - 1, PICKED).astype(int)] if take.regions else 0.0
        return bool(
            ends == (0, take.groups - 1, 0, take.regions)
            and np.isfinite(times).all() and np.isfinite(self.samples["duration"]).all()
            and (times[1:] > times[:-1]).all()
            and ((group[1:] - group[:-1]) >> 1 == 0).all()  # 0 or 1
            and (self.offsets[1:] >= self.offsets[:-1]).all()
            and np.isfinite(self.globals[some]).all() and np.all((scales >= 0) & (scales < LARGEST))
        )  # fmt: skip


def folder_bytes(folders: Sequence[Path]) -> int:
    """Bytes of all files below the folders; those that vanish meanwhile count nothing."""
    total = 0
    for folder in folders:
        for path in folder.rglob("*"):
            try:
                total += path.stat().st_size if path.is_file() else 0
            except OSError:
                continue
    return total
