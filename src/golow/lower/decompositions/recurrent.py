"""Recurrent layers as a loop over time: a product for all steps at once, then one per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decompositions
from torch.nn import functional

Given = tuple[Tensor | None, ...]  # x, hidden, cell, the weights, the biases, the projection
Layer = Callable[..., tuple[Tensor, Tensor | None]]

FUNCTIONS = {
    "gru": decompositions.gru_cell,
    "rnn_tanh": decompositions.rnn_cell(torch.tanh),
    "rnn_relu": decompositions.rnn_cell(torch.relu),
}


def loop(
    kind: str,
    backwards: bool,
    x: Tensor,
    hidden: Tensor,
    cell: Tensor | None,
    input_weight: Tensor,
    hidden_weight: Tensor,
    input_bias: Tensor | None,
    hidden_bias: Tensor | None,
    projection: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """`golow.lower.operators.recurrence.Recurrence` as a loop: PyTorch's, but for the LSTM's."""
    biased = input_bias is not None
    found = (input_weight, hidden_weight, input_bias, hidden_bias, projection)
    weights = tuple(weight for weight in found if weight is not None)
    if kind != "lstm":
        y, _ = decompositions.one_layer_rnn(
            x, hidden, weights, biased, FUNCTIONS[kind], reverse=backwards
        )
        return y, None
    assert cell is not None  # noqa: S101 - an LSTM has one
    return _lstm(x, hidden, cell, *found, backwards=backwards)


def _lstm(
    x: Tensor,
    hidden: Tensor,
    cell: Tensor,
    input_weight: Tensor,
    hidden_weight: Tensor,
    input_bias: Tensor | None,
    hidden_bias: Tensor | None,
    projection: Tensor | None,
    *,
    backwards: bool,
) -> tuple[Tensor, Tensor]:
    """PyTorch adds what comes from the input and from the state, and divides the sum into gates.
    Divided before, a gate is one function of elements, and all of them are one kernel."""
    steps = functional.linear(x, input_weight, input_bias).unbind(0)
    results = []
    for given in reversed(steps) if backwards else steps:
        state = functional.linear(hidden, hidden_weight, hidden_bias)
        pairs = zip(state.chunk(4, -1), given.chunk(4, -1), strict=True)
        enter, keep, new, leave = (one + other for one, other in pairs)
        cell = torch.sigmoid(keep) * cell + torch.sigmoid(enter) * torch.tanh(new)
        hidden = torch.sigmoid(leave) * torch.tanh(cell)
        if projection is not None:
            hidden = functional.linear(hidden, projection)
        results.append(hidden)
    return torch.stack(results[::-1] if backwards else results), cell


def loop_gradients(
    kind: str, backwards: bool, given: Given, gradient: Tensor, last_gradient: Tensor | None
) -> tuple[tuple[Tensor | None, ...], tuple[Tensor | None, ...]]:
    """The results of the loop, and their gradients to all that is given: the derivative of the
    loop itself."""
    there = [item for item in given if item is not None]

    def results(*tensors: Tensor) -> tuple[Tensor, ...]:
        left = iter(tensors)
        y, last = loop(kind, backwards, *(None if i is None else next(left) for i in given))  # type: ignore[arg-type]
        return (y,) if last is None or last_gradient is None else (y, last)

    found, pull = torch.func.vjp(results, *there)  # type: ignore[misc]
    gradients = iter(pull((gradient,) if last_gradient is None else (gradient, last_gradient)))
    return found, tuple(None if item is None else next(gradients) for item in given)


def layers(
    layer: Layer,
    kind: str,
    input: Tensor,
    states: Sequence[Sequence[Tensor]],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """Results of ``lstm``, ``gru`` and ``rnn_*``, by a function for one layer in one direction,
    which takes what `loop` takes. states: hidden, and the cell's, of all layers and directions.

    PyTorch's definition (``_rnn_helper``) leaves out the dropout between layers.
    """
    projected = kind == "lstm" and states[0][0].shape[-1] != states[1][0].shape[-1]
    weights = decompositions.gather_params(params, has_biases, projected)
    x = input.transpose(0, 1) if batch_first else input
    ends: list[tuple[Tensor, Tensor | None]] = []
    for number in range(num_layers):
        sides = []
        for backwards in (False, True) if bidirectional else (False,):
            place = len(ends)
            cell = states[1][place] if kind == "lstm" else None
            named = _named(weights[place], has_biases, projected)
            y, last = layer(kind, backwards, x, states[0][place], cell, *named)
            ends.append((y[0 if backwards else -1], last))
            sides.append(y)
        x = torch.cat(sides, 2) if bidirectional else sides[0]
        if dropout and train and number < num_layers - 1:
            x = torch.dropout(x, dropout, True)
    y = x.transpose(0, 1) if batch_first else x
    hidden, cells = zip(*ends, strict=True)
    return (y, torch.stack(hidden), *([torch.stack(cells)] if kind == "lstm" else []))


def _named(
    weights: Sequence[Tensor], biased: bool, projected: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Both weights, both biases and the projection."""
    biases = (weights[2], weights[3]) if biased else (None, None)
    return weights[0], weights[1], *biases, weights[-1] if projected else None


def whole_call(layer: Layer, kind: str, *arguments: Any) -> Any:
    """`layers` with the arguments of ATen's call: the LSTM's states are a list, others one."""
    input, hx, *others = arguments
    states = [item.unbind(0) for item in (hx if kind == "lstm" else (hx,))]
    return layers(layer, kind, input, states, *others)


def in_inference(kind: str, *arguments: Any) -> Any:
    """A call in inference; in training each level draws its own dropout between layers."""
    *_, dropout, train, _, _ = arguments
    return NotImplemented if dropout and train else whole_call(loop, kind, *arguments)


CALLS = {f"aten.{kind}.input": kind for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")}

DEFINITIONS = {name: partial(in_inference, kind) for name, kind in CALLS.items()}
