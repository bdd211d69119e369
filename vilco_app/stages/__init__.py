"""Stage files: what is taught, one task at a time. Importers and exporters for the benchmarks' own forms."""

from vilco_app.stages.format import check_times, heldout, load_stage, save_stage
from vilco_app.stages.types import FAMILIES, Example, Family, Narration, QueryFrame, Split, Stage

__all__ = [
    "FAMILIES", "Example", "Family", "Narration", "QueryFrame", "Split", "Stage", "check_times", "heldout",
    "load_stage", "save_stage",
]  # fmt: skip
