"""Reads and writes the state of a training run in PyTorch.

Tensors are overwritten, never replaced: compiled code and CUDA graphs hold their addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.amp import GradScaler

from golow.levels.torch.parts_of_ranks import whole
from golow.worker.ranks import of_rank


def read(
    module: nn.Module, kept: Iterable[tuple[str, Tensor]], scaler: GradScaler | None
) -> dict[str, Tensor]:
    """Contiguous copies on the CPU, by their names in the worker protocol. kept: what the optimizer
    keeps."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    state = {
        f"{'parameter' if name in parameters else 'buffer'}/{name}": tensor
        for name, tensor in module.state_dict().items()
    }
    state |= dict(kept)
    if scaler is not None:
        settings = scaler.state_dict()
        state["scaler/scale"] = torch.tensor([settings["scale"]], dtype=torch.float32)
        good_steps = settings["_growth_tracker"]
        state["scaler/good_steps"] = torch.tensor([good_steps], dtype=torch.int32)
    return {name: _copy(tensor) for name, tensor in state.items()}


def unsaved(module: nn.Module) -> dict[str, Tensor]:
    """Copies on the CPU of the buffers outside the state dict, which a step may change, too."""
    saved = module.state_dict().keys()
    return {name: _copy(b) for name, b in module.named_buffers() if name not in saved}


def write_unsaved(module: nn.Module, kept: dict[str, Tensor]) -> None:
    """Copy these buffers into the module's, as far as they still have that shape."""
    for name, buffer in module.named_buffers():
        if name in kept and kept[name].shape == buffer.shape:
            with torch.no_grad():
                buffer.copy_(kept[name])


def weights(state: Mapping[str, Tensor], rank: int = 0) -> dict[str, Tensor]:
    """A rank's parameters and buffers in such a state, by their names in the module."""
    named = {name.partition("/"): tensor for name, tensor in of_rank(state, rank).items()}
    return {name: t for (kind, _, name), t in named.items() if kind in ("parameter", "buffer")}


def write_scale(scaler: GradScaler, state: dict[str, Tensor]) -> None:
    """Set the scaler to the state's loss scale, if it has one."""
    if "scaler/scale" in state:
        settings = {
            "scale": float(state["scaler/scale"]),
            "_growth_tracker": int(state["scaler/good_steps"]),
        }
        scaler.load_state_dict({**scaler.state_dict(), **settings})


def _copy(tensor: Tensor) -> Tensor:
    return whole(tensor.detach()).to("cpu", memory_format=torch.contiguous_format, copy=True)
