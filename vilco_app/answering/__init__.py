"""Questions to answers: shortlist, ground, fuse, calibrate."""

from vilco_app.answering.answerer import Answerer
from vilco_app.answering.grounding import Grounded, Grounder
from vilco_app.answering.keys import keys_of, make_key, normalise, picture_digest
from vilco_app.answering.options import DEFAULTS, Options

__all__ = [
    "DEFAULTS",
    "Answerer",
    "Grounded",
    "Grounder",
    "Options",
    "keys_of",
    "make_key",
    "normalise",
    "picture_digest",
]
