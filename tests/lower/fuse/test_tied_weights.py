"""Gradients of embeddings that are added to the other gradient of a shared weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.steps.built_plan import Built
from golow.lower.analysis.liveness import gradient_places
from golow.lower.ir.graph import Graph, GraphOutput
from golow.lower.operators.take import AddRows, TakeBackward
from golow.records.workload import Precision
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, count, records

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


class Shared(nn.Module):
    """An embedding whose weight is also that of a linear layer, or of what ``after`` makes of the
    embedding and the weight."""

    def __init__(
        self, after: Callable[[Tensor, Tensor], Tensor], padding: int | None = None
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8, padding_idx=padding)
        self.after = after

    def forward(self, tokens: Tensor) -> Tensor:
        return self.after(self.table(tokens), self.table.weight)


def head(x: Tensor, weight: Tensor) -> Tensor:
    return x.tanh() @ weight.t()


# Other uses of the weight beside the embedding, and how many sums of rows there are.
USES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], int]] = {
    "a head": (head, 1),
    "a head in the other order": (lambda x, w: (w @ x.tanh().t()).t(), 1),
    "two heads": (lambda x, w: head(x, w) + head(x.sin(), w), 1),
    "another embedding": (lambda x, w: head(x + w[:6].relu(), w), 1),
    "a second embedding": (
        lambda x, w: head(x + nn.functional.embedding(torch.arange(6), w), w), 2,
    ),
    "the same embedding again": (
        lambda x, w: (x + nn.functional.embedding(torch.arange(6), w))[:, :5], 1,
    ),
    "elements": (lambda x, w: x[:, :5] * w[:6, :5].exp(), 1),
    "nothing": (lambda x, w: x[:, :5].tanh(), 0),
}  # fmt: skip
TOKENS = torch.tensor([3, 0, 3, 10, 3, 7])


def step(name: str, padding: int | None = None) -> Graph:
    """A training step; every stage of the passes computes the same, as `Case` checks."""
    torch.manual_seed(0)
    case = Case(Shared(USES[name][0], padding), TOKENS, mode="train")
    return case.lowered("cudnn")


@pytest.mark.parametrize("name", USES)
def test_rows_are_added_to_the_other_gradient(name: str) -> None:
    graph = step(name)
    assert count(graph, AddRows) == USES[name][1]
    again = name == "the same embedding again"
    assert count(graph, TakeBackward) == (again or name == "nothing")


def test_padding_gets_nothing() -> None:
    (found,) = records(step("a head", padding=3), AddRows)
    assert found.skipped == 3


@pytest.mark.parametrize("name", USES)
def test_every_value_is_where_its_plan_says(name: str) -> None:
    graph = step(name)
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


def planned(name: str, precision: Precision) -> Built:
    made = build_plan(step(name), cast("Engines", AskedEngines()), TYPES[precision], 1)
    assert_sound(made)
    return made


@pytest.mark.parametrize("precision", ["default", "bf16", "fp16"])
def test_a_tied_weight_has_one_gradient_in_memory(precision: Precision) -> None:
    """The product writes it where the update reads it, and the rows are added there."""
    made = planned("a head", precision)
    buffer = made.outputs["gradient", "table.weight"].buffer
    whole = [
        (step.operation, operand.buffer == buffer)
        for step in made.plan.steps
        for operand in step.writes
        if operand.shape == (11, 8)
    ]
    assert whole == [("matrix_product", True), ("add_rows", True)]
    assert not [step for step in made.plan.steps if step.operation in ("zero", "copy")]


@pytest.mark.parametrize("precision", ["default", "bf16", "fp16"])
def test_the_gradient_of_an_embedding_alone_is_made_in_place(precision: Precision) -> None:
    made = planned("nothing", precision)
    buffer = made.outputs["gradient", "table.weight"].buffer
    written = Counter(
        step.operation
        for step in made.plan.steps
        if buffer in {operand.buffer for operand in step.writes}
    )
    assert written == {"take_backward": 1}, "a few tokens take one step"
    assert not [step for step in made.plan.steps if step.operation == "copy"]


def test_a_gradient_that_is_read_later_is_not_overwritten() -> None:
    """What rows are added to is an output, too: then it has its own memory."""
    graph = step("a head")
    (found,) = records(graph, AddRows)
    outputs = (*graph.outputs, GraphOutput(name=found.x.name, kind="output", target="9"))
    kept = msgspec.structs.replace(graph, outputs=outputs)
    assert len(gradient_places(kept)) == len(gradient_places(graph)) - 1
    tensors = {item.value.name: drawn(item.value) for item in kept.inputs}
    follow(kept, cast("Engines", AskedEngines()), tensors)
