"""Rotary embeddings that turn neighbours are one kernel, as GPT-J's; what only looks so stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.slice import Slice
from golow.lower.to_vocabulary import CANONICAL
from golow.lower.views.interleaving import split_interleaved
from golow.lower.views.joined_functions import compute_before_joining
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound, lowered
from support.examples import examples
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, records

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

LOWERED = (*CANONICAL, eliminate_dead_code)
LENGTH, WIDTH = 5, 8


def turned(x: Tensor) -> Tensor:
    """(-x1, x0, -x3, x2, ...)"""
    return torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)


class Rotary(nn.Module):
    """function: of heads [B, L, 3, WIDTH], and of two tables [L, 1, WIDTH]."""

    def __init__(self, function: Callable[[Tensor, Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(6, 3 * WIDTH), function
        angles = torch.arange(LENGTH)[:, None] * torch.rand(WIDTH // 2)
        angles = angles.repeat_interleave(2, 1)[:, None]
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, x: Tensor) -> Any:
        heads = self.layer(x).view(len(x), LENGTH, 3, WIDTH)
        return self.function(heads, self.cosine, self.sine)


def case_of(function: Callable[[Tensor, Tensor, Tensor], Any]) -> Case:
    torch.manual_seed(0)
    return Case(Rotary(function), torch.randn(2, LENGTH, 6))


def whole(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    return x * cosine + turned(x) * sine


def with_rest(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """As GPT-J, which turns the first elements of a head."""
    first = whole(x[..., :4], cosine[..., :4], sine[..., :4])
    return torch.cat((first, x[..., 4:]), dim=-1)


def with_prefix(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """As EVA-02, whose first token has no place."""
    heads = x.transpose(1, 2)
    tables = (table[1:, 0] for table in (cosine, sine))
    return torch.cat((heads[:, :, :1], whole(heads[:, :, 1:], *tables)), dim=2)


def in_pairs(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """As SAM 3, which takes neighbours out of an axis for pairs."""
    first, second = x.view(*x.shape[:-1], -1, 2).unbind(-1)
    return x * cosine + torch.stack((-second, first), dim=-1).flatten(-2) * sine


KINDS = {
    "whole": whole, "with rest": with_rest, "with prefix": with_prefix, "in pairs": in_pairs,
}  # fmt: skip


def planned(function: Callable[[Tensor, Tensor, Tensor], Any]) -> Counter[str]:
    """Steps of the plan in bf16, without what reads and multiplies the input."""
    graph = lowered(Rotary(function), "infer", (2, LENGTH, 6))
    built = build_plan(graph, cast("Engines", AskedEngines()), TYPES["bf16"], 1)
    assert_sound(built)
    steps = Counter(step.operation for step in built.plan.steps if not step.once)
    return Counter({name: n for name, n in steps.items() if name not in ("fetch", "linear")})


@pytest.mark.parametrize(
    ("kind", "steps"),
    [("whole", {"fused": 1}), ("in pairs", {"fused": 1}),
     ("with rest", {"fused": 1, "concatenate": 1}),
     ("with prefix", {"fused": 1, "concatenate": 1})],
)  # fmt: skip
def test_it_is_one_kernel(kind: str, steps: dict[str, int]) -> None:
    """What is joined with it is copied there, and nothing else."""
    assert planned(KINDS[kind]) == steps


@pytest.mark.parametrize("kind", [*KINDS])
def test_it_means_the_same(kind: str) -> None:
    graph = case_of(KINDS[kind]).after(*LOWERED, split_interleaved, compute_before_joining)
    assert all(cut.step == 1 for cut in records(graph, Slice))


@pytest.mark.parametrize("kind", [*KINDS])
def test_every_value_is_where_the_plan_says(kind: str) -> None:
    graph = case_of(KINDS[kind]).after(*LOWERED, split_interleaved, compute_before_joining)
    follow(graph, cast("Engines", AskedEngines()), tensors_of(graph))


def tensors_of(graph: Graph) -> dict[str, Tensor]:
    return {item.value.name: drawn(item.value) for item in graph.inputs}


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        lambda x, c, s: turned(x) * s + turned(x * 2) * c,
        lambda x, c, s: turned(x) * c.mean().exp() + x * s.sum().sin() * 2,
        lambda x, c, s: (turned(x) * s).relu() + x * c[..., :1].exp(),
    ],
    ids=["two", "numbers of weights", "one for all elements"],
)
def test_what_stands_beside_it_stays_right(
    function: Callable[[Tensor, Tensor, Tensor], Any],
) -> None:
    graph = case_of(function).after(*LOWERED, split_interleaved, compute_before_joining)
    follow(graph, cast("Engines", AskedEngines()), tensors_of(graph))


@pytest.mark.slow
@given(
    st.sampled_from([2, 4]),
    st.permutations(range(4)),
    st.sampled_from(["add", "scale", "relu", "twice"]),
    st.booleans(),
)
@examples(12)
def test_any_parts_and_functions(k: int, order: list[int], after: str, negated: bool) -> None:
    """k parts in any order, and functions that follow."""

    def function(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        parts = [x[..., place::k] for place in order if place < k]
        parts[0] = -parts[0] if negated else parts[0]
        joined = torch.stack(parts, -1).flatten(-2)
        functions: dict[str, Callable[[], Tensor]] = {
            "add": lambda: joined + x * cosine,
            "scale": lambda: 2.5 * joined,
            "relu": lambda: joined.relu() * sine,
            "twice": lambda: (joined + x) * (x * 3 + cosine),
        }
        return functions[after]()

    graph = case_of(function).after(*LOWERED, split_interleaved, compute_before_joining)
    assert all(cut.step == 1 for cut in records(graph, Slice))
    follow(graph, cast("Engines", AskedEngines()), tensors_of(graph))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, c, s: torch.stack((x[..., 1::2], x[..., 0::2]), -1).flatten(-2),
        lambda x, c, s: torch.stack((x[..., 1:5], x[..., 0:4]), -1).flatten(-2) * c,
        lambda x, c, s: torch.stack((x[..., 1::2].sum(-2), x[..., 0, 0::2]), -1).flatten(-2) + 1,
    ],
)
def test_what_is_something_else_stays(function: Callable[[Tensor, Tensor, Tensor], Any]) -> None:
    """Nothing is computed after the join, or the parts are not every second element."""
    before = case_of(function).after(*LOWERED)
    assert len(records(split_interleaved(before), Concatenate)) == 1
    assert split_interleaved(before) is before
