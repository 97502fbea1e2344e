"""What a level that runs the captured graph leaves out of a state, put back.

Such a level knows the tensors that its graph reads. A parameter that no step reads is none of them,
and of two names of one tensor the graph has the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.numpy import load_file, save_file


def complete(state: Path, start: Path, first: Mapping[str, str]) -> None:
    """Add to a saved state what it lacks of the start's: the tensor of the same name's first name,
    or, for what was never read, the start's own."""
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
