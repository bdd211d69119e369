"""Nested state (dicts, lists, numbers, strings, tensors) in one safetensors file; never a pickle.

The tensors are safetensors entries; the nesting is JSON in the file's own metadata, so that one atomic replace changes both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vilco_app.values import SCHEMA, VilcoError

TENSOR, PAIRS, TUPLE = "#tensor", "#pairs", "#tuple"


def save_state(state: Any, path: Path) -> None:
    """Write `state` atomically. Raises VilcoError "cannot-write" and TypeError for values that cannot be kept."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors: dict[str, Any] = {}
    nesting = json.dumps(_down(state, tensors))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, temporary, metadata={"schema": str(SCHEMA), "state": nesting})
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise VilcoError(
            "cannot-write", f"{path}: {getattr(error, 'strerror', None) or error}.",
            "Free some space, or choose another home.",
        ) from None  # fmt: skip


def load_state(path: Path) -> Any:
    """Read what `save_state` wrote. Raises VilcoError "bad-snapshot" when it is damaged or of another version."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            meta = file.metadata() or {}
            if meta.get("schema") != str(SCHEMA):
                raise VilcoError(
                    "bad-snapshot", f"{path}: schema {meta.get('schema')!r}, not {SCHEMA}.", "Use a matching version."
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        return _up(json.loads(meta["state"]), tensors)
    except (OSError, SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise VilcoError("bad-snapshot", f"{path}: {error}.", "Go back to another snapshot: vilco use ID") from None


def _down(value: Any, tensors: dict[str, Any]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        name = f"t{len(tensors)}"
        tensors[name] = value.detach().cpu().contiguous().clone()  # safetensors refuses shared memory
        return {TENSOR: name}
    if isinstance(value, Mapping):
        if all(isinstance(k, str) and not k.startswith("#") for k in value):
            return {k: _down(v, tensors) for k, v in value.items()}
        return {PAIRS: [[k, _down(v, tensors)] for k, v in value.items()]}  # integer keys (optimiser state)
    if isinstance(value, tuple):
        return {TUPLE: [_down(v, tensors) for v in value]}
    if isinstance(value, list):
        return [_down(v, tensors) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"cannot keep a {type(value).__name__} in a snapshot")


def _up(value: Any, tensors: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        if TENSOR in value:
            return tensors[value[TENSOR]]
        if PAIRS in value:
            return {k: _up(v, tensors) for k, v in value[PAIRS]}
        if TUPLE in value:
            return tuple(_up(v, tensors) for v in value[TUPLE])
        return {k: _up(v, tensors) for k, v in value.items()}
    return [_up(v, tensors) for v in value] if isinstance(value, list) else value
