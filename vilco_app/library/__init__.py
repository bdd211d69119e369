"""The library: catalogue, stored features, FAISS indexes, indexing, corrections, forgetting."""

from vilco_app.library.library import Library
from vilco_app.library.types import Hits, LibraryView, Statistics, Stored

__all__ = ["Hits", "Library", "LibraryView", "Statistics", "Stored"]
