"""Recurrent layers of PyTorch, and the operands of kernels that compute them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from golow.levels.direct.cudnn.shared_kernels.recurrent import Layer
from golow.lower.operators.recurrence import Cell
from support.direct.kernel_launches import torch_type

KINDS: tuple[Cell, ...] = ("lstm", "gru", "rnn_tanh", "rnn_relu")


# Of a number in the sums, and of a state that is stored.
LIMITS = {"float32": 2e-3, "bfloat16": 2e-2, "float16": 2e-3}
NUMBER = 7  # of the first state


class Made(NamedTuple):
    """A layer of PyTorch in float64, whose weights have the layer's dtype, its input of five
    numbers and its first states; and the kernel's operands."""

    module: nn.RNNBase
    x: Tensor
    states: list[Tensor]
    inputs: list[Tensor]


def made(layer: Layer, biased: bool = True, seed: int = 0) -> Made:
    """What a layer needs, drawn."""
    generator = torch.Generator().manual_seed(seed)
    kinds: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU}
    form = {"nonlinearity": layer.kind[4:]} if layer.kind.startswith("rnn") else {}
    dtype = torch_type(layer.dtype)
    module = kinds.get(layer.kind, nn.RNN)(
        5, layer.units, bias=biased, bidirectional=layer.sides == 2,
        batch_first=layer.batch_major, **form,
    ).double()  # fmt: skip
    for parameter in module.parameters():
        drawn_ = torch.randn(parameter.shape, generator=generator) * layer.units**-0.5
        parameter.data = drawn_.to(dtype).double()
    order = (layer.rows, layer.steps) if layer.batch_major else (layer.steps, layer.rows)
    x = torch.randn(*order, 5, generator=generator).double()
    state = (layer.sides, layer.rows, layer.units)
    first = [torch.randn(state, generator=generator).to(dtype) for _ in range(2)]
    named = dict(module.named_parameters())

    def stacked(name: str) -> Tensor:
        ends = ["", "_reverse"][: layer.sides]
        return torch.stack([named[f"{name}_l0{end}"].detach() for end in ends])

    gates = x.reshape(-1, 5) @ stacked("weight_ih").flatten(0, 1).T
    absent = torch.empty(0)
    biases = [stacked(name).float() if biased else absent for name in ("bias_ih", "bias_hh")]
    states = first[: 1 + (layer.kind == "lstm")]
    cell = first[1] if layer.kind == "lstm" else absent
    inputs = [gates.float(), stacked("weight_hh").to(dtype), *biases, first[0], cell]
    return Made(module, x, [state.double() for state in states], inputs)
