"""Plans of steps with a cache at `cudnn`, without a GPU: followed node by node, and where a cache
is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.cudnn.passes import INFERENCE
from golow.levels.direct.cudnn.planning import build_plan, require_runnable
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.steps.built_plan import Built
from golow.levels.direct.pass_order import ordered
from golow.lower.capture.capture import capture_step
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.operators.cache_update import CacheUpdate
from golow.lower.operators.cached_attention import CachedAttention
from golow.records.errors import Unsupported
from golow.records.workload import ModelSource, Precision, Workload
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound
from support.direct.libraries_on_cpu import KnownEngines, LibrariesMachine
from support.graphs.lowering import count
from support.models.cached_steps import CachedStep, Sizes

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

SIZES = Sizes(longest=80, width=8)


def lowered(
    step: nn.Module, *sample: Tensor, precision: Precision = "ieee"
) -> tuple[Graph, dict[str, Tensor]]:
    """The graph and its inputs, with what the module's buffers hold."""
    captured = capture_step("step", step, sample)
    workload = Workload(
        model="step", source=ModelSource(kind="pickle", name="step"), mode="infer", batch=2,
        inputs=(), precision=precision,
    )  # fmt: skip
    graph = captured.graph
    for change in (*CLEAN_UP, *ordered(INFERENCE, workload)):
        graph = change(graph)
    state = step.state_dict()
    values = {
        item.value.name: sample[int(item.target)]
        if item.kind == "input"
        else captured.constants[item.target]
        if item.kind == "constant"
        else state[item.target].clone()
        for item in graph.inputs
    }
    return graph, values


def step(**changed: Any) -> CachedStep:
    torch.manual_seed(0)
    made = CachedStep(SIZES._replace(**changed)).eval()
    for buffer in made.buffers():
        buffer.normal_()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("position", [0, 66])
def test_every_value_of_a_step_is_right(tokens: int, position: int) -> None:
    ids = torch.randint(31, (2, tokens))
    graph, values = lowered(step(), ids, torch.tensor(position))
    assert (count(graph, CacheUpdate), count(graph, CachedAttention)) == (4, 2)
    follow(graph, cast("Engines", KnownEngines()), values, LibrariesMachine)


def built(made: nn.Module, *sample: Tensor, precision: Precision = "ieee") -> Built:
    graph, _ = lowered(made, *sample, precision=precision)
    return build_plan(graph, cast("Engines", AskedEngines()), TYPES[precision], 1)


@pytest.mark.parametrize("precision", ["ieee", "tf32", "bf16"])
@pytest.mark.parametrize("tokens", [1, 16])
def test_no_cache_is_copied(tokens: int, precision: Precision) -> None:
    made = step()
    found = built(
        made, torch.zeros(2, tokens, dtype=torch.int64), torch.tensor(0), precision=precision
    )
    assert_sound(found)
    plan, cache = found.plan, made.get_buffer("layers.0.keys")
    state = [index for index, buffer in enumerate(plan.buffers) if buffer.place == "kept"]
    touching = [
        one
        for one in plan.steps
        if any(operand.buffer in state for operand in (*one.reads, *one.writes))
    ]
    kinds = [one.operation for one in touching if one.operation != "fetch"]
    assert kinds == 2 * ["cache_update", "cache_update", "cached_attention"]
    item = 2 if precision == "bf16" else 4
    updates = [one for one in touching if one.operation == "cache_update"]
    rows = cache.numel() // SIZES.longest * tokens
    assert [operand.bytes for one in updates for operand in one.writes] == 4 * [rows * item]
    held = sum(plan.buffers[index].bytes for index in state)
    assert 4 * cache.numel() * item <= held < 4 * cache.numel() * item + 100


class Compared(nn.Module):
    """Returns what a cache held before, beside what it holds now, after two updates."""

    kept: Tensor

    def __init__(self, late: bool) -> None:
        super().__init__()
        self.late = late
        self.register_buffer("kept", torch.zeros(2, 6, 4))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        before = self.kept.clone()
        first = before.sum(2) * 2
        self.kept.index_copy_(1, position + torch.arange(2), x)
        self.kept.index_copy_(1, position + torch.arange(1), x[:, 1:] * 3)
        return self.kept.sum(2) + (before.sum(2) * 2 if self.late else first)


@pytest.mark.parametrize("late", [True, False])
def test_old_content_that_is_read_later_is_kept(late: bool) -> None:
    made, x = Compared(late), torch.randn(2, 2, 4)
    made.kept.normal_()
    graph, values = lowered(made, x, torch.tensor(3))
    follow(graph, cast("Engines", AskedEngines()), values)


@pytest.mark.parametrize("count", [1, 3])
def test_texts_with_positions_of_their_own_are_refused(count: int) -> None:
    """The kernels would read the position of the first text for all."""
    sample = torch.zeros(2, count, dtype=torch.int64), torch.tensor([[4], [2]])
    graph, _ = lowered(step(width=32), *sample)
    with pytest.raises(Unsupported, match="at a position for each text"):
        require_runnable(graph)
