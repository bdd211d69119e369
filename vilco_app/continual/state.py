"""Nested state (learner, strategy, optimiser, buffers) as one flat table of tensors and one JSON value, and back.

The table goes into a safetensors file, the JSON beside it: snapshots need no pickle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vilco_app.values import VilcoError


def pack(state: Any) -> tuple[dict[str, Tensor], Any]:
    """(tensors by path, JSON value). Tensors are cloned, contiguous and on the CPU; tuples and non-string keys survive.

    Raises TypeError for anything that is neither a tensor nor JSON.
    """
    tensors: dict[str, Tensor] = {}

    def walk(value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            while path in tensors:  # a key with a dot in it can spell another path
                path += "'"
            tensors[path] = value.detach().cpu().clone().contiguous()
            return {"$tensor": path}
        if isinstance(value, Mapping):
            return {"$map": [[k, walk(v, f"{path}.{k}" if path else str(k))] for k, v in value.items()]}
        if isinstance(value, list | tuple):
            items = [walk(v, f"{path}.{i}" if path else str(i)) for i, v in enumerate(value)]
            return {"$tuple": items} if isinstance(value, tuple) else items
        if value is None or isinstance(value, str | bool | int | float):
            return value
        raise TypeError(f"{path} is a {type(value).__name__}, which neither a tensor table nor JSON can hold.")

    return tensors, walk(state, "")


def unpack(tensors: Mapping[str, Tensor], tree: Any) -> Any:
    """The state `pack` was given."""
    if isinstance(tree, list):
        return [unpack(tensors, v) for v in tree]
    if not isinstance(tree, dict):
        return tree
    if "$tensor" in tree:
        return tensors[tree["$tensor"]]
    if "$tuple" in tree:
        return tuple(unpack(tensors, v) for v in tree["$tuple"])
    return {k: unpack(tensors, v) for k, v in tree["$map"]}


def without_samples(state: Any, start: Any) -> Any:
    """A strategy's state without the samples of buffers that still hold what they held in `start`.

    Checkpoints are written every few steps, a buffer of hundreds of megabytes changes once a stage: the samples are replaced by
    their ids, and `with_samples` takes them from the strategy as it was when the stage began.
    """
    if isinstance(state, Mapping):
        if _holds_samples(state) and _holds_samples(start) and _same(state["samples"], start["samples"]):
            return {**state, "samples": {"unchanged": [s["id"] for s in state["samples"]]}}
        return {k: without_samples(v, start.get(k) if isinstance(start, Mapping) else None) for k, v in state.items()}
    return state


def with_samples(state: Any, start: Any) -> Any:
    """Undo `without_samples`. Raises VilcoError when the strategy does not hold the samples the state was saved with."""
    if not isinstance(state, Mapping):
        return state
    kept = state.get("samples")
    if isinstance(kept, Mapping) and "unchanged" in kept:
        if not _holds_samples(start) or [s["id"] for s in start["samples"]] != kept["unchanged"]:
            raise VilcoError(
                "other-buffer", "the replay buffer is not the one this stage was begun with.",
                "Start the stage again; something was forgotten or learnt since it was stopped.",
            )  # fmt: skip
        return {**state, "samples": start["samples"]}
    return {k: with_samples(v, start.get(k) if isinstance(start, Mapping) else None) for k, v in state.items()}


def _holds_samples(state: Any) -> bool:
    return isinstance(state, Mapping) and "kind" in state and isinstance(state.get("samples"), list)


def _same(now: list[Any], then: list[Any]) -> bool:
    # a replaced sample has new tensors even when it comes under its old id
    return len(now) == len(then) and all(
        a["id"] == b["id"] and all(v is b["features"].get(k) for k, v in a["features"].items())
        and all(v is b["stored"].get(k) for k, v in a["stored"].items()) for a, b in zip(now, then, strict=True)
    )  # fmt: skip
