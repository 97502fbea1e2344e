"""Recurrent networks drawn for Hypothesis: kind, layers, directions, sizes, states and biases."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

KINDS: dict[str, type[nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


class Recurrent(nn.Module):
    """A recurrent network between two products with parameters, so that all of it has gradients.

    states: whether it begins with states that are learnt. ends: whether its last states count.
    """

    def __init__(self, kind: str, rows: int, states: bool, ends: bool, **sizes: Any) -> None:
        super().__init__()
        self.rnn = KINDS[kind](**sizes)
        self.scale = nn.Parameter(torch.rand(sizes["input_size"]) + 0.5)
        self.ends = ends
        sides = sizes["num_layers"] * (2 if sizes["bidirectional"] else 1)
        hidden = sizes["hidden_size"]
        widths = [sizes.get("proj_size") or hidden, *([hidden] if kind == "lstm" else [])]
        shapes = [(sides, rows, width) for width in widths] if states else []
        self.first = nn.ParameterList(nn.Parameter(torch.randn(shape)) for shape in shapes)

    def forward(self, x: Tensor) -> Tensor:
        """Everything that it returns, in a row for each of x."""
        first = tuple(self.first) if len(self.first) > 1 else self.first[0] if self.first else None
        y, last = self.rnn(x * self.scale, first)
        listed = last if isinstance(last, tuple) else (last,)
        tensors = [y, *(listed if self.ends else ())]
        row = torch.cat([tensor.reshape(1, -1) for tensor in tensors], 1)
        return row.expand(len(x), -1)


class Drawn(NamedTuple):
    """A network's settings, and the shape of its input."""

    settings: dict[str, Any]
    shape: tuple[int, ...]

    def module(self) -> nn.Module:
        """A network with these settings."""
        return Recurrent(**self.settings)


some = st.booleans()


@st.composite
def recurrent(draw: st.DrawFn, kinds: tuple[str, ...] = tuple(KINDS)) -> Drawn:
    """Any recurrent network of one to three layers."""
    kind, hidden = draw(st.sampled_from(kinds)), draw(st.integers(2, 40))
    steps, rows, inputs = (draw(st.integers(1, most)) for most in (6, 5, 40))
    settings: dict[str, Any] = {
        "kind": kind, "rows": rows, "states": draw(some), "ends": draw(some),
        "input_size": inputs, "hidden_size": hidden, "num_layers": draw(st.integers(1, 3)),
        "bidirectional": draw(some), "batch_first": draw(some), "bias": draw(some),
    }  # fmt: skip
    if kind == "lstm":
        settings["proj_size"] = draw(st.integers(0, hidden - 1))
    if kind == "rnn":
        settings["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))
    ordered = (rows, steps) if settings["batch_first"] else (steps, rows)
    return Drawn(settings, (*ordered, inputs))
