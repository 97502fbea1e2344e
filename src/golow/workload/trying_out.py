"""Runs a module a few times before any level does: how it takes its batches, and whether its
results can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from torch import nn

from golow.workload.attributes import copied_sharing_weights
from golow.workload.batch import Batch
from golow.workload.dropout_calls import DROPOUT_CALLS
from golow.workload.forward_changes import Changes
from golow.workload.known_causes import autocast_refused, require_input_types
from golow.workload.patched_functions import installed
from golow.workload.request import Loss, Request
from golow.workload.settled_draws import Settled, settle_alike, settle_draws
from golow.workload.stateless import require_stateless
from golow.workload.trial import try_gradients, try_inference, try_step

WithTargets = Callable[[tuple[Batch, ...], Any], tuple[Batch, ...]]


class Tried(NamedTuple):
    """The output for the first batch, that batch with its draws, those that follow, and what the
    module does: the draws of a pass, what a pass changes, the calls of functions that drop
    something in training, and whether it takes gradients in its forward pass."""

    output: Any
    first: Batch
    others: Iterator[Batch]
    draws: int
    changes: Changes
    dropping: tuple[str, ...]
    takes_gradients: bool


def try_out(
    module: nn.Module,
    batches: Iterator[Batch],
    name: str,
    request: Request,
    loss: Loss | None,
    with_targets: WithTargets,
) -> Tried:
    """Run the module, which then takes its draws as inputs and works on copies of what it changes.

    with_targets: gives batches the targets that fit an output. Raises `GolowError` for a module
    that does not accept its batch, or whose results cannot be compared.
    """
    first = next(batches)
    if request.example_inputs is not None:
        require_input_types(module, first.inputs)
    untouched = copied_sharing_weights(module)
    with installed(DROPOUT_CALLS if loss is not None else {}):
        with autocast_refused(name, request.device, request.precision):
            settled = settle_draws(module, chain((first,), batches), name, request)
        others = settled.others
        if settled.changes.attributes:
            second = next(others)
            others = chain((second,), others)
            _require_stateless(module, untouched, settled, second, name, request)
        (tried,) = with_targets((settled.first,), settled.output)
        dropping: tuple[str, ...] = ()
        takes_gradients = False
        if loss is None:
            takes_gradients = try_inference(module, tried, settled.output, name, request.device)
        else:
            dropping = try_step(module, tried, loss, name, request.device)
            if settled.draws:
                try_gradients(module, tried, loss, name, request.device)
        if settled.draws:  # the module runs on every batch, to draw
            others = iter(tuple(others))
    return Tried(
        settled.output,
        settled.first,
        others,
        settled.draws,
        settled.changes,
        dropping,
        takes_gradients,
    )


def _require_stateless(
    module: nn.Module,
    untouched: nn.Module | None,
    settled: Settled,
    second: Batch,
    name: str,
    request: Request,
) -> None:
    """untouched: a copy from before the first pass; None if there cannot be one."""
    if untouched is None:
        untouched = module
    else:
        settle_alike(untouched, settled.changes, settled.draws, request.mode)
    require_stateless(untouched, settled.first, second, name, request.mode, request.device)
