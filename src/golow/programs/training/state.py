"""Restore the tensors that a level running the captured graph leaves out of a state.

Such a level knows only the tensors that its graph reads. A parameter that no step reads is missing,
and a tensor with two names is saved under the first alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.numpy import load_file, save_file


def complete(state: Path, start: Path, first: Mapping[str, str]) -> None:
    """Add to a saved state the tensors that it lacks from the start. Such a tensor is the one saved
    under its first name or, if it was never read, the start's own."""
    with safe_open(start, "numpy") as file, safe_open(state, "numpy") as saved:
        lacking = set(file.keys()) - set(saved.keys())
    if not lacking:
        return
    tensors, begun = load_file(state), load_file(start)
    for key in lacking:
        kind, _, name = key.partition("/")
        twin = f"{kind}/{first.get(name, name)}"
        tensors[key] = tensors[twin] if twin in tensors else begun[key]
    save_file({name: tensor.copy() for name, tensor in tensors.items()}, state)
