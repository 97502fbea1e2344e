"""Activations that go from a layer to the functions of elements after it, at `cudnn`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.lower.operators.activation import Activate
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_graphs import lowered
from support.direct.cudnn_plans import AskedEngines
from support.direct.cudnn_plans import lowered as of_shape
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, count

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


class Layers(nn.Module):
    """Two layers side by side, and a function of their results."""

    def __init__(
        self, make: Callable[[], nn.Module], function: Callable[[Tensor, Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.one, self.other, self.function = make(), make(), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.one(x), self.other(x))


def linear() -> nn.Module:
    return nn.Linear(8, 8)


def convolution() -> nn.Module:
    return nn.Conv2d(8, 8, 3, padding=1)


def depthwise() -> nn.Module:
    return nn.Conv2d(8, 8, 3, padding=1, groups=8)


RELEASED = {
    "SwiGLU": (linear, lambda a, b: functional.silu(a) * b),
    "both": (linear, lambda a, b: functional.silu(a) * functional.gelu(b)),
    "of images": (convolution, lambda a, b: functional.silu(a) + b.sin()),
}
KEPT = {
    "a clip": (linear, lambda a, b: functional.relu(a) * b),
    "depthwise": (depthwise, lambda a, b: functional.silu(a) * b),
    "read by a layer": (linear, lambda a, b: functional.silu(a) @ b.t()),
    "read twice": (linear, lambda a, b: torch.addmm(b, *[functional.silu(a)] * 2)),
}


def given(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    make, function = (RELEASED | KEPT)[name]
    x = torch.randn(8, 8) if make is linear else torch.randn(2, 8, 6, 6)
    return Layers(make, function).eval(), x


@pytest.mark.parametrize("name", RELEASED)
def test_an_activation_joins_the_functions_after_it(name: str) -> None:
    module, x = given(name)
    assert count(Case(module, x).lowered("cudnn"), Activate) == (2 if name == "both" else 1)
    graph = of_shape(module, "infer", tuple(x.shape))
    engines = cast("Engines", AskedEngines())
    steps = Counter(s.operation for s in build_plan(graph, engines, TYPES["bf16"], 1).plan.steps)
    assert steps["fused"] == 1
    # Both layers of a gate read the same input, so linear ones are one product.
    assert steps["linear"] + steps["convolution"] == (1 if name in ("SwiGLU", "both") else 2)
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, engines, tensors)


@pytest.mark.parametrize("name", KEPT)
def test_others_stay_in_their_layer(name: str) -> None:
    module, x = given(name)
    assert not count(Case(module, x).lowered("cudnn"), Activate)


@pytest.mark.slow
def test_steps_of_llama() -> None:
    """SiLU and the product of SwiGLU are one step in each of six layers."""
    graph = lowered("llama_tiny", "infer", batch=2, sequence=64)
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES["bf16"], 4)
    steps = Counter((step.operation, step.modules[0]) for step in made.plan.steps)
    for layer in range(6):
        assert steps["linear", f"model.layers.{layer}.mlp.gate_proj"] == 1
    assert sum(n for (operation, _), n in steps.items() if operation == "linear") == 25
