"""Inputs and outputs of ``golow run`` in files of safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from golow.artifact.manifest import Manifest
from golow.artifact.nesting import tensors_in
from golow.artifact.tensor_entry import tensors_in_file
from golow.records.errors import GolowError
from golow.storage.files import write_whole, writing


def read_inputs(file: Path, manifest: Manifest) -> list[np.ndarray]:
    """The inputs in their order, by their names or by their numbers. Raises `GolowError` if one is
    missing, or the file has another."""
    tensors = tensors_in_file(file)
    names = [form.name for form in manifest.inputs]
    numbers = [str(place) for place in range(len(names))]
    for known in (names, numbers):
        if set(known) == set(tensors):
            return [tensors[name] for name in known]
    known = names if all(names) else numbers
    raise GolowError(
        f"{file} has {', '.join(sorted(tensors)) or 'nothing'}; the inputs are {', '.join(known)}",
        f"name its tensors so, or by their numbers: {', '.join(numbers)}.",
    )


def write_outputs(file: Path, manifest: Manifest, output: Any) -> None:
    """Write every tensor of an output by its number."""
    tensors = {str(k): item for k, item in tensors_in(manifest.nest, output).items()}
    with writing(file, "name another file: --out y.safetensors"):
        write_whole(file, save(tensors))
