"""Weights in bf16 at `onednn`, read as they are, against exact integer arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.direct.onednn.level import probe
from golow.lower.operators.linear import Linear
from golow.lower.operators.narrow_linear import NarrowLinear
from golow.lower.operators.narrow_take import NarrowTake
from golow.lower.recognise.half_weights import keeping_bf16
from golow.lower.recognise.narrow_layers import MOST_ROWS
from support.direct.in_process import Network
from support.direct.onednn_in_process import Running, compute, lower
from support.examples import examples

pytestmark = pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")

WORDS = 23


class Tied(nn.Module):
    """Rows of a table, and the products with all of its rows. reads_more: what is neither."""

    def __init__(self, inner: int, bias: bool, relu: bool, reads_more: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, inner)
        self.head = nn.Linear(inner, WORDS, bias=bias)
        self.relu, self.reads_more = relu, reads_more
        with torch.no_grad():
            for seed, weight in enumerate(self.parameters()):
                weight.copy_(drawn(-100, 100, *weight.shape, seed=seed))
        self.head.weight = self.table.weight

    def forward(self, words: Tensor) -> Tensor:
        """int64 [rows] -> [rows, WORDS]"""
        y = self.head(self.table(words))
        y = y + self.table.weight.sum() if self.reads_more else y
        return y.relu() if self.relu else y


def drawn(low: int, high: int, *shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high + 1, shape, generator=generator)


def lowered(module: nn.Module, rows: int) -> Network:
    network = lower(module.eval(), (drawn(0, WORDS - 1, rows),), "infer")
    names = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    return Network(network.prepared, keeping_bf16(names)(network.graph), network.constants)


def operations(network: Network) -> set[str]:
    return {node.op for node in network.graph.nodes}


@pytest.mark.parametrize("generates", [True, False])
@given(data=st.data())
@examples(10, suppress_health_check=[HealthCheck.too_slow])
def test_layers_and_tables_of_any_size_are_exact(generates: bool, data: st.DataObject) -> None:
    """By the kernel, by the library's product of bf16, and without a compiler."""
    inner = data.draw(st.sampled_from((1, 13, 16, 40, 64, 600)))
    rows = data.draw(st.integers(1, 2 * MOST_ROWS))
    module = Tied(inner, data.draw(st.booleans()), data.draw(st.booleans()))
    network = lowered(module, rows)
    assert {NarrowLinear.op(), NarrowTake.op()} <= operations(network)
    found = compute(network, generates=generates)["0/output/0"]
    wanted = module.double()(network.prepared.batches[0].inputs[0])
    np.testing.assert_array_equal(found, wanted.detach().numpy().astype(np.float32))


@pytest.mark.parametrize("rows", [1, MOST_ROWS + 1])
def test_two_bytes_of_a_weight_are_read(rows: int) -> None:
    built = Running(lowered(Tied(512, bias=False, relu=False), rows)).built
    assert built.inputs["parameter", "table.weight"].bytes == 2 * 512 * WORDS
    (product,) = [step for step in built.plan.steps if step.operation == "narrow_linear"]
    assert product.reads[1].bytes == 2 * 512 * WORDS


def test_a_weight_that_something_else_reads_stays_float32() -> None:
    network = lowered(Tied(16, bias=False, relu=False, reads_more=True), 2)
    assert Linear.op() in operations(network)
    assert not {NarrowLinear.op(), NarrowTake.op()} & operations(network)
