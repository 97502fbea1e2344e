"""In-place operations become functional, also through views of views, and stay where a view is
unknown or state is changed; copies and dead code go only where that changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.cudnn import level as cudnn
from golow.levels.direct.onednn import level as onednn
from golow.lower.aten.functional import make_functional
from golow.lower.ir.clean_up import CLEAN_UP, eliminate_dead_code
from golow.lower.operators.activation import Activate
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.linear import Linear
from golow.lower.to_vocabulary import CANONICAL
from support.examples import examples
from support.graphs.drawn_writes import VIEWS, Step, Writes
from support.graphs.lowering import Case, applied, count, in_place, ops

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


def changed_through_every_kind_of_view(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone().flatten(2)
    y.transpose(0, 1)[2:].mul_(0.5)
    y.permute(2, 0, 1)[3].add_(1)
    y.diagonal(0, 1, 2).fill_(1.0)
    y.narrow(2, 1, 3).copy_(x.flatten(2)[..., :3])
    y.as_strided((2, 3), (5, 2), 1).neg_()
    y.t_() if y.dim() == 2 else y.unsqueeze_(0)
    return y, x + 1


def changed_by_operators_of_python(x: Tensor) -> Tensor:
    mask = x > 0
    mask[0] &= x[0] < 1
    mask[1] |= x[1] > 2
    total = torch.empty_like(x)
    torch.add(x.detach(), 1.5, out=total[:, :])
    return torch.where(mask, total, 0.5)


def changed_in_its_own_type(x: Tensor) -> Tensor:
    count = (x > 0).int()
    count[0].mul_(3).gt_(1)
    half = x.half()
    half[1] += x[1] * 0.1
    return half.float() + count


def a_copy_is_changed_and_not_its_source(x: Tensor) -> Tensor:
    x.transpose(2, 3).reshape(-1)[0] = 9.0
    x.flatten()[1] = 7.0
    return x + 1


@pytest.mark.parametrize(
    "function",
    [read_by_old_name, twice, view_of_the_new_value, view_that_dies_first, change_of_a_view_alone,
     changed_through_a_part, changed_through_a_part_of_a_part, part_and_whole_read,
     changed_one_part_after_the_other, old_value_is_viewed, changed_through_a_view,
     changed_beside_another_part, changed_view_and_source_read, copy_changed_through_a_view,
     changed_through_every_kind_of_view, changed_by_operators_of_python, changed_in_its_own_type,
     a_copy_is_changed_and_not_its_source],
)  # fmt: skip
def test_in_place_operations_become_functional(function: Callable[[Tensor], object]) -> None:
    known = case(function)
    assert in_place(known.graph)
    assert not in_place(known.after(*PASSES))


SMALL = st.integers(0, 12)
STEPS = st.lists(st.tuples(SMALL, st.integers(0, 2 * len(VIEWS)), SMALL, SMALL), min_size=3)


@pytest.mark.slow
@examples(12)
@given(STEPS)
def test_drawn_writes_into_views_of_views_are_followed(steps: list[Step]) -> None:
    """Every stage gives what the captured graph gives, whose in-place operations are eager's."""
    drawn = Case(Writes(steps[:8]), torch.randn(3, 4, 5))
    assert not in_place(drawn.after(*CLEAN_UP, *PASSES))


class Bits(nn.Module):
    """Clears the last bits of numbers, which no operation on numbers says."""

    def forward(self, x: Tensor) -> Tensor:
        y = x * 1.5
        y.view(torch.int16)[:, ::2].bitwise_and_(-256)
        y[0].mul_(2)
        return y + 1


def test_what_is_changed_through_an_unknown_view_stays() -> None:
    """Neither the clean-up nor the lowering loses the change: what stays the levels refuse."""
    known = Case(Bits(), torch.randn(2, 3))
    for passes in (CLEAN_UP, PASSES, (*CLEAN_UP, *PASSES)):
        assert len(in_place(applied(known.graph, passes))) == 2


class Counter(nn.Module):
    """Changes a buffer in every iteration, in inference too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(1.0)
        return x * 2


def test_a_buffer_that_inference_changes_is_not_made_a_value() -> None:
    from golow.lower.capture.capture import capture_inference

    graph = capture_inference("counter", Counter(), (torch.randn(2, 4),)).graph
    changed = in_place(graph) or [item.kind for item in graph.outputs if item.kind == "buffer"]
    assert changed  # one way or the other the capture shows it
    lowered = eliminate_dead_code(make_functional(graph))
    assert in_place(lowered) or any(item.kind == "buffer" for item in lowered.outputs)


class Cache(nn.Module):
    """Writes into a part of a buffer, which its output does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(2, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.kept[1] = x.mean(0)
        return x * 2


@pytest.mark.parametrize(("module", "name"), [(Counter, "seen"), (Cache, "kept")])
def test_a_changed_buffer_is_refused_by_its_name(module: type[nn.Module], name: str) -> None:
    known = Case(module(), torch.randn(2, 4))
    for level in (onednn, cudnn):
        reasons = [str(reason) for reason in level.refusals(known.graph, known.workload)]
        assert any(f"changes the buffer {name} in each iteration" in r for r in reasons), reasons


def test_an_operation_whose_name_only_looks_in_place() -> None:
    """aten.__and__ ends like an in-place operation and is none."""
    known = case(lambda x: torch.where((x > 0) & (x < 1), x, 0.5))
    graph = known.after(*CLEAN_UP, make_functional)
    assert "aten.__and__.Tensor" in ops(graph)


def test_copies_go() -> None:
    known = case(lambda x: (x.clone() * 2).contiguous().detach() + x.clone())
    graph = known.after(*PASSES)
    assert count(known.graph, "aten.clone.default") == 2
    assert ops(graph) == [Convolution.op(), Binary.op(), Binary.op()]


def test_a_chain_of_copies_that_is_returned() -> None:
    graph = case(lambda x: x.clone().clone()).after(*PASSES)
    assert ops(graph) == [Convolution.op()]
    assert graph.outputs[0].name == graph.nodes[0].outputs[0].name


def test_a_copy_of_an_input_that_is_returned() -> None:
    class Copy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.clone()

    known = Case(Copy(), torch.randn(2, 3))
    assert not known.after(*PASSES).nodes


def test_dropout_in_place_is_nothing_in_inference() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5, inplace=True), nn.ReLU(inplace=True))
    graph = Case(module, torch.randn(2, 4)).after(*PASSES)
    assert ops(graph) == [Linear.op(), Activate.op()]
