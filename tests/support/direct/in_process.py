"""A network as a direct level gets it, the same network in PyTorch beside it, and the judgement:
`assert_right` holds what a level gives against float64, with float32 PyTorch's own error as the
measure.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from golow.levels.torch.in_double import InDouble
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph, Pass
from golow.lower.ir.pass_runner import apply
from golow.records.workload import KEPT, Mode, Optimizer, Workload
from golow.workload.graph_capture import capture
from golow.workload.prepare import Prepared, prepare
from golow.workload.request import Request
from golow.workload.source import random_layers_off
from support.models import optimizers

Tensors = dict[str, np.ndarray]

OPTIMIZER = Optimizer(learning_rate=0.05, momentum=0.9, weight_decay=0.01)
ROUNDING = 2.0**-23
STEPS = 2


class Network:
    """A workload, and its graph as the level gets it."""

    def __init__(self, prepared: Prepared, graph: Graph, constants: dict[str, Tensor]) -> None:
        self.prepared, self.graph, self.constants = prepared, graph, constants

    @property
    def trains(self) -> bool:
        """True if an iteration is a training step."""
        return self.prepared.workload.mode == "train"

    @cached_property
    def references(self) -> tuple[Tensors, Tensors, Tensors]:
        """PyTorch in float64, in float32, and in float64 with weights and inputs moved."""
        before = torch.get_num_threads()
        torch.set_num_threads(1)  # its threads and a library's would wait for each other, spinning
        try:
            return (
                torch_steps(self, torch.float64),
                torch_steps(self, torch.float32),
                torch_steps(self, torch.float64, moved=True),
            )
        finally:
            torch.set_num_threads(before)


def lower(
    module: nn.Module,
    inputs: Tensor | tuple[Tensor, ...],
    mode: Mode,
    optimizer: Optimizer = OPTIMIZER,
    loss: str = "cross_entropy",
    *,
    passes: Callable[[Workload], tuple[Pass, ...]],
) -> Network:
    """Prepare, capture and lower by a level's passes, as `golow.compare` does."""
    prepared = prepare(
        Request(
            module, inputs, mode=mode, optimizer=optimizer, loss=loss if mode == "train" else None
        )
    )
    captured = capture(prepared)
    clean = apply(captured.graph, CLEAN_UP)
    return Network(prepared, apply(clean, passes(prepared.workload)), captured.constants)


def graph_inputs(network: Network, graph: Graph) -> dict[str, Tensor]:
    """The values of a graph's inputs by name: the first batch, and weights that no step has
    changed."""
    batch, state = network.prepared.batches[0], network.prepared.module.state_dict()
    rate = torch.tensor(network.prepared.workload.optimizer.learning_rate)
    found = {}
    for item in graph.inputs:
        kind, target = item.kind, item.target
        if kind in ("input", "target"):
            tensor = (batch.inputs if kind == "input" else batch.targets)[int(target)]
        elif kind in KEPT:
            tensor = torch.zeros(item.value.shape)
        elif kind == "learning_rate":
            tensor = rate
        else:
            tensor = network.constants[target] if kind == "constant" else state[target]
        found[item.value.name] = tensor.detach()
    return found


def clipped(found: Tensors) -> Tensors:
    """The same with gradients as PyTorch has them after clipping."""
    factor = found.pop("clip_factor/", None)
    if factor is None:
        return found
    return {
        name: array * factor.reshape(()) if name.startswith("gradient/") else array
        for name, array in found.items()
    }


# ---------------------------------------------------------------- PyTorch


def torch_steps(network: Network, dtype: torch.dtype, moved: bool = False) -> Tensors:
    """The same of PyTorch. moved: weights and inputs are some roundings off, which tells how far
    the right answer itself depends on them."""
    double = InDouble() if dtype == torch.float64 else nullcontext()
    module = copy.deepcopy(network.prepared.module).to(dtype)
    generator = torch.Generator().manual_seed(0)
    if moved:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(_moved(parameter, generator))
    optimizer = _optimizer(network, module)
    found: Tensors = {}
    with random_layers_off(module):
        for step in range(STEPS):
            inputs = [_cast(t, dtype) for t in network.prepared.batches[step].inputs]
            if moved:
                inputs = [_moved(t, generator) for t in inputs]
            taken = _torch_step(network, module, optimizer, inputs, step, double)
            found |= {f"{step}/{name}": t.detach().numpy().copy() for name, t in taken}
    return found


