"""Nested state (learner, strategy, optimiser, buffers) as one flat table of tensors and one JSON value, and back.

The table goes into a safetensors file, the JSON beside it: snapshots need no pickle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


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
