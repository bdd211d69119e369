"""Encoders: what turns frames and questions into vectors that can be compared.

`load_profile(name, models)` gives the named set of encoders in use; `profile_status(models)` says which are usable on this
machine; `setup(name, models)` prepares one, and is the only function that may use the network.
"""

from vilco_app.encoders.base import (
    MAX_REGIONS,
    Blocks,
    Features,
    ImageVectors,
    Profile,
    ProfileStatus,
    RegionEncoder,
    TextEncoder,
    TextVectors,
    VideoEncoder,
)
from vilco_app.encoders.profiles import load_profile, profile_status, setup
from vilco_app.encoders.runtime import RuntimeOptions

__all__ = [
    "MAX_REGIONS",
    "Blocks",
    "Features",
    "ImageVectors",
    "Profile",
    "ProfileStatus",
    "RegionEncoder",
    "RuntimeOptions",
    "TextEncoder",
    "TextVectors",
    "VideoEncoder",
    "load_profile",
    "profile_status",
    "setup",
]
