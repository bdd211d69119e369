"""An immutable pair of FAISS indexes (whole-frame and region vectors) over some spans of takes.

Small segments scan their vectors in full. Large ones scan vectors projected on their leading principal components, in
the inverted lists nearest to the question, and leave the order to the caller, who has the stored vectors: first-person
footage spreads over few directions (about 40 of 256 effective dimensions with the embedded profile), while an inverted
file alone misses much, because a question's vector lies far from every frame's.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vilco_app.jobs.database import storage_error
from vilco_app.library.freeing import give_back
from vilco_app.library.records import SegmentRecord, Span
from vilco_app.library.segment_files import SegmentDamaged, check_sums, write_sums

if TYPE_CHECKING:
    from vilco_app.library.features import TakeArrays


@dataclass(frozen=True)
class SegmentDefaults:
    """Sizes and trades of a segment, measured on vectors with the statistics of real footage (see docs/library.md)."""

    small: int = 8192  # samples up to which everything is scanned exactly: about 1 h at 2 fps, 2 ms a question
    components: int = 128  # principal components kept: 0.97 of a frame's variance, 0.9 of a region's
    inverted_above: int = 100_000  # vectors below which a scan of the projected vectors takes 1.5 ms anyway
    lists: float = 2.0  # inverted lists = lists * sqrt(vectors)
    probes: float = 0.2  # fraction of the lists looked into: recall of regions .98 at 10 h, .99 at 100 h
    scanned: int = 65_536  # vectors of the recordings asked for up to which all are scanned: exact, and as fast
    restricted_probes: float = 0.6  # the same when only some recordings are asked: their best lie deeper
    together: int = 200_000  # samples (28 h) above which segments are searched side by side: below, 5 ms are at stake
    candidates: int = 5  # candidates = candidates * top, put in order by their stored vectors; 8 find no more
    training: int = 50_000  # vectors at most that components, lists and value ranges are learnt from; 26 MB projected
    slab: int = 4096  # vectors in memory at once: 11 MB at 651 dimensions


PAD = 16

Vectors = Callable[[int], Iterator[np.ndarray]]
"""vectors(step): every step-th stored vector as slabs [n, D] float32, in order of position; can be gone through again."""


def load_faiss() -> Any:
    """FAISS, on first use; untyped, because its signatures are wrapped at run time."""
    import importlib

    return importlib.import_module("faiss")


@contextmanager
def one_thread(faiss: Any) -> Iterator[None]:
    """FAISS in the calling thread alone: it shares out questions, of which there is one, and the others would only spin."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def build_segment(
    root: Path,
    profile: str,
    spans: Sequence[Span],
    takes: dict[int, TakeArrays],
    defaults: SegmentDefaults | None = None,
) -> SegmentRecord:
    """Write the indexes of the spans below `root` and return their record, not yet published. Raises VilcoError."""
    defaults = defaults or SegmentDefaults()
    name = f"segment-{uuid.uuid4().hex[:12]}"
    folder, draft = root / name, root / f".{name}"
    samples = sum(span.last - span.first for span in spans)

    def frames(step: int) -> Iterator[np.ndarray]:
        for span in spans:
            for a in range(span.first, span.last, step * defaults.slab):
                rows = takes[span.take].globals[a : min(a + step * defaults.slab, span.last) : step]
                yield np.asarray(rows, np.float32)

    def regions(step: int) -> Iterator[np.ndarray]:
        for span in spans:
            for a in range(span.region_first, span.region_last, step * defaults.slab):
                rows = takes[span.take].regions[a : min(a + step * defaults.slab, span.region_last) : step]
                yield rows["code"].astype(np.float32) * rows["scale"][:, None]

    try:
        draft.mkdir(parents=True)
        exact = samples <= defaults.small
        _write(draft / "globals", frames, samples, exact, "QT_fp16", defaults)
        _write(
            draft / "regions", regions, sum(s.region_last - s.region_first for s in spans), exact, "QT_8bit", defaults
        )
        write_sums(draft)
        os.replace(draft, folder)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise storage_error(error, root) from error
    except RuntimeError as error:  # how FAISS reports that a file could not be written
        shutil.rmtree(draft, ignore_errors=True)
        if "write" in str(error).lower():
            raise storage_error(OSError(28, str(error)), root) from error
        raise
    finally:
        give_back()
    return SegmentRecord(name, profile, samples, tuple(spans))


