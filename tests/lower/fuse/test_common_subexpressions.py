"""Nodes that compute the same: one is left, and every result is the same bit for bit."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.lower.fuse.common_subexpressions import merge_equal_nodes
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph, Node
from golow.lower.ir.pass_runner import apply
from golow.lower.ir.verify import interpret, verify
from golow.lower.operators.dropout import Dropout
from golow.lower.operators.pointwise import Pointwise
from golow.lower.to_vocabulary import CANONICAL
from golow.records.workload import Mode
from support.examples import examples
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, count

FUNCTIONS = {
    "tanh": torch.tanh,
    "plus": lambda x: x + 1,
    "scaled": lambda x: x * 0.5,
    "turned": lambda x: x.mT,
    "row": lambda x: x.sum(-1, keepdim=True),
}

CHAINS = st.lists(st.sampled_from(sorted(FUNCTIONS)), max_size=3)


class Branches(nn.Module):
    """Each branch is a chain of functions of the input; many begin alike."""

    def __init__(self, chains: list[list[str]]) -> None:
        super().__init__()
        self.chains, self.scale = chains, nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        found = torch.zeros(())
        for chain in self.chains:
            made = x * self.scale
            for name in chain:
                made = FUNCTIONS[name](made)
            found = found + made.sin().sum(2)
        return found


def canonical(module: nn.Module, mode: Mode = "infer", shape: tuple[int, ...] = (3, 6, 6)) -> Graph:
    # Class 0: a chain may leave one column alone.
    targets = torch.zeros(shape[0], dtype=torch.int64) if mode == "train" else None
    case = Case(module, torch.randn(shape), mode=mode, targets=targets)
    return apply(apply(case.graph, CLEAN_UP), CANONICAL)


def work(node: Node) -> str:
    """What a node computes, as text."""
    return f"{node.op} {node.phase} {node.arguments} {sorted(node.keywords.items())}"


@pytest.mark.slow
@examples(20)
@example(chains=[["row", "turned"]], mode="train")
@given(
    chains=st.lists(CHAINS, min_size=1, max_size=4),
    mode=st.sampled_from(["infer", "train"]),
)
def test_nothing_is_computed_twice_and_all_is_the_same(chains: list[list[str]], mode: Mode) -> None:
    before = canonical(Branches(chains), mode)
    after = verify(merge_equal_nodes(before))
    returned = {item.name for item in after.outputs}
    inner = [n for n in after.nodes if not {v.name for v in n.outputs if v} & returned]
    often = Counter(map(work, inner))
    twice = [node.name for node in inner if often[work(node)] > 1]
    assert twice == []
    given = {item.value.name: drawn(item.value) for item in before.inputs}
    wanted, found = interpret(before, given), interpret(after, given)
    assert wanted.keys() == found.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0, equal_nan=True, msg=name)


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.function(x)  # type: ignore[operator]
        return found


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 0.0).reciprocal() + (x * -0.0).reciprocal(),
        lambda x: (x + 1).sin() + (x + 1.5).sin(),
        lambda x: x.sum(1) + x.mean(1),
    ],
    ids=["signs of zero", "numbers", "kinds of sums"],
)
def test_what_only_looks_alike_stays(function: object) -> None:
    before = canonical(Function(function))
    assert len(merge_equal_nodes(before).nodes) == len(before.nodes)


class Drops(nn.Module):
    """One layer of dropout, twice on the same tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.drop = nn.Parameter(torch.ones(6)), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        scaled = x * self.scale
        found: Tensor = (self.drop(scaled) + self.drop(scaled)).sum(2)
        return found


def test_random_numbers_are_drawn_for_each() -> None:
    before = canonical(Drops(), "train")
    assert count(before, Dropout) == count(merge_equal_nodes(before), Dropout) == 2


def test_equal_outputs_stay_two() -> None:
    after = merge_equal_nodes(canonical(Function(lambda x: (x.sin(), x.sin(), x.sin().cos()))))
    assert count(after, Pointwise) == 3
    assert len({item.name for item in after.outputs}) == 3


def test_the_backward_pass_computes_its_own() -> None:
    """A value of the forward pass would have to be kept until then."""
    network = Branches([["tanh"]])
    before = canonical(network, "train")
    after = merge_equal_nodes(before)
    for phase in ("forward", "backward"):
        made = {v.name for n in before.nodes if n.phase == phase for v in n.outputs if v}
        for node in after.nodes:
            kept = {v.name for v in node.outputs if v}
            assert node.phase == phase or not kept & made
