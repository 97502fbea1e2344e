"""From a module and a loss to the lowered graphs of a step. Importing this takes PyTorch a
second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import msgspec
from torch import Tensor, nn

from golow.levels.called.target import Target, explained
from golow.levels.called.training.optimizer_settings import Settings
from golow.lower.capture.capture import capture_training
from golow.lower.fuse.gradient_accumulation import add_sums, add_to_sums
from golow.lower.fuse.optimizer_updates import decay_apart, rates_apart
from golow.lower.ir.clean_up import CLEAN_UP, eliminate_dead_code
from golow.lower.ir.graph import Graph, Pass
from golow.lower.ir.pass_runner import apply
from golow.records.errors import GolowError
from golow.records.workload import ModelSource, Optimizer, Workload


class LoweredStep(NamedTuple):
    """updating: the step that ends in an update. adding: the one that only adds its gradients up;
    None if every step updates. constants: tensors besides weights that they read."""

    updating: Graph
    adding: Graph | None
    constants: Mapping[str, Tensor]


def lowered_step(
    module: nn.Module,
    loss: Callable[..., Tensor],
    inputs: tuple[Tensor, ...],
    targets: tuple[Tensor, ...],
    settings: Settings,
    every: int,
    target: Target,
    ranks: int = 1,
) -> LoweredStep:
    """Capture the step and run the level's passes. Raises `GolowError` for what torch cannot
    capture, for what the level cannot run, and for a step that trains nothing."""
    name = type(module).__name__
    captured = capture_training(name, module, inputs, targets, loss)
    graph = _only(apply(captured.graph, CLEAN_UP), settings.decays)
    _require_sense(graph)

    def lowered(graph: Graph, optimizer: Optimizer, *first: Pass) -> Graph:
        workload = Workload(
            model=name,
            source=ModelSource(kind="pickle", name=name),
            mode="train",
            batch=inputs[0].shape[0] if inputs[0].dim() else 1,
            inputs=(),
            threads=target.threads,
            precision=target.precision,
            optimizer=optimizer,
            ranks=ranks,
        )
        found = apply(graph, (*first, *target.passes(workload)))
        found = rates_apart(decay_apart(found, settings.decays), settings.group_of)
        with explained(target.level):
            target.require_runnable(found)
        return found

    if every == 1:
        return LoweredStep(lowered(graph, settings.optimizer), None, captured.constants)
    updating = lowered(graph, settings.optimizer, _named(add_sums, every))
    # It has no gradient to update by; SGD counts no steps.
    adding = lowered(graph, Optimizer("sgd"), _named(add_to_sums, every))
    return LoweredStep(updating, adding, captured.constants)


def _only(graph: Graph, trained: Mapping[str, float]) -> Graph:
    """The graph without gradients of parameters that the optimizer does not have."""
    kept = tuple(
        item for item in graph.outputs if item.kind != "gradient" or item.target in trained
    )
    if len(kept) == len(graph.outputs):
        return graph
    return eliminate_dead_code(msgspec.structs.replace(graph, outputs=kept))


def _require_sense(graph: Graph) -> None:
    if not any(item.kind == "gradient" for item in graph.outputs):
        raise GolowError(
            "the loss depends on no parameter that the optimizer has and that requires gradients",
            "call requires_grad_() on the parameters to train.",
        )
    saved = {item.target for item in graph.inputs if item.kind == "buffer"}
    for item in graph.outputs:
        if item.kind == "buffer" and item.target not in saved:
            raise GolowError(
                f"a step changes the buffer {item.target}, which is not in the state dict",
                "register it with persistent=True.",
            )


def _named(run: Callable[..., Graph], every: int) -> Pass:
    made = partial(run, every=every)
    made.__name__ = run.__name__  # type: ignore[attr-defined]
    return made
