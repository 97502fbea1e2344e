"""Files of results, as the worker of a level and the reference write them."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor


def output_files(folder: Path, **outputs: Tensor) -> list[Path]:
    """Write each tensor as the only output of the first batch, into a file of that name."""
    files = []
    for name, tensor in outputs.items():
        files.append(folder / f"{name}.safetensors")
        save_file({"0/output/0": tensor}, files[-1])
    return files
