"""Reductions over a few elements are functions of them at `cudnn`, in one kernel with others."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.lower.fuse.short_reductions import FEW
from golow.lower.operators.reduce import Reduce
from golow.records.workload import Mode
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, built
from support.graphs.lowering import Case, assert_close, count, run

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

REDUCTIONS = {
    "amax": lambda x, axis, keep: x.amax(axis, keep),
    "amin": lambda x, axis, keep: x.amin(axis, keep),
    "prod": lambda x, axis, keep: x.prod(axis, keep),
    "count": lambda x, axis, keep: (x > 0).sum(axis, keep).float(),
}


class Reduced(nn.Module):
    """A reduction of an axis that is no axis of the input, between functions of elements."""

    def __init__(self, name: str, sizes: tuple[int, ...], axis: int, keep: bool) -> None:
        super().__init__()
        self.name, self.sizes, self.axis, self.keep = name, sizes, axis, keep
        self.first = nn.Linear(4, sizes[-1])

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).view(x.shape[0], *self.sizes).transpose(1, 2)
        return (REDUCTIONS[self.name](x, self.axis, self.keep) * 2 + 1).flatten(1)


def case_of(module: Reduced, mode: Mode) -> Case:
    torch.manual_seed(0)
    return Case(module, torch.randn(3, *module.sizes[:-1], 4), mode=mode)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from([*REDUCTIONS]),
    sizes=st.tuples(*[st.integers(2, FEW + 1)] * 3),
    axis=st.integers(-3, -1),
    keep=st.booleans(),
    mode=st.sampled_from(["infer", "train"]),
)
def test_the_numbers_stay(
    name: str, sizes: tuple[int, ...], axis: int, keep: bool, mode: Mode
) -> None:
    trains = mode if name in ("amax", "amin") else "infer"
    case = case_of(Reduced(name, sizes, axis, keep), trains)
    graph = case.lowered("cudnn")
    assert_close(case.run(graph), case.run(case.graph), "a short reduction")
    if trains == "infer":
        length = (sizes[1], sizes[0], sizes[2])[axis]
        assert count(graph, Reduce) == (length > FEW)


@pytest.mark.parametrize("special", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_stays(special: float) -> None:
    """NaN is the largest and the smallest."""
    case = case_of(Reduced("amax", (2, 3, 4), -1, False), "infer")
    graph = case.lowered("cudnn")
    inputs = case.values["input", "0"].clone()
    inputs[0, 1, 2, 3] = special
    found, expected = (
        run(stage, {**case.values, ("input", "0"): inputs}) for stage in (graph, case.graph)
    )
    torch.testing.assert_close(found, expected, equal_nan=True)


class Queries(nn.Module):
    """A window's queries, pooled by their maximum, as those of Hiera."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(32, 32), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.first(x).view(len(x), 4, -1, 32).amax(1)
        return self.last(pooled).mean(1)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_pooled_queries_are_one_pass_over_memory(mode: Mode) -> None:
    made, _ = built(Queries(), mode, "bf16", 2, 64, 32)
    forward = [s for s in made.plan.steps if not s.once and s.phase == "forward"]
    (pooled,) = [s for s in forward if [r.buffer for r in s.reads] == 4 * [s.reads[0].buffer]]
    assert sum(operand.bytes for operand in pooled.reads) == 2 * 2 * 64 * 32
    assert "reduce" not in {s.operation for s in forward[: forward.index(pooled) + 2]}
    assert "turn" not in {s.operation for s in made.plan.steps}


@pytest.mark.slow
def test_the_kernel_is_right() -> None:
    case = case_of(Reduced("amax", (4, 5, 8), 2, False), "infer")
    graph = case.lowered("cudnn")
    values = {i.value.name: case.values[i.kind, i.target] for i in graph.inputs
              if (i.kind, i.target) in case.values}  # fmt: skip
    follow(graph, cast("Engines", AskedEngines()), values)
