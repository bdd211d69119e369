"""Questions about nothing in particular: how high does a question score on this footage when it means something else?

The best window of an unrelated question is what a real one has to beat. The level depends on the footage (how varied, how
long), so it is measured on the footage searched, once, and kept.
"""

from __future__ import annotations

NULL_QUESTIONS = (
    "a hammer on a workbench",
    "a passport on a desk",
    "a giraffe behind a fence",
    "painting a fence",
    "a harbour with fishing boats",
    "planting seeds in a pot",
    "reading a newspaper on a train",
    "a red fire engine",
    "playing the drums",
    "a tray of oysters",
    "sewing a button on a coat",
    "the waiting room of a dentist",
    "a violin in its case",
    "changing a tyre at the roadside",
    "a green parrot in a cage",
    "feeding a baby with a spoon",
    "a lighthouse on a cliff",
    "sharpening a pencil",
    "a white piano on a stage",
    "measuring a plank with a tape",
    "a black helmet on a motorcycle",
    "a market stall with fish",
    "shovelling snow",
    "a telescope by a window",
)
