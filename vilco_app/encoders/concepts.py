"""The words an ImageNet classifier knows: names, synonyms and definitions of its 1000 classes, for joining text to it."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ClassWords:
    """One class: the name shown to people, its WordNet synonyms (first included) and its definition."""

    name: str
    lemmas: tuple[str, ...]
    definition: str


def imagenet_words() -> list[ClassWords]:
    """The 1000 classes in the classifier's order.

    Curated names from open_clip's zero-shot metadata, synonyms and definitions from timm's WordNet tables; both are read
    as files, since importing either package would import torch.
    """
    info = _package("timm") / "data" / "_info"
    synsets = (info / "imagenet_synsets.txt").read_text().split()
    lemma = _table(info / "imagenet_synset_to_lemma.txt")
    definition = _table(info / "imagenet_synset_to_definition.txt")
    names = _curated()
    return [
        ClassWords(name, tuple(lemma[s].split(", ")), definition[s]) for s, name in zip(synsets, names, strict=True)
    ]


def _package(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module)
    return Path(spec.origin).parent


def _table(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines if "\t" in line)


def _curated() -> list[str]:
    import ast

    tree = ast.parse((_package("open_clip") / "zero_shot_metadata.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "IMAGENET_CLASSNAMES":
            return [str(name) for name in ast.literal_eval(node.value)]
    raise LookupError("open_clip.zero_shot_metadata has no IMAGENET_CLASSNAMES")
