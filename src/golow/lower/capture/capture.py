"""Captures a workload's graph with torch.export (inference) or AOTAutograd (training).

golow has no tracer or autodiff of its own: PyTorch records what it would run, and the captures
translate the record into the graph of `golow.lower.ir.graph`, with the layer's path at each node.
Training uses AOTAutograd's joint graph of forward and backward; a forward pass that torch.export
does not take is captured by AOTAutograd, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress

from torch import Tensor, nn

from golow.lower.aten.translation import Captured
from golow.lower.capture.changed_buffers import return_changed_buffers
from golow.lower.capture.explained import NotTracedError
from golow.lower.capture.exported import exported_graph
from golow.lower.capture.gradient_hooks import require_unhooked_gradients
from golow.lower.capture.joint import forward_graph, training_graph
from golow.lower.capture.row_major import row_major
from golow.records.errors import GolowError

Loss = Callable[..., Tensor]


def capture_inference(
    name: str, module: nn.Module, inputs: tuple[Tensor, ...], said: list[str] | None = None
) -> Captured:
    """The graph of ``module.eval()(*inputs)``. said: receives torch's messages."""
    start = time.perf_counter()
    told = [] if said is None else said
    module.eval()
    with row_major(module, inputs) as (given,):
        try:
            return exported_graph(name, module, given, told, start)
        except NotTracedError:
            with suppress(GolowError):
                return forward_graph(name, module, given, told, start)
            raise


def capture_step(
    name: str,
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    said: list[str] | None = None,
    shared: Collection[str] = (),
) -> Captured:
    """The graph of ``module.eval()(*inputs)`` with the buffers that it changes in place as state:
    the graph receives them and returns their new content. said: receives torch's messages. shared:
    buffers that are state because other steps of the module change them."""
    start = time.perf_counter()
    module.eval()
    with row_major(module, inputs) as (given,):
        captured = exported_graph(name, module, given, [] if said is None else said, start)
        return return_changed_buffers(captured, module, shared)


def capture_training(
    name: str,
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    targets: tuple[Tensor, ...],
    loss: Loss,
    said: list[str] | None = None,
) -> Captured:
    """The joint graph of one training step up to the gradients: forward, loss, backward, and the
    new content of the buffers that the forward pass mutates. said: receives torch's messages.
    Raises `GolowError` for a parameter with a hook on its gradient."""
    start = time.perf_counter()
    require_unhooked_gradients(module, name)
    if not module.training:  # in training, layers may be in eval() on purpose
        module.train()
    told = [] if said is None else said
    with row_major(module, inputs, targets) as (given, wanted):
        return training_graph(name, module, given, wanted, loss, told, start)
