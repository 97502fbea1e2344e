"""The workload's rounding, and its bundle with weights and inputs perturbed by a few roundings."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from golow.check.rounding import BF16, FLOAT32, FP16, TF32, Rounding
from golow.records.workload import Workload
from golow.workload.bundle import Bundle

STORED: Mapping[torch.dtype, Rounding] = {torch.bfloat16: BF16, torch.float16: FP16}
"""The rounding of weights and inputs that are stored in 16 bits, whatever the precision."""


def working_rounding(bundle: Bundle) -> Rounding:
    """The rounding that the workload's precision means for this model, or the 16 bits in which its
    weights are stored; float32's if neither rounds a layer of it."""
    workload = bundle.workload
    if workload.precision in ("bf16", "fp16"):
        return BF16 if workload.precision == "bf16" else FP16
    with safe_open(bundle.file("weights.safetensors"), "pt") as file:
        weights = [file.get_slice(name) for name in file.keys()]  # noqa: SIM118
    types = {weight.get_dtype() for weight in weights}
    for name, rounding in (("BF16", BF16), ("F16", FP16)):
        if name in types:
            return rounding
    if workload.precision == "tf32" or (workload.precision, workload.device) == ("default", "cuda"):
        least = _least_dimensions(workload)
        # Weights of e4m3 have three, and sums of e4m3 on tensor cores have fewer bits than float32.
        return TF32 if any(len(weight.get_shape()) >= least for weight in weights) else FLOAT32
    return FLOAT32


def _least_dimensions(workload: Workload) -> int:
    """The precision rounds weights with at least this many dimensions: those of convolutions have
    at least three, those of matrix products two. In inference, bf16 and fp16 store all weights.
    """
    if workload.precision == "default":
        return 3
    return 0 if workload.precision in ("bf16", "fp16") and workload.mode == "infer" else 2


def write_moved_bundle(bundle: Bundle, folder: Path, seed: int, working: Rounding) -> Bundle:
    """The bundle with weights and inputs moved at random: by roundings of the working precision
    if it rounds them, else by float32's."""
    generator = torch.Generator().manual_seed(seed)
    shutil.copytree(bundle.folder, folder, copy_function=os.link)
    (folder / "weights.safetensors").unlink()
    weights = load_file(bundle.file("weights.safetensors"))
    save_file(
        moved_weights(weights, bundle.workload, working, generator),
        folder / "weights.safetensors",
    )
    draws = _draw_names(bundle.workload)
    for rank in range(bundle.workload.ranks):
        batches = {
            name: tensor
            if name in draws  # exact at every level; moved, one near a threshold would pass it
            else moved(tensor, working if "/input/" in name else FLOAT32, generator)
            for name, tensor in load_file(bundle.of_rank(rank).file("batches.safetensors")).items()
        }
        file = Bundle(folder).of_rank(rank).file("batches.safetensors")
        file.unlink(missing_ok=True)  # a hard link: writing to it would change the original
        save_file(batches, file)
    return Bundle(folder)


def _draw_names(workload: Workload) -> set[str]:
    """The names of the draws in the file of the batches."""
    end = len(workload.inputs)
    positions = range(end - workload.draws, end)
    return {f"{batch}/input/{n}" for batch in range(workload.batches) for n in positions}


def moved_weights(
    weights: Mapping[str, Tensor], workload: Workload, working: Rounding, generator: torch.Generator
) -> dict[str, Tensor]:
    """A state dict whose weights are moved in the same way."""
    least = _least_dimensions(workload)
    return {
        name: moved(tensor, working if tensor.dim() >= least else FLOAT32, generator)
        for name, tensor in weights.items()
    }


def moved(tensor: Tensor, rounding: Rounding, generator: torch.Generator) -> Tensor:
    """The tensor with each element perturbed by a few roundings, at random, of the type in which it
    is stored if that has 16 bits; integers stay."""
    if not tensor.is_floating_point():
        return tensor
    rounding = STORED.get(tensor.dtype, rounding)
    noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    return noise.mul_(rounding.move).add_(1).mul_(tensor).to(tensor.dtype)
