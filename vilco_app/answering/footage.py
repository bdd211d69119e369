"""The recordings one question is asked of: how much they are, and which of their passages are looked at closely."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from vilco_app.answering.curve import Passage, Scale, library_scale, passages_of
from vilco_app.answering.looks import looks_of
from vilco_app.answering.options import Options
from vilco_app.answering.shortlist import around_hits
from vilco_app.encoders.base import Blocks, TextVectors
from vilco_app.library.types import LibraryView
from vilco_app.values import Searched, Video, VilcoError


class Footage:
    """Recordings of a library, up to `before` (seconds, one recording only) where given.

    Raises VilcoError("before-needs-one-video").
    """

    def __init__(
        self,
        library: LibraryView,
        blocks: Blocks,
        options: Options,
        videos: Sequence[Video],
        before: float | None = None,
    ) -> None:
        if before is not None and len(videos) != 1:
            raise VilcoError(
                "before-needs-one-video", f"--before is a time in one video, but {len(videos)} are searched.",
                "Name the video with --video.",
            )  # fmt: skip
        self.library, self.blocks, self.options, self.videos, self.before = library, blocks, options, videos, before

    def whole(self) -> Footage:
        """The same recordings to their ends."""
        return self if self.before is None else Footage(self.library, self.blocks, self.options, self.videos)

    @cached_property
    def ids(self) -> list[str]:
        return [v.id for v in self.videos]

    @cached_property
    def key(self) -> tuple[tuple[str, int], ...]:
        """What is stored of which recording: the same for the same footage, whatever the order."""
        return tuple(sorted((i, len(self.library.stored(i))) for i in self.ids))

    @cached_property
    def samples(self) -> int:
        """Samples stored of them."""
        return sum(count for _, count in self.key)

    @property
    def exact(self) -> bool:
        """Whether all footage is looked at: not much of it, or up to a time in one recording (the indexes know no time)."""
        return self.before is not None or self.samples <= self.options.exact_samples

    @property
    def much(self) -> bool:
        """Whether it is so much that one look takes one place."""
        return sum(v.duration for v in self.videos) > self.options.much_footage

    @property
    def searched(self) -> Searched:
        return Searched(
            len(self.videos), sum(v.duration for v in self.videos), sum(v.indexed_seconds for v in self.videos),
            tuple(self.ids),
        )  # fmt: skip

    def passages(self, scene: np.ndarray | None = None, regions: np.ndarray | None = None) -> list[Passage]:
        """The footage looked at closely: all of it when that is quick, else passages around the nearest vectors.

        scene [Dg], regions [Dr]: what is looked for, in whole frames and in regions.
        """
        if self.exact or (scene is None and regions is None):
            return [p for i in self.ids for p in passages_of(self.library.stored(i), self.before)]
        hits = []
        if scene is not None:
            hits += self.library.search_globals(scene[None], self.options.hits, self.ids)
        if regions is not None:
            hits += self.library.search_regions(regions[None], self.options.hits, self.ids)
        if scene is None:
            return around_hits(self.library, hits, self.options)
        mean = self.library.statistics("globals").mean.astype(np.float32)
        return around_hits(self.library, hits, self.options, lambda rows: looks_of(rows, mean, self.blocks))

    def scale(self, vectors: TextVectors) -> Scale | None:
        """The scale of a question's curves: the library's statistics for a shortlist, None where all is looked at."""
        if self.exact:
            return None
        frames, regions = self.library.statistics("globals"), self.library.statistics("regions")
        return library_scale(vectors, self.blocks, frames, regions)
