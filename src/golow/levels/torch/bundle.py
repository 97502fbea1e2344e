"""The contents of a bundle in PyTorch: tensors, the module with its weights, the loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from golow.workload.bundle import Bundle
from golow.workload.source import build_module


def tensors(bundle: Bundle, name: str) -> dict[str, Tensor]:
    """The tensors in one of the bundle's files: ``weights`` or ``batches``."""
    return load_file(bundle.file(f"{name}.safetensors"))


def module(bundle: Bundle) -> nn.Module:
    """The workload's module with the bundle's weights."""
    source = bundle.workload.source
    weights = {name: tensor.clone() for name, tensor in tensors(bundle, "weights").items()}
    if source.kind != "zoo":
        built = build_module(source, bundle.folder)
        built.load_state_dict(weights)
        return built
    # The weights are known, so the zoo's modules need not draw random ones first.
    with torch.device("meta"):
        built = build_module(source, bundle.folder)
    built.load_state_dict(weights, assign=True)
    for parameter in built.parameters():
        parameter.requires_grad_(True)
    return built


def loss(bundle: Bundle) -> Callable[..., Tensor]:
    """The workload's loss: the caller's own, or the one with its name in torch.nn.functional."""
    path = bundle.file("loss.pkl")
    if path.exists():
        import cloudpickle

        own: Callable[..., Tensor] = cloudpickle.loads(path.read_bytes())
        return own
    named: Callable[..., Tensor] = getattr(nn.functional, bundle.workload.loss)
    return named
