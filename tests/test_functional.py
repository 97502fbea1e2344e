"""In-place operations become functional where nothing else looks at the memory, and stay where
something does; copies and dead code go only where that changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.lower.functional import make_functional
from golow.lower.operators.activation import Activate
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.linear import Linear
from golow.lower.passes import CLEAN_UP, eliminate_dead_code
from golow.lower.vendor import CANONICAL
from lowering import Case, count, in_place, ops

PASSES = (*CANONICAL, eliminate_dead_code)


class After(nn.Module):
    """A convolution, and then a function of what it makes."""

    def __init__(self, function: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.function = function

    def forward(self, x: Tensor) -> object:
        return self.function(self.conv(x))


def case(function: Callable[[Tensor], object]) -> Case:
    return Case(After(function), torch.randn(2, 3, 6, 6))


def read_by_old_name(x: Tensor) -> Tensor:
    functional.relu_(x)
    return x + 1


def twice(x: Tensor) -> Tensor:
    y = x.relu_()
    x.mul_(2.0)
    return x + y


def view_of_the_new_value(x: Tensor) -> Tensor:
    x.relu_()
    return x.flatten(1) * 2


def view_that_dies_first(x: Tensor) -> Tensor:
    largest = x.flatten(1).amax(1)
    return x.relu_() + largest[:, None, None, None]


def change_of_a_view_alone(x: Tensor) -> Tensor:
    return x.flatten(1).relu_() + 1


def changed_through_a_part(x: Tensor) -> Tensor:
    x[:, 0].mul_(0.5)
    return x + 1


def changed_through_a_part_of_a_part(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    y[0][1:, ::2].add_(3.0)
    y[1, 2] = x[0, 3]
    return y, x + 1


def part_and_whole_read(x: Tensor) -> tuple[Tensor, Tensor]:
    part = x[:, 1:3]
    part.relu_()
    return part * 2, x + 1


def changed_one_part_after_the_other(x: Tensor) -> Tensor:
    for channel in range(4):
        x[:, channel] += channel
        x[:, channel, 1:] *= 2
    return x + 1


@pytest.mark.parametrize(
    "function",
    [read_by_old_name, twice, view_of_the_new_value, view_that_dies_first, change_of_a_view_alone,
     changed_through_a_part, changed_through_a_part_of_a_part, part_and_whole_read,
     changed_one_part_after_the_other],
)  # fmt: skip
def test_in_place_operations_become_functional(function: Callable[[Tensor], object]) -> None:
    given = case(function)
    assert in_place(given.graph)
    assert not in_place(given.after(*PASSES))


def old_value_is_viewed(x: Tensor) -> tuple[Tensor, Tensor]:
    rows = x.flatten(1)
    x.relu_()
    return rows, x + 1


def changed_through_a_view(x: Tensor) -> Tensor:
    x.flatten(1).mul_(2.0)
    return x + 1


def changed_beside_another_part(x: Tensor) -> tuple[Tensor, Tensor]:
    row = x[:, 0]
    x[:, :2].mul_(0.5)
    return row * 2, x + 1


def changed_view_and_source_read(x: Tensor) -> tuple[Tensor, Tensor]:
    rows = x.flatten(1).relu_()
    return x + 1, rows


def copy_changed_through_a_view(x: Tensor) -> tuple[Tensor, Tensor]:
    copy = x.clone()
    copy.view(-1).mul_(2.0)
    return x + 1, copy


@pytest.mark.parametrize(
    "function",
    [old_value_is_viewed, changed_through_a_view, changed_beside_another_part,
     changed_view_and_source_read, copy_changed_through_a_view],
)  # fmt: skip
def test_what_another_name_looks_at_is_changed_in_place(
    function: Callable[[Tensor], object],
) -> None:
    """Neither the clean-up nor the lowering loses the change: what stays the levels refuse."""
    given = case(function)
    assert len(in_place(given.after(*CLEAN_UP))) == 1
    assert len(in_place(given.after(*PASSES))) == 1
    assert len(in_place(given.after(*CLEAN_UP, *PASSES))) == 1


class Counter(nn.Module):
    """Changes a buffer in every iteration, in inference too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(1.0)
        return x * 2


def test_a_buffer_that_inference_changes_is_not_made_a_value() -> None:
    from golow.lower.capture import capture_inference

    graph = capture_inference("counter", Counter(), (torch.randn(2, 4),)).graph
    changed = in_place(graph) or [item.kind for item in graph.outputs if item.kind == "buffer"]
    assert changed  # one way or the other the capture shows it
    lowered = eliminate_dead_code(make_functional(graph))
    assert in_place(lowered) or any(item.kind == "buffer" for item in lowered.outputs)


def test_an_operation_whose_name_only_looks_in_place() -> None:
    """aten.__and__ ends like an in-place operation and is none."""
    given = case(lambda x: torch.where((x > 0) & (x < 1), x, 0.5))
    graph = given.after(*CLEAN_UP, make_functional)
    assert "aten.__and__.Tensor" in ops(graph)


def test_copies_go() -> None:
    given = case(lambda x: (x.clone() * 2).contiguous().detach() + x.clone())
    graph = given.after(*PASSES)
    assert count(given.graph, "aten.clone.default") == 2
    assert ops(graph) == [Convolution.op(), Binary.op(), Binary.op()]


def test_a_chain_of_copies_that_is_returned() -> None:
    graph = case(lambda x: x.clone().clone()).after(*PASSES)
    assert ops(graph) == [Convolution.op()]
    assert graph.outputs[0].name == graph.nodes[0].outputs[0].name


def test_a_copy_of_an_input_that_is_returned() -> None:
    class Copy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.clone()

    given = Case(Copy(), torch.randn(2, 3))
    assert not given.after(*PASSES).nodes


def test_dropout_in_place_is_nothing_in_inference() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5, inplace=True), nn.ReLU(inplace=True))
    graph = Case(module, torch.randn(2, 4)).after(*PASSES)
    assert ops(graph) == [Linear.op(), Activate.op()]
