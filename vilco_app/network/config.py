"""Sizes and switches of the network, in one place; each default with its reason."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

PromptMode = Literal["off", "replace", "prepend", "soft", "shared", "random"]
FusionMode = Literal["late", "early"]


@dataclass(frozen=True)
class NetworkConfig:
    """What a ViLCo network is built from. Dimensions come from the profile; everything else may stay as it is."""

    video_dim: int  # Dg of the profile
    text_dim: int  # Dt of the profile
    priors: int  # zero-shot score curves given per query (one per feature block, one for regions)
    dense_dim: int = 128  # channels of the dense maps a visual query is matched on (projected to this once, at import)
    width: int = 128  # 1-3 M parameters in all: a step costs tens of milliseconds on one core
    heads: int = 4  # 32 channels a head
    levels: int = 7  # cells of 1..64 strides: moments of half a second to minutes at 2 cells a second
    stem_blocks: int = 2  # before the first downsampling
    window: int = 16  # cells a cell sees to either side: 8 s at level 0, 9 min at level 6
    dropout: float = 0.1  # few examples
    layer_scale: float = 0.1  # residual branches start small (ActionFormer: 1e-4 for 15 epochs; we train in few steps)
    fusion: FusionMode = "late"  # per-query cost does not include the video side; "early" is the paper's
    prompts: PromptMode = "soft"  # continual.md 5.3; "replace" is the paper's, the rest are controls
    pool: int = 10  # m: slots of the fixed pools (replace, prepend, random); the reference code's
    prompt_length: int = 20  # L: tokens of a slot; the reference code's
    top_n: int = 4  # N: slots chosen per query; the reference code's
    stage_slots: int = 4  # keys a stage adds in soft mode (k of k-means)
    temperature: float = 0.1  # of the soft weights over keys
    # how far a slot's mean prompt moves the question's own vector (soft, shared). 1 lets prompts alone carry a stage when
    # everything else is frozen; 0 because it does not help while the trunk is trained (docs/learning.md, prompt memory)
    prompt_bend: float = 0.0
    stride: float = 0.5  # seconds a cell covers: the default indexing rate
    init_prior: float = 1.0  # gain of the zero-shot curve at the start: an untrained network ranks as zero-shot does
    prior_bias: float = -4.6  # focal loss: foreground probability 0.01 at the start
    anchor_scale: float = 10.0  # of the cosine between a cell and a category (learnt)
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> NetworkConfig:
        names = {f.name for f in fields(NetworkConfig)}
        return NetworkConfig(**{k: v for k, v in data.items() if k in names})

    @property
    def multiple(self) -> int:
        """Sequences are padded to a multiple of this many cells, so that every level halves exactly."""
        return int(2 ** (self.levels - 1))

    def ranges(self) -> list[tuple[float, float]]:
        """Length (cells) of the longer side of a moment each level is taught, overlapping by half (ActionFormer)."""
        out = [(0.0, 4.0)] + [(2.0**level, 2.0 ** (level + 2)) for level in range(1, self.levels)]
        out[-1] = (out[-1][0], float("inf"))
        return out