def _optimizer(network: Network, module: nn.Module) -> torch.optim.Optimizer | None:
    settings = network.prepared.workload.optimizer
    if not network.trains:
        return None
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return optimizers.in_torch(settings, trained)


def _torch_step(
    network: Network,
    module: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    inputs: list[Tensor],
    step: int,
    double: AbstractContextManager[object],
) -> Iterator[tuple[str, Tensor]]:
    if optimizer is None:
        with torch.no_grad(), double:
            output = functional_call(module, {}, tuple(inputs))
        yield "output/0", output
        return
    assert network.prepared.loss is not None
    optimizer.zero_grad()
    with double:
        output = module(*inputs)
        targets = [_cast(t, output.dtype) for t in network.prepared.batches[step].targets]
        loss = network.prepared.loss(output, *targets)
        loss.backward()
    settings = network.prepared.workload.optimizer
    optimizers.clip(settings, module.parameters())
    yield "output/0", output
    yield "loss/loss", loss
    trained = [(n, p) for n, p in module.named_parameters() if p.grad is not None]
    yield from ((f"gradient/{name}", p.grad) for name, p in trained if p.grad is not None)
    optimizer.step()
    for name, parameter in trained:
        yield f"parameter/{name}", parameter
    yield from optimizers.kept(settings, optimizer, module)
    yield from ((f"buffer/{name}", b) for name, b in module.named_buffers() if _changes(name))


def _changes(name: str) -> bool:
    return name.rpartition(".")[2].startswith(("running_", "num_batches"))


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _moved(tensor: Tensor, generator: torch.Generator) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    noise = torch.rand(tensor.shape, generator=generator, dtype=tensor.dtype) * 2 - 1
    return tensor * (1 + 8 * ROUNDING * noise)


# ---------------------------------------------------------------- the judgement


def assert_right(network: Network, found: Tensors, roundings: int = 32) -> None:
    """Every tensor is as near to float64 as rounding lets it be, and none is missing but gradients
    of steps after the first, which a level need not keep. roundings: of a tensor's size, which are
    allowed beside what float32 PyTorch is off by."""
    wanted, eager, moved = network.references
    missing = wanted.keys() - found.keys()
    assert all("/gradient/" in name and not name.startswith("0/") for name in missing), missing
    wanted = {name: right for name, right in wanted.items() if name in found}
    sizes = _group_sizes(wanted)
    wrong = []
    for name, right in wanted.items():
        assert found[name].shape == right.shape, name
        size = _rms(right) + sizes[_group(name)] / 4
        rounding = max(_rms(eager[name] - right), _rms(moved[name] - right))
        error, limit = _rms(found[name] - right), 4 * rounding + roundings * ROUNDING * size
        if not error <= limit:  # also where it is NaN
            wrong.append(f"{name}: {error:.3g} from float64, allowed {limit:.3g}")
    assert not wrong, "\n".join(wrong)


def _group_sizes(tensors: Tensors) -> dict[str, float]:
    """Root mean square over all tensors of a step and kind: what cancels to zero in one of them
    leaves roundings of its neighbours' size."""
    found: dict[str, float] = {}
    for group in {_group(name) for name in tensors}:
        members = [t.ravel() for name, t in tensors.items() if _group(name) == group]
        found[group] = _rms(np.concatenate(members))
    return found


def _group(name: str) -> str:
    return name.rpartition("/")[0]


def _rms(array: Any) -> float:
    data = np.asarray(array, dtype=np.float64)
    return float(np.sqrt(np.mean(data * data))) if data.size else 0.0
