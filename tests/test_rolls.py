"""Rolls: where they are recognised, and their kernel."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cuda_host import run
from cuda_on_cpu import follow
from golow.levels.vendor.cudnn.operators.roll import kernel_of
from golow.levels.vendor.views import View
from golow.lower.graph import Graph
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.roll import Roll
from golow.lower.passes import eliminate_dead_code
from golow.lower.rolls import name_rolls
from golow.lower.vendor import CANONICAL
from golow.record import Mode
from kernel_compilation import assert_compile
from kernel_launches import torch_type
from lowering import Case, count, records
from many_networks import Function
from test_cudnn_fused import drawn
from test_cudnn_plans import AskedEngines, lowered

if TYPE_CHECKING:
    from collections.abc import Callable

    from golow.levels.vendor.cudnn.engines import Engines

FOLDER = Path(tempfile.mkdtemp(prefix="golow-rolls-"))


def named(function: Callable[[Tensor], Tensor], *shape: int) -> Graph:
    """The graph after the pass; it means what it meant before."""
    return Case(Function(function), torch.randn(shape)).after(
        *CANONICAL, name_rolls, eliminate_dead_code
    )


def test_two_axes_are_one_roll() -> None:
    graph = named(lambda x: x.roll((-2, 1), (1, 2)) + 1, 2, 5, 6, 3)
    [roll] = records(graph, Roll)
    assert (roll.axes, roll.starts) == ((1, 2), (2, 5))
    assert count(graph, Concatenate) == 0


def test_one_axis_twice_is_two_rolls() -> None:
    graph = named(lambda x: x.roll(1, 1).roll(2, 1) + 1, 2, 5)
    assert [roll.starts for roll in records(graph, Roll)] == [(4,), (3,)]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.cat((x[:, 2:], x[:, :1]), 1) + 1,  # an element is missing
        lambda x: torch.cat((x[:, 2:], x[:, :2]), 0) + 1,
        lambda x: torch.cat((x[:, 2:], x[:, :2] * 2), 1) + 1,
        lambda x: torch.cat((x[:, 2:], x[:, 1:3]), 1) + 1,
    ],
)
def test_what_is_no_roll(function: Callable[[Tensor], Tensor]) -> None:
    assert count(named(function, 4, 4), Roll) == 0


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_plans_compute_what_torch_does(mode: Mode) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 1), Function(lambda x: x.roll((1, 2), (2, 3)).sin()), nn.Flatten(),
        nn.Linear(8 * 20, 3),
    )  # fmt: skip
    graph = lowered(module, mode, (2, 3, 4, 5))
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors, FOLDER)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_kernel_is_roll_of_torch(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(5,), (3, 8), (2, 3, 16), (2, 4, 3, 8)]))
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    axes = {axis for axis in axes if shape[axis] > 1}
    starts = {axis: data.draw(st.integers(1, shape[axis] - 1)) for axis in axes}
    dtype = data.draw(st.sampled_from(["float32", "bfloat16", "int64", "bool"]))
    order, start = data.draw(st.permutations(range(len(shape)))), data.draw(st.integers(0, 9))
    steps = [0] * len(shape)
    for position, axis in enumerate(order):
        steps[axis] = int(np.prod([shape[after] for after in order[position + 1 :]]))
    memory = (10 * torch.randn(10 + int(np.prod(shape)))).to(torch_type(dtype))
    result = torch.zeros_like(memory)
    rows = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    read, written = View(dtype, tuple(steps), start), View(dtype, rows)
    kernel = kernel_of(read, written, shape, starts)
    run(kernel, [each.view(torch.uint8).numpy() for each in (memory, result)], FOLDER)
    x = memory.as_strided(shape, steps, start)
    wanted = x.roll([-starts[axis] for axis in axes], list(axes)) if axes else x
    assert result.as_strided(shape, rows).equal(wanted)


def test_what_lies_far_away_takes_wide_indices() -> None:
    near, far = View("float32", (4, 1)), View("float32", (2**31, 1))
    for read, kind in ((near, "unsigned"), (far, "size_t")):
        assert f"using Index = {kind};" in kernel_of(read, near, (3, 4), {0: 1}).code


def test_it_compiles_for_a_gpu() -> None:
    view = View("bfloat16", (56 * 56 * 96, 56 * 96, 96, 1))
    assert_compile([kernel_of(view, view, (8, 56, 56, 96), {1: 3, 2: 3})])
