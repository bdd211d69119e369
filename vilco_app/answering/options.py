"""Every default of answering, in one place, with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """How questions are answered. docs/answers.md says what was tried and what each choice brought."""

    threshold: float = 0.5  # found when the calibrated probability is at least even
    strip_asking: bool = True  # "Where did I see" says nothing about a picture: R@5 up 3 points
    # --- curve
    region_weight: float = (
        1.0  # of the best region beside the whole-frame scores: small things are lost in a whole frame
    )
    smooth: float = 1.0  # seconds; one frame of a blurred or turning camera should not make or break a moment
    # --- windows
    length_weight: float = 0.25  # score = mean saliency * seconds ** this; 0 rewards single frames, 0.5 whole scenes
    shortest: float = 1.0  # seconds; what lasts less is not seen twice at 2 samples per second
    longest_share: float = 0.34  # of the footage; a window over more than a third does not say where
    text_contrast: float = 0.0  # of the first answer; asked things often go on around the asked moment
    moment_contrast: float = 0.3  # an activity is a scene with edges: right at 1 .41 -> .50 on the labelled clips
    rest_contrast: float = 0.7  # of the other answers: what stands out elsewhere, not the first one's neighbours
    rest_length_weight: float = 0.15  # as above, for the other answers; .5 to 1 and .15 to .25 do alike
    overlap: float = 0.5  # softness of soft-NMS (its paper's value): how slowly rank falls with the overlap
    # --- much footage: one place per look (docs/answers.md, "Hidden in two hours of other things")
    much_footage: float = 1800.0  # seconds searched from which places are ranked between scenes, not within one
    alike: float = 0.7  # cosine of two windows' looks; different scenes reach .65 (90 %), a photo panned over again .8
    repeat: float = 0.6  # of its score counts a look shown before, per time; anything up to .7 does alike
    occasion: float = 120.0  # seconds; closer windows of a recording show one occasion and may both have a place
    look_pool: int = 1_000  # best windows compared by look, which bounds the time an answer takes
    # --- shortlist
    exact_samples: int = 8_000  # about 1 h at 2 fps: all scored, in 50 ms; above, FAISS chooses passages
    hits: int = 200  # nearest vectors asked of each index
    passages: int = 8  # passages grounded exactly; answers ask for 5
    again_passages: int = 3  # more of them for looks seen before: what recurs is found each time
    passage_seconds: float = 30.0  # at least this much around a hit; 90 % of Ego4D NLQ windows are under 25 s
    null_questions: int = 24  # unrelated questions that set the level a real one has to beat; once per footage
    null_questions_shortlisted: int = 6  # above exact_samples, where each costs a search
    # --- pictures
    picture_frames: int = 12  # frames decoded again to choose appearances; the right one is always among the first 10
    track_frames: int = 16  # more frames for the tracks; both together about 1.5 s for a 10-minute file on two cores
    track_step: float = 1.5  # seconds between them: score_cases and people look within 1 s of a time
    track_gap: float = 4.0  # seconds bridged by a straight line between two boxes
    keep_level: float = 0.2  # boxes count down to this share of the way from the background's match to the best
    longest_appearance: float = 60.0  # seconds; one thing in view longer is shown as several appearances
    as_sure: float = 0.03  # cosine; appearances this close to the best are equally sure, so the last comes first
    picture_side: int = 448  # shorter side for dense matching: a stride of 16 gives 28 rows of cells
    readers: int = 2  # threads that decode and match frames at once: a laptop has at least two cores
    # --- kept
    cached_questions: int = 256
    cached_segmentations: int = 512  # passages; one is a few hundred spans


DEFAULTS = Options()
