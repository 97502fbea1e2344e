"""Attention that a network writes itself, in training at `cudnn` in half precision: what its plan
copies between products, softmax, dropout and convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.cudnn.operators.softmax import forward_kernel
from golow.levels.direct.cudnn.planning import arranged, build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.lower.operators.fused_softmax import FusedSoftmax
from golow.lower.plan.memory_traffic import moves_only
from golow.lower.plan.plan import Plan
from support.direct.cuda_host import run
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound, lowered
from support.direct.kernel_launches import ROUNDING, torch_type
from support.direct.libraries_on_cpu import KnownEngines, LibrariesMachine
from support.graphs.drawn_values import drawn

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

SHAPE = 2, 16, 8  # samples, channels, tokens


class Heads(nn.Module):
    """Two heads of 8 channels between convolutions of lines, as SqueezeBERT's. masked: with a bias
    before softmax; dropped: with dropout after it."""

    def __init__(self, masked: bool, dropped: bool) -> None:
        super().__init__()
        self.query, self.key, self.value, self.last = (nn.Conv1d(16, 16, 1) for _ in range(4))
        self.bias = nn.Parameter(torch.randn(8, 8)) if masked else None
        self.dropout = nn.Dropout(0.2 if dropped else 0.0)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            layer(x).view(2, 2, 8, 8) for layer in (self.query, self.key, self.value)
        )
        scores = query.mT @ key
        scores = scores if self.bias is None else scores + self.bias
        y = self.dropout(scores.softmax(-1)) @ value.mT
        return self.last(y.mT.reshape(SHAPE)).mean(2)


kinds = pytest.mark.parametrize(
    ("masked", "dropped"), [(False, False), (True, False), (True, True), (False, True)]
)


def plan_of(masked: bool, dropped: bool) -> Plan:
    graph = lowered(Heads(masked, dropped), "train", SHAPE)
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES["bf16"], 1)
    assert_sound(made)
    return made.plan


@kinds
def test_weights_of_attention_are_stored_as_products_read_them(masked: bool, dropped: bool) -> None:
    plan = plan_of(masked, dropped)
    copies = [step for step in plan.steps if step.operation == "copy" and step.phase != "update"]
    names = {plan.buffers[operand.buffer].name for step in copies for operand in step.reads}
    assert not [name for name in names if "softmax" in name or "dropout" in name]


def test_a_view_is_copied_once_for_a_convolution() -> None:
    """Not row-major first, and then as an image."""
    plan = plan_of(masked=True, dropped=False)
    moves = [step for step in plan.steps if moves_only(step)]
    copied = {operand.buffer for step in moves for operand in step.writes}
    assert copied
    again = [step for step in moves if copied & {operand.buffer for operand in step.reads}]
    assert not again


@kinds
def test_every_value_is_where_the_plan_says(masked: bool, dropped: bool) -> None:
    graph = lowered(Heads(masked, dropped), "train", SHAPE)
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", KnownEngines()), tensors, LibrariesMachine)


def test_dropout_between_softmax_and_a_product_rounds_like_it() -> None:
    graph = arranged(lowered(Heads(masked=True, dropped=True), "train", SHAPE))
    [softmax] = [found for node in graph.nodes if (found := FusedSoftmax.of(node)) is not None]
    assert softmax.rounded


@pytest.mark.parametrize("columns", [7, 5000])
@pytest.mark.parametrize("source", ["float32", "bfloat16"])
def test_softmax_in_the_type_of_products(source: str, columns: int) -> None:
    torch.manual_seed(0)
    x = (3 * torch.randn(5, columns)).to(torch_type(source))
    y = torch.full((5, columns), torch.nan).to(torch.bfloat16)
    kernel = forward_kernel(source, 5, columns, False, "bfloat16")
    run(kernel, [tensor.view(-1).view(torch.uint8).numpy() for tensor in (x, y)])
    wanted = x.double().softmax(-1)
    torch.testing.assert_close(y.double(), wanted, rtol=ROUNDING["bfloat16"] * 1.01, atol=1e-9)
