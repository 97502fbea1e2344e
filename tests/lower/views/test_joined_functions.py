"""Functions of elements that go before the concatenation of ranges, as in rotary embeddings; and
where the plan puts what they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import Tensor, nn

from golow.levels.direct.cudnn.passes import passes
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.lower.operators.binary import Binary
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.slice import Slice
from golow.lower.plan.memory_traffic import moves_only
from golow.lower.views.joined_functions import compute_before_joining
from golow.records.workload import Mode
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound, built
from support.examples import examples
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, assert_close, count, only, records

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

HEADS, WIDTH = 2, 8


def turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


class Rotary(nn.Module):
    """A linear layer's heads with a rotary embedding of their first elements, before a product."""

    def __init__(self, rotated: int = WIDTH) -> None:
        super().__init__()
        self.layer, self.rotated = nn.Linear(16, HEADS * WIDTH), rotated
        angles = torch.arange(5)[:, None] / 10 ** (torch.arange(rotated // 2) / rotated)
        self.register_buffer("angles", torch.cat((angles, angles), -1))

    def forward(self, x: Tensor) -> Tensor:
        heads = self.layer(x).view(x.shape[0], 5, HEADS, WIDTH).transpose(1, 2)
        first, rest = heads[..., : self.rotated], heads[..., self.rotated :]
        y = first * self.angles.cos() + turned(first) * self.angles.sin()
        y = torch.cat((y, rest), -1) if self.rotated < WIDTH else y
        return (y @ y.transpose(-1, -2)).flatten(1)


def of(module: nn.Module, mode: Mode = "infer") -> Case:
    torch.manual_seed(0)
    return Case(module, torch.randn(3, 5, 16), mode=mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("rotated", [WIDTH, 4])
def test_a_rotary_embedding_is_one_kernel(rotated: int, mode: Mode) -> None:
    case = of(Rotary(rotated), mode)
    graph = apply(case.graph, (*CLEAN_UP, *passes(case.workload)))
    assert_close(case.run(graph), case.run(case.graph), "rotary")
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)
    made, _ = built(Rotary(rotated), mode, "bf16", 3, 5, 16)
    assert_sound(made)
    steps = [s for s in made.plan.steps if not s.once and s.phase == "forward"]
    of_parts = [s for s in steps if s.operation == "fused" and len(s.writes) == 2]
    assert len(of_parts) == 1
    # A part that is not transposed is copied beside it.
    moved = [s.operation for s in steps if moves_only(s) and s.operation != "fetch"]
    assert moved.count("concatenate") + moved.count("copy") <= (rotated < WIDTH)


class Joined(nn.Module):
    """Parts of x in another order, and functions of all of them."""

    def __init__(self, sizes: tuple[int, ...], axis: int, twice: bool) -> None:
        super().__init__()
        self.sizes, self.axis, self.twice = sizes, axis, twice
        self.weight = nn.Parameter(torch.randn(16))

    def forward(self, x: Tensor) -> Tensor:
        parts = x.split(self.sizes, self.axis)
        y = torch.cat([part * (1 + index) for index, part in enumerate(reversed(parts))], self.axis)
        z = (y * self.weight + 1.5 * x).tanh()
        return z + y if self.twice else z.relu() * 2


@pytest.mark.slow
@examples(20)
@given(
    some.sampled_from([(16,), (8, 8), (4, 12), (2, 6, 8), (1, 2, 3, 4, 6)]),
    some.booleans(),
    some.sampled_from([1, 2]),
)
def test_functions_go_before_concatenations(sizes: tuple[int, ...], twice: bool, axis: int) -> None:
    module = Joined(sizes, axis, twice)
    torch.manual_seed(0)
    case = Case(module, torch.randn(3, 16, 16))
    graph = case.lowered("cudnn")
    assert_close(case.run(graph), case.run(case.graph), "joined")


def test_it_ends_with_the_last_function() -> None:
    case = of(Joined((4, 12), 2, twice=False))
    graph = compute_before_joining(case.lowered("cudnn"))
    assert graph.outputs[0].name in [v.name for v in only(graph, Concatenate).outputs if v]


class Convolved(nn.Module):
    """Parts that layers make: they stay as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(16, 8), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.one(x), self.other(x.tanh())), -1) * x


def test_what_layers_make_is_joined_first() -> None:
    case = of(Convolved())
    graph = compute_before_joining(case.lowered("cudnn"))
    assert count(graph, Slice) == 0


class Nested(nn.Module):
    """A concatenation of a concatenation, along one axis and along another one."""

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.cat((x[:, :2], x[:, 3:]), 1)
        one = torch.cat((inner, x[:, :1]), 1)
        return torch.cat((one, torch.cat((x, x), 2)[:, :, :16]), 1)


def test_what_is_joined_twice_is_joined_at_once() -> None:
    case = of(Nested())
    graph = compute_before_joining(case.lowered("cudnn"))
    assert_close(case.run(graph), case.run(case.graph), "nested")
    assert sorted(len(found.parts) for found in records(graph, Concatenate)) == [2, 4]
    assert count(graph, Binary) == 0
