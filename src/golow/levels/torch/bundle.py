"""The contents of a bundle in PyTorch: tensors, the module with its weights, the loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from golow.lower.capture.shared_tensors import first_names
from golow.records.errors import GolowError
from golow.workload.as_prepared import as_prepared
from golow.workload.bundle import Bundle
from golow.workload.losses import named_loss
from golow.workload.pickled_module import read_pickled
from golow.workload.source import build_module
from golow.workload.weights import load_weights


def tensors(bundle: Bundle, name: str) -> dict[str, Tensor]:
    """The tensors in one of the bundle's files: ``weights`` or ``batches``."""
    return load_file(bundle.file(f"{name}.safetensors"))


def module(bundle: Bundle) -> nn.Module:
    """The workload's module with the bundle's weights, as the workload was prepared."""
    return as_prepared(_with_weights(bundle), bundle.workload)


def _with_weights(bundle: Bundle) -> nn.Module:
    source = bundle.workload.source
    weights = {name: tensor.clone() for name, tensor in tensors(bundle, "weights").items()}
    if source.kind == "zoo":
        # The weights are known, so the zoo's modules need not draw random ones first.
        with torch.device("meta"):
            built = build_module(source, bundle.folder)
        load_weights(built, _shared(built, weights), assign=True)
        for parameter in built.parameters():
            parameter.requires_grad_(True)
        # A buffer outside the state dict has no numbers yet; only the constructor knows them.
        if not any(buffer.is_meta for buffer in built.buffers()):
            return built
    built = build_module(source, bundle.folder)
    load_weights(built, weights)
    return built


def _shared(built: nn.Module, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights, with one parameter for all names of a parameter of the module."""
    first = first_names(built)
    parameters = {name: nn.Parameter(weights[name]) for name, _ in built.named_parameters()}
    return {name: parameters.get(first[name], weights[name]) for name in weights}


def loss(bundle: Bundle) -> Callable[..., Tensor]:
    """The workload's loss: the caller's own, or the one of its name."""
    digest = bundle.workload.loss_sha256
    if digest:
        own: Callable[..., Tensor]
        own = read_pickled(bundle.file("loss.pkl"), digest, "the bundle's loss")
        return own
    named = named_loss(bundle.workload.loss)
    if named is None:
        raise GolowError(f"there is no loss {bundle.workload.loss!r}")
    return named