def _write(path: Path, vectors: Vectors, count: int, exact: bool, code: str, defaults: SegmentDefaults) -> None:
    """One index file `path.faiss`; when vectors are projected also what `principal` gives: the projection as `path.npy`
    [D, k], and what of the mean it leaves out as `path.rest.npy` [D]."""
    faiss = load_faiss()
    if count == 0:
        return
    step = -(-count // defaults.training)
    basis, rest = (None, None) if exact else principal(vectors(step), defaults.components)
    dim = next(vectors(step)).shape[1] if basis is None else basis.shape[1]
    kind = getattr(faiss.ScalarQuantizer, code if basis is None else "QT_8bit")
    if basis is None:
        dim += -dim % PAD

    def brought(slab: np.ndarray) -> np.ndarray:
        return _pad(slab, dim) if basis is None else np.ascontiguousarray(slab @ basis)

    learn = np.concatenate([brought(slab) for slab in vectors(step)])  # [<= training + spans, dim]
    index: Any
    assign: Any = None
    if basis is None or count < defaults.inverted_above:
        index = faiss.IndexScalarQuantizer(dim, kind, faiss.METRIC_INNER_PRODUCT)
    else:
        lists = int(defaults.lists * np.sqrt(count))
        means = faiss.Kmeans(dim, lists, niter=8, seed=1, min_points_per_centroid=1, max_points_per_centroid=64)
        means.train(learn)
        nearest = faiss.IndexFlatIP(dim)  # lists are chosen as vectors are: by inner product with the question,
        nearest.add(means.centroids)
        assign = faiss.IndexFlatL2(dim)  # but a vector belongs to the list it is closest to
        assign.add(means.centroids)
        index = faiss.IndexIVFScalarQuantizer(nearest, dim, lists, kind, faiss.METRIC_INNER_PRODUCT)
    index.train(learn)
    del learn
    for slab in vectors(1):
        rows = brought(slab)
        if assign is None:
            index.add(rows)
        else:
            lists_of = np.ascontiguousarray(assign.search(rows, 1)[1].ravel())
            index.add_core(len(rows), faiss.swig_ptr(rows), None, faiss.swig_ptr(lists_of))
    if basis is not None and rest is not None:
        np.save(path.with_suffix(".npy"), basis)
        np.save(path.with_suffix(".rest.npy"), rest)
    faiss.write_index(index, str(path.with_suffix(".faiss")))
    with open(path.with_suffix(".faiss"), "rb") as file:
        os.fsync(file.fileno())


def _pad(vectors: np.ndarray, dim: int) -> np.ndarray:
    """Vectors [n, D] with zeros up to `dim`: FAISS's fast scans want a multiple of 16."""
    if vectors.shape[1] == dim:
        return np.ascontiguousarray(vectors, np.float32)
    out = np.zeros((len(vectors), dim), np.float32)
    out[:, : vectors.shape[1]] = vectors
    return out


def principal(slabs: Iterable[np.ndarray], components: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading principal directions of the slabs [n, D] -> [D, k] float32, orthonormal columns, and the part of their mean
    that lies outside of these [D] float32.

    A question's score on the projection, plus its product with that part, differs from the true one only by how far a
    vector lies from the mean in the directions left out. Only sums are kept, about the first slab's mean, which is near
    enough to the whole one that nothing cancels.
    """
    count, origin = 0, np.zeros(0, np.float32)
    for slab in slabs:
        if count == 0:
            origin = slab.mean(axis=0)
            total, outer = np.zeros(len(origin)), np.zeros((len(origin), len(origin)))
        shifted = slab - origin
        count, total = count + len(slab), total + shifted.sum(axis=0, dtype=np.float64)
        outer += shifted.T @ shifted
    _, directions = np.linalg.eigh(outer - np.outer(total, total) / count)
    basis = directions[:, ::-1][:, : min(components, len(origin))]
    mean = origin + total / count
    return np.ascontiguousarray(basis, np.float32), (mean - basis @ (basis.T @ mean)).astype(np.float32)


class Segment:
    """An opened segment, memory-mapped. Thread-safe. Raises FileNotFoundError when it has been replaced meanwhile, and
    SegmentDamaged when its files are not what was written."""

    def __init__(self, root: Path, record: SegmentRecord, defaults: SegmentDefaults | None = None) -> None:
        self.record, self.defaults = record, defaults or SegmentDefaults()
        self.folder = root / record.name
        if not self.folder.is_dir():
            raise FileNotFoundError(2, "not there", str(self.folder))
        spans = record.spans
        self.takes = np.array([s.take for s in spans])
        self.starts = {
            "globals": np.cumsum([0, *(s.last - s.first for s in spans)]),
            "regions": np.cumsum([0, *(s.region_last - s.region_first for s in spans)]),
        }
        self.firsts = {
            "globals": np.array([s.first for s in spans]), "regions": np.array([s.region_first for s in spans]),
        }  # fmt: skip
        try:
            check_sums(self.folder)
            self._opened = {kind: self._open(kind) for kind in ("globals", "regions")}
        finally:
            if not self.folder.is_dir():  # taken away meanwhile (see `remove_segment`): whatever was read may be half
                raise FileNotFoundError(2, "replaced meanwhile", str(self.folder))

    def _open(self, kind: str) -> tuple[Any, np.ndarray | None, np.ndarray | None] | None:
        """(index, projection, rest of the mean), the last two as `principal` gave them; None when nothing is in it."""
        faiss = load_faiss()
        path = self.folder / f"{kind}.faiss"
        count = int(self.starts[kind][-1])
        if count == 0:
            return None
        if not path.is_file():
            raise FileNotFoundError(2, "not there", str(path))
        basis, rest = path.with_suffix(".npy"), path.with_suffix(".rest.npy")  # an older segment has no rest
        try:
            opened = (
                faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC),
                np.load(basis) if basis.is_file() else None,
                np.load(rest) if rest.is_file() else None,
            )
        except (RuntimeError, ValueError, EOFError, MemoryError) as error:  # FAISS says so of whatever it cannot read
            raise SegmentDamaged(str(path)) from error
        if opened[0].ntotal != count:
            raise SegmentDamaged(str(path))
        return opened

    def search(
        self, kind: str, vectors: np.ndarray, top: int, allowed: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Candidates for each of vectors [Q, D] -> spans, rows of their takes, scores, each [Q, K]; -1 where there is none.

        allowed: [spans] bool, None for all. K > top: scores are rough, and the caller ranks them by their stored vectors.
        """
        faiss = load_faiss()
        opened = self._opened[kind]
        if opened is None:
            none = np.full((len(vectors), 0), -1, np.int64)
            return none, none, np.zeros((len(vectors), 0), np.float32)
        index, basis, rest = opened
        count = min(top * (self.defaults.candidates if basis is not None else 2), index.ntotal)
        selector = None if allowed is None or allowed.all() else self._selector(kind, allowed)
        asked = _pad(vectors, index.d) if basis is None else np.ascontiguousarray(vectors @ basis, np.float32)
        if hasattr(index, "nprobe"):
            share = self.defaults.probes if selector is None else self.defaults.restricted_probes
            parameters = faiss.SearchParametersIVF(nprobe=max(1, round(share * index.nlist)), sel=selector)
        else:
            parameters = faiss.SearchParameters(sel=selector)
        with one_thread(faiss):
            scores, found = index.search(asked, count, params=parameters)
        if rest is not None:
            scores = scores + (vectors @ rest)[:, None]
        spans = np.searchsorted(self.starts[kind], found, side="right") - 1
        rows = found - self.starts[kind][spans] + self.firsts[kind][spans]
        return np.where(found < 0, -1, spans), np.where(found < 0, -1, rows), scores

    def _selector(self, kind: str, allowed: np.ndarray) -> Any:
        faiss = load_faiss()
        mask = np.repeat(allowed, np.diff(self.starts[kind]))
        return faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))
