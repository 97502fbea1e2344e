"""Attention with dropout in training: one operator where a level has a kernel, PyTorch's calls
elsewhere, and where its plan puts the values."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.cudnn.passes import passes
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.shared_kernels.dropout import CONTROL
from golow.levels.direct.cudnn.steps.built_plan import Built, Cell
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.lower.operators.attention import Attention, AttentionBackward
from golow.lower.operators.dropout import Dropout
from golow.lower.recognise.plain_calls import to_plain_calls
from golow.records.workload import Precision
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound
from support.direct.libraries_on_cpu import KnownEngines, LibrariesMachine
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, count, ops, record

CHANCE = 0.25


class Heads(nn.Module):
    """Four heads with dropout, of x [B, L, 16], in [B, 16]. mask: padding, as transformers mark it.
    shared: two heads of keys for all, which has no call of its own."""

    def __init__(self, mask: bool = False, causal: bool = False, shared: bool = False) -> None:
        super().__init__()
        self.mask, self.causal, self.shared = mask, causal, shared
        self.inner = nn.Linear(16, 96)

    def forward(self, x: Tensor) -> Tensor:
        images, length, _ = x.shape
        heads = self.inner(x).view(images, length, 12, 8).transpose(1, 2)
        query, key, value = heads.chunk(3, 1)
        mask = None
        if self.mask:
            shown = length - 2 * torch.arange(images)
            mask = (torch.arange(length) < shown[:, None]).view(images, 1, 1, length)
        if self.shared:
            key, value = key[:, :2], value[:, :2]
        found = functional.scaled_dot_product_attention(
            query, key, value, mask, CHANCE if self.training else 0.0, self.causal,
            enable_gqa=self.shared,
        )  # fmt: skip
        return found.transpose(1, 2).flatten(2).mean(1)


def case_of(module: nn.Module) -> Case:
    torch.manual_seed(0)
    return Case(module, torch.randn(2, 8, 16), mode="train")


def lowered(module: nn.Module, precision: Precision = "tf32") -> Graph:
    case = case_of(module)
    workload = msgspec.structs.replace(case.workload, precision=precision)
    return apply(apply(case.graph, CLEAN_UP), passes(workload))


forms = pytest.mark.parametrize(
    "module", [Heads(), Heads(mask=True), Heads(causal=True)], ids=["plain", "mask", "causal"]
)


@forms
@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_it_is_one_operator_each_way(module: nn.Module, precision: Precision) -> None:
    graph = lowered(module, precision)
    assert (count(graph, Attention), count(graph, AttentionBackward)) == (1, 1)
    assert record(graph, Attention).probability == CHANCE
    assert count(graph, Dropout) == 1


@forms
def test_elsewhere_it_is_products_softmax_and_dropout(module: nn.Module) -> None:
    case = case_of(module)
    assert "golow_called.dropped_attention.default" in ops(case.graph)
    plain = ops(to_plain_calls(case.graph))
    assert not any(op.startswith("golow_called") for op in plain)
    assert plain.count("aten.native_dropout.default") == 1
    exact = lowered(module, "ieee")
    assert (count(exact, Attention), count(exact, Dropout)) == (0, 1)
    assert count(case.lowered("onednn"), Attention) == 0


def test_shared_heads_are_pytorchs_own_calls() -> None:
    assert not any(op.startswith("golow_called") for op in ops(case_of(Heads(shared=True)).graph))


class Drawing(LibrariesMachine):
    """A machine whose dropout has its probability."""

    def __init__(self, built: Built) -> None:
        super().__init__(built)
        control = torch.from_numpy(self.seen(built.cells[Cell("dropout", CHANCE)])).numpy()
        control[: CONTROL.itemsize].view(CONTROL)[0] = (1, 2, CHANCE)


@pytest.mark.slow
@forms
def test_every_value_is_where_its_plan_says(module: nn.Module) -> None:
    graph = lowered(module)
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Any", KnownEngines()), tensors, Drawing)


@forms
def test_the_plan_draws_a_mask_and_stores_no_weights(module: nn.Module) -> None:
    graph = lowered(module, "bf16")
    made = build_plan(graph, cast("Any", AskedEngines()), TYPES["bf16"], 1)
    assert_sound(made)
    steps = [step for step in made.plan.steps if not step.once]
    operations = [step.operation for step in steps]
    assert (operations.count("attention"), operations.count("attention_backward")) == (1, 1)
    drawing = next(step for step in steps if step.operation == "dropout")
    assert drawing.implementation.startswith("dropout_mask")
    assert "fused_softmax" not in operations and "dropout_backward" not in operations
