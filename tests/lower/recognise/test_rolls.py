"""Rolls: where they are recognised, and their kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.direct.cudnn.operators.roll import Source, kernel_of
from golow.levels.direct.kernel_views import View
from golow.levels.direct.split_axes import Folded, Part
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.roll import Roll
from golow.lower.recognise.rolls import name_rolls
from golow.lower.to_vocabulary import CANONICAL
from golow.records.workload import Mode
from support.direct.cuda_host import run
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, lowered
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import torch_type
from support.examples import examples
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, count, records
from support.models.many_networks import Function

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from golow.levels.direct.cudnn.engines.engines import Engines


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


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_plans_compute_what_torch_does(mode: Mode) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 1), Function(lambda x: x.roll((1, 2), (2, 3)).sin()), nn.Flatten(),
        nn.Linear(8 * 20, 3),
    )  # fmt: skip
    graph = lowered(module, mode, (2, 3, 4, 5))
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


@pytest.mark.slow
@examples(40)
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
    read, written = source(dtype, shape, steps, start), View(dtype, rows)
    kernel = kernel_of(read, written, shape, starts)
    run(kernel, [each.view(torch.uint8).numpy() for each in (memory, result)])
    x = memory.as_strided(shape, steps, start)
    wanted = x.roll([-starts[axis] for axis in axes], list(axes)) if axes else x
    assert result.as_strided(shape, rows).equal(wanted)


def test_what_lies_far_away_takes_wide_indices() -> None:
    near = View("float32", (4, 1))
    for step, kind in ((4, "unsigned"), (2**31, "size_t")):
        read = source("float32", (3, 4), (step, 1))
        assert f"using Index = {kind};" in kernel_of(read, near, (3, 4), {0: 1}).code


def test_it_compiles_for_a_gpu() -> None:
    shape, steps = (8, 56, 56, 96), (56 * 56 * 96, 56 * 96, 96, 1)
    read, parts = source("bfloat16", shape, steps), Source("bfloat16", windows(torch.empty(0)).axes)
    written = View("bfloat16", steps)
    assert_compile([kernel_of(each, written, shape, {1: 3, 2: 3}) for each in (read, parts)])


def windows(memory: Tensor) -> Folded[Tensor]:
    """Heads of windows [512, 3, 49, 32] as images [8, 56, 56, 96]."""
    heads = Folded(
        memory, tuple((Part(*pair),) for pair in ((512, 4704), (3, 1568), (49, 32), (32, 1)))
    )
    joined = heads.permuted((0, 2, 1, 3)).reshaped((8, 8, 8, 7, 7, 96))
    assert joined is not None
    images = joined.permuted((0, 1, 3, 2, 4, 5)).reshaped((8, 56, 56, 96))
    assert images is not None
    return images


def test_windows_are_read_as_they_lie() -> None:
    """Heads and windows are put together in the same copy, in vectors of 16 bytes."""
    memory, result = torch.randn(512 * 4704).bfloat16(), torch.zeros(512 * 4704).bfloat16()
    shape = (8, 56, 56, 96)
    rows = (56 * 56 * 96, 56 * 96, 96, 1)
    kernel = kernel_of(
        Source("bfloat16", windows(memory).axes), View("bfloat16", rows), shape, {1: 53, 2: 53}
    )
    assert "#define WIDTH 8" in kernel.code
    run(kernel, [each.view(torch.uint8).numpy() for each in (memory, result)])
    heads = memory.view(8, 8, 8, 3, 7, 7, 32)
    images = heads.permute(0, 1, 4, 2, 5, 3, 6).reshape(shape)
    assert result.view(shape).equal(images.roll((3, 3), (1, 2)))


def source(dtype: str, shape: Sequence[int], steps: Sequence[int], start: int = 0) -> Source:
    parts = zip(shape, steps, strict=True)
    return Source(dtype, tuple((Part(size, step),) for size, step in parts), start)
