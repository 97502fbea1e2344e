"""Graphs of modules whose weights are not row-major, or whose tensors are sparse."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.lower.capture.capture import capture_inference, capture_training
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.lower.ir.verify import interpret
from golow.records.errors import GolowError
from support.graphs.given_values import given_values

LAST = torch.channels_last


class Pixels(nn.Module):
    """Its output is a view of the convolution's result in channels last only."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).permute(0, 2, 3, 1).reshape(len(x), -1)  # type: ignore[no-any-return]


def test_weights_in_channels_last() -> None:
    module, x = Pixels().to(memory_format=LAST), torch.randn(2, 3, 5, 5).to(memory_format=LAST)
    y = torch.randn(2, 36)
    wanted = torch.autograd.grad(functional.mse_loss(module(x), y), module.layer.weight)[0]
    captured = capture_training("net", module, (x,), (y,), functional.mse_loss)
    graph = apply(captured.graph, CLEAN_UP)
    found = interpret(graph, given_values(captured._replace(graph=graph), module, x, y))
    torch.testing.assert_close(found["gradient/layer.weight"], wanted)
    captured = capture_inference("net", module, (x,))
    graph = apply(captured.graph, CLEAN_UP)
    found = interpret(graph, given_values(captured._replace(graph=graph), module, x))
    torch.testing.assert_close(found["output/0"], module(x))
    assert module.layer.weight.is_contiguous(memory_format=LAST)


def test_a_sparse_gradient_is_refused() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Embedding(5, 3, sparse=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)  # type: ignore[no-any-return]

    batch = torch.tensor([1, 3]), torch.randn(2, 3)
    with pytest.raises(GolowError, match="gives a sparse tensor") as caught:
        capture_training("net", Table(), batch[:1], batch[1:], functional.mse_loss)
    assert "leave out sparse=True" in caught.value.hint
