"""Recurrent networks of `cudnn` without a GPU: PyTorch stands in for the library, at the host's
addresses and on one piece of memory for all weights, as `cudnnRNNForward` gets them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from golow.levels.direct.cudnn.bindings.rnn_api import Lies, weight_places
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.recurrent_network import (
    NetworkEngine,
    Operand,
    RecurrentNetwork,
)
from golow.levels.direct.cudnn.steps.built_plan import Call, EngineCall
from support.direct.cuda_on_cpu import Machine
from support.models.drawn_recurrences import KINDS

NAMES = {
    "input_weight": "weight_ih", "hidden_weight": "weight_hh", "input_bias": "bias_ih",
    "hidden_bias": "bias_hh", "projection": "weight_hr",
}  # fmt: skip
GAP = 3  # elements after each side's matrices: what follows is not aligned
MARK = 7  # what the reserve holds


def documented(problem: RecurrentNetwork) -> tuple[int, Any]:
    """The space of weights in elements, and where the library's documentation says that each
    matrix and bias is stored: all matrices, then all biases."""
    at, lies = 0, {}
    gates, item = problem.gates, ITEM_BYTES[problem.dtype]
    ends = range(problem.layers * problem.sides)
    for wanted in ("weight", "bias"):
        for end in ends:
            shapes = problem.parameters(end // problem.sides)
            for first, kind in ((0, "input"), (gates, "hidden")):
                shape = shapes.get(f"{kind}_{wanted}", (0,))  # type: ignore[call-overload]
                for gate in range(gates):
                    lies[end, first + gate, wanted] = Lies(item * at, int(np.prod(shape)) // gates)
                    at += int(np.prod(shape)) // gates
            if wanted == "weight" and problem.projected:
                lies[end, 8, wanted] = Lies(item * at, problem.results * problem.hidden)
                at += problem.results * problem.hidden
            at += GAP
    nothing = Lies(0, 0)

    def look(end: int, number: int) -> tuple[Lies, Lies]:
        return tuple(lies.get((end, number, of), nothing) for of in ("weight", "bias"))  # type: ignore[return-value]

    return at, look


class HostNetwork:
    """What `golow.levels.direct.cudnn.bindings.rnn_api.Network` is on a GPU."""

    algorithm = "on the host"
    workspace, reserve = 1000, 520

    def __init__(self, problem: RecurrentNetwork) -> None:
        self.problem = problem
        elements, look = documented(problem)
        self.weight_bytes = ITEM_BYTES[problem.dtype] * elements
        self.places = weight_places(problem, look)

    def forward(self, given: Mapping[Operand, int], workspace: int) -> None:
        """Run it on the host."""
        _, _, results = self._run(given)
        for name, tensor in zip(("y", "last_hidden", "last_cell"), results, strict=False):
            if given.get(name):  # type: ignore[call-overload]
                _memory(given[name], tensor.shape)[...] = tensor.detach()  # type: ignore[index]
        if self.problem.trains:
            ctypes.memset(given["reserve"], MARK, self.reserve)

    def backward(self, given: Mapping[Operand, int], workspace: int) -> None:
        """Its gradients; those of weights are added."""
        kept = ctypes.string_at(given["reserve"], self.reserve)
        assert kept == bytes([MARK]) * self.reserve, "the reserve was overwritten"
        network, read, (y, *lasts) = self._run(given)
        np.testing.assert_allclose(_memory(given["y"], y.shape), y.detach(), atol=1e-5)
        ends, wanted = [y], [_memory(given["gradient"], y.shape)]
        if "last_cell_gradient" in given:
            ends.append(lasts[1])
            wanted.append(_memory(given["last_cell_gradient"], lasts[1].shape))
        into = [*read.values(), *network.parameters()]
        found = torch.autograd.grad(ends, into, list(map(torch.tensor, wanted)), allow_unused=True)
        gradients = dict(zip(read, found, strict=False))
        for name, gradient in gradients.items():
            place = given.get(f"{name}_gradient")  # type: ignore[call-overload]
            if place:
                _memory(place, read[name].shape)[...] = gradient
        space = given["weight_gradients"]
        for parameter, gradient in zip(network.parameters(), found[len(read) :], strict=True):
            place = space + self._offset(network, parameter)
            _memory(place, parameter.shape)[...] += gradient.numpy()

    def _run(self, given: Mapping[Operand, int]) -> tuple[nn.Module, dict[str, Any], Any]:
        problem, ends = self.problem, self.problem.layers * self.problem.sides
        network = self._module()
        for parameter in network.parameters():
            place = given["weights"] + self._offset(network, parameter)
            parameter.data.copy_(torch.tensor(_memory(place, parameter.shape)))
        ordered = (problem.steps, problem.rows)
        x = ordered[::-1] if problem.batch_major else ordered
        shapes = {"x": (*x, problem.inputs), "hidden": (ends, problem.rows, problem.results)}
        if problem.kind == "lstm":
            shapes["cell"] = (ends, problem.rows, problem.hidden)
        read = {
            name: torch.tensor(_memory(given[name], shape), requires_grad=True)  # type: ignore[index]
            for name, shape in shapes.items()
        }
        states = tuple(read[name] for name in ("hidden", "cell") if name in read)
        y, last = network(read["x"], states if len(states) > 1 else states[0])
        return network, read, (y, *(last if isinstance(last, tuple) else (last,)))

    def _module(self) -> nn.Module:
        problem = self.problem
        kind, _, function = problem.kind.partition("_")
        settings: dict[str, Any] = {"nonlinearity": function} if function else {}
        if problem.projected:
            settings["proj_size"] = problem.results
        return KINDS[kind](
            problem.inputs, problem.hidden, problem.layers, bias=problem.biased,
            batch_first=problem.batch_major, bidirectional=problem.sides == 2, **settings,
        )  # fmt: skip

    def _offset(self, network: nn.Module, parameter: nn.Parameter) -> int:
        sides = self.problem.sides
        for end, places in enumerate(self.places):
            suffix = f"_l{end // sides}" + "_reverse" * (end % sides)
            for name, offset in places.items():
                if getattr(network, NAMES[name] + suffix) is parameter:
                    return offset
        raise LookupError("a parameter without a place")


def _memory(address: int, shape: Sequence[int]) -> np.ndarray:
    elements = int(np.prod(shape))
    return np.ctypeslib.as_array((ctypes.c_float * elements).from_address(address)).reshape(shape)


class HostGpu:
    """Fills the host's memory."""

    def fill(self, address: int, size: int) -> None:
        ctypes.memset(address, 0, size)


class NetworkMachine(Machine):
    """Runs them, too."""

    def call(self, call: Call) -> bool:
        if isinstance(call, EngineCall) and isinstance(call.engine, NetworkEngine):
            addresses = [self.seen(tensor).ctypes.data for tensor in call.arguments]
            assert call.workspace is not None
            call.engine.run(addresses, self.seen(call.workspace).ctypes.data)
            return True
        return super().call(call)
