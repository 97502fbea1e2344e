"""Refuses a model whose result depends on more than its inputs, weights and buffers."""

from __future__ import annotations

import torch
from torch import nn

from golow.records.errors import GolowError
from golow.records.workload import Device, Mode
from golow.workload.attributes import (
    Attributes,
    attributes_of,
    changed,
    copied_sharing_weights,
    shown,
)
from golow.workload.batch import Batch
from golow.workload.dropout_calls import DROPOUT_CALLS
from golow.workload.patched_functions import installed
from golow.workload.source import random_layers_off
from golow.workload.trial import try_forward
from golow.workload.unrepeatable import REORDERED

SHOWN = 3


def require_stateless(
    module: nn.Module, first: Batch, second: Batch, name: str, mode: Mode, device: Device
) -> None:
    """Raise `GolowError` if Python attributes of the module after the first batch depend on what
    was run before it: a counter, the statistics of the first batch, a hidden state.

    A result that is kept in an attribute, or a cache of what only shapes decide, is the same
    whatever came before. module: as it was before it ran.
    """
    other = copied_sharing_weights(module)
    alone = _after(module, (first,), name, mode, device)
    later = _after(module if other is None else other, (second, first), name, mode, device)
    found = changed(alone, later, REORDERED if device == "cuda" else 0.0)
    if not found:
        return
    values = ", ".join(_both(path, alone, later) for path in found[:SHOWN])
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    raise GolowError(
        f"a forward pass of {name} leaves something for the next one in Python attributes: "
        f"{values}{more}",
        "golow compares passes that start from the same state: pass the changing tensor as an "
        "input and return its new content, or leave it out.",
    )


def _after(
    module: nn.Module, batches: tuple[Batch, ...], name: str, mode: Mode, device: Device
) -> Attributes:
    training = mode == "train"
    devices = [torch.cuda.current_device()] if device == "cuda" else []
    with (
        torch.random.fork_rng(devices),
        installed(DROPOUT_CALLS if training else {}),
        random_layers_off(module),
    ):
        for batch in batches:
            torch.manual_seed(0)
            try_forward(module, batch, name, device)
    return attributes_of(module)


def _both(path: str, one: Attributes, other: Attributes) -> str:
    values = [shown(found[path]) for found in (one, other) if path in found]
    told = len(values) == 2 and all(values) and values[0] != values[1]
    return f"{path} ({values[0]}, then {values[1]})" if told else path
