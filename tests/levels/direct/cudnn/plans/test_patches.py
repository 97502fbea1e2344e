"""Convolutions whose windows are adjacent, as products of patches at `cudnn`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.steps.built_plan import Built
from support.direct.cuda_on_cpu import Machine
from support.direct.cudnn_plans import AskedEngines, TimedEngines, lowered
from support.examples import examples

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


def timed(product: float) -> TimedEngines:
    """A convolution takes 100 us, a product so many, a pass over memory 3 and a launch."""
    return TimedEngines(
        lambda operation: 1e3 * (product if isinstance(operation, Problem) else 100)
    )


def planned(layer: nn.Module, engines: AskedEngines, side: int = 16) -> Built:
    graph = lowered(nn.Sequential(layer), "infer", (2, 3, side, side))
    return build_plan(graph, cast("Engines", engines), TYPES["ieee"], 4)


def operations(made: Built) -> list[str]:
    return [step.operation for step in made.plan.steps if step.operation != "fetch"]


@pytest.mark.parametrize(
    ("layer", "taken"),
    [
        (nn.Conv2d(3, 8, 8, stride=8), True),
        (nn.Conv2d(3, 8, 16, stride=16, bias=False), True),
        (nn.Conv2d(3, 8, 4, stride=4), False),  # small windows: only timing tells
        (nn.Conv2d(3, 8, 8, stride=4), False),  # they overlap
        (nn.Conv2d(3, 8, 8, stride=8, padding=4), False),
        (nn.Conv2d(3, 9, 8, stride=8, groups=3), False),
    ],
)
def test_large_windows_side_by_side_are_a_product(layer: nn.Module, taken: bool) -> None:
    engines = AskedEngines()
    made = planned(layer, engines)
    assert ("reshape" in operations(made)) == taken
    # An engine for the convolution is asked for in any case.
    assert any(isinstance(item, Problem) for item in engines.operations) == taken


def test_an_image_that_is_not_covered_is_no_product() -> None:
    assert "reshape" not in operations(planned(nn.Conv2d(3, 8, 8, stride=8), AskedEngines(), 20))


@pytest.mark.parametrize(("window", "taken"), [(8, True), (4, False)])
def test_the_gradient_of_the_weight_is_a_product(window: int, taken: bool) -> None:
    """That of a bias stays a sum, and that of an image, which windows share, a convolution."""
    layers = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, window, stride=window), nn.Flatten()
    graph = lowered(nn.Sequential(*layers), "train", (2, 3, 16, 16))
    engines = AskedEngines()
    made = build_plan(graph, cast("Engines", engines), TYPES["ieee"], 4)
    assert operations(made).count("reshape") == 1 + 2 * taken  # one flattens
    asked = [item for item in engines.operations if isinstance(item, Problem)]
    pixels = (16 // window) ** 2 * 2
    wanted = {(pixels, 8, 8 * window**2, False), (8, 8 * window**2, pixels, True)}
    assert {(p.m, p.n, p.k, p.transpose_a) for p in asked} == (wanted if taken else set())


@pytest.mark.parametrize(("product", "taken"), [(94.0, True), (96.0, False)])
def test_the_faster_one_is_taken(product: float, taken: bool) -> None:
    made = planned(nn.Conv2d(3, 8, 4, stride=4), timed(product))
    assert ("reshape" in operations(made)) == taken


@examples(20)
@given(
    kernel=st.sampled_from([(8, 8), (16, 4), (2, 32)]), down=st.integers(1, 3),
    across=st.integers(1, 2), channels=st.integers(1, 5), seed=st.integers(0, 9),
)  # fmt: skip
def test_patches_times_the_weight_is_the_convolution(
    kernel: tuple[int, int], down: int, across: int, channels: int, seed: int
) -> None:
    torch.manual_seed(seed)
    layer = nn.Conv2d(channels, 4, kernel, stride=kernel, bias=False)
    x = torch.randn(2, channels, down * kernel[0], across * kernel[1])
    graph = lowered(nn.Sequential(layer), "infer", tuple(x.shape))
    machine = Machine(build_plan(graph, cast("Engines", AskedEngines()), TYPES["ieee"], 1))
    built = machine.built
    machine.write(built.inputs["input", "0"], x.numpy())
    product = next(k for k, s in enumerate(built.plan.steps) if s.operation == "convolution")
    for call in built.calls[:product]:
        assert machine.call(call)
    read = built.calls[product].arguments[0]
    assert read is not None
    rows = torch.from_numpy(machine.read(read)).flatten(0, 2).flatten(1)
    padded = rows.shape[1] // (kernel[0] * kernel[1])  # channels in memory
    weight = functional.pad(layer.weight, (0, 0, 0, 0, 0, padded - channels))
    found = rows @ weight.permute(0, 2, 3, 1).flatten(1).T
    wanted = functional.conv2d(x, layer.weight, stride=kernel)
    found = found.unflatten(0, (2, down, across)).permute(0, 3, 1, 2)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
