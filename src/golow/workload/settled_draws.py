"""Finds out whether a model draws random numbers, and if so makes them inputs of its batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from torch import Tensor, nn

from golow.records.errors import GolowError
from golow.records.workload import Mode
from golow.workload.batch import Batch
from golow.workload.draws import accept_draws, drawn
from golow.workload.forward_changes import Changes, watched
from golow.workload.own_copies import work_on_copies
from golow.workload.request import Request
from golow.workload.source import random_layers_off
from golow.workload.trial import try_forward


class Settled(NamedTuple):
    """The output for the first batch, that batch, those that follow, the number of draws after the
    inputs of each, and what the first pass changed."""

    output: Any
    first: Batch
    others: Iterator[Batch]
    draws: int
    changes: Changes


def settle_draws(
    module: nn.Module, batches: Iterator[Batch], name: str, request: Request
) -> Settled:
    """Run the module on the first batch. If it draws, make it take its draws as inputs, and add
    them to every batch; if it changes its inputs or assigns buffers anew, let it work on copies.
    Raises `GolowError` if its draws differ from run to run in number or shape."""
    first = next(batches)
    with (
        drawn(request.mode, request.seed, request.device) as everything,
        watched(module) as changes,
    ):
        output = try_forward(module, first, name, request.device)
    work_on_copies(module, changes.inputs, changes.assigned)
    if not everything:
        return Settled(output, first, batches, 0, changes)
    with _layers_off(module, request):
        draws = _draws(module, first, name, request, 0)
    if not draws:  # known layers alone, which each level lets draw
        return Settled(output, first, batches, 0, changes)
    _require_given(name, draws, everything, request)
    accept_draws(module, len(draws), request.mode)
    given = _with_draws(first, draws)
    if request.mode == "infer":
        output = try_forward(module, given, name, request.device)
    others = _others(module, batches, draws, name, request)
    return Settled(output, given, others, len(draws), changes)


def settle_alike(module: nn.Module, changes: Changes, draws: int, mode: Mode) -> None:
    """Let a copy of a settled module take its batches as that one does."""
    work_on_copies(module, changes.inputs, changes.assigned)
    if draws:
        accept_draws(module, draws, mode)


def _others(
    module: nn.Module, batches: Iterator[Batch], draws: list[Tensor], name: str, request: Request
) -> Iterator[Batch]:
    for number, batch in enumerate(batches, start=1):
        with _layers_off(module, request):
            own = _draws(module, batch, name, request, number)
        if _shapes(own) != _shapes(draws):
            raise GolowError(
                f"{name} draws {_shapes(own)} for one batch and {_shapes(draws)} for another",
                "a model's draws must have the same shape each time.",
            )
        yield _with_draws(batch, own)


def _draws(
    module: nn.Module, batch: Batch, name: str, request: Request, number: int
) -> list[Tensor]:
    with drawn(request.mode, request.seed + number, request.device) as found:
        try_forward(module, batch, name, request.device)
    return [draw.cpu() for draw in found]


def _with_draws(batch: Batch, draws: list[Tensor]) -> Batch:
    return batch._replace(inputs=(*batch.inputs, *draws))


def _shapes(draws: list[Tensor]) -> list[str]:
    return [f"{str(draw.dtype).removeprefix('torch.')} {list(draw.shape)}" for draw in draws]


def _layers_off(module: nn.Module, request: Request) -> AbstractContextManager[None]:
    return random_layers_off(module) if request.mode == "train" else nullcontext()


def _require_given(
    name: str, draws: list[Tensor], everything: list[Tensor], request: Request
) -> None:
    """Raise `GolowError` unless these draws can be told from those of known layers, and stay the
    same numbers in the workload's precision."""
    if _shapes(draws) != _shapes(everything):
        raise GolowError(
            f"{name} draws random numbers itself and has layers of another package that draw, too; "
            "golow cannot tell them apart",
            "set the probability of those layers to 0, or use nn.Dropout.",
        )
    if request.precision in ("bf16", "fp16"):
        raise GolowError(
            f"{name} draws random numbers, which {request.precision} would round: a draw near a "
            "threshold would fall on its other side",
            "leave out --precision.",
        )
