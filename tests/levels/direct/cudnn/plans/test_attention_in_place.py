"""Attention between pixels at `cudnn`, and attention of channels: what their plans copy, and where
the results are."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from golow.levels.direct.cudnn.passes import passes
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound
from support.direct.libraries_on_cpu import KnownEngines, LibrariesMachine
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case
from support.models.pixel_attention import Pixels
from support.models.talking_heads import TalkingHeads

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

IMAGES, TOKENS = (2, 3, 4, 4), (2, 6, 16)
TOO_WIDE = 136  # channels of a head, for which no kernel of attention is asked


class Factored(nn.Module):
    """Attention with weights of each channel over all tokens, as in CoaT (Xu et al. 2021). classed:
    with a term for all tokens but the first."""

    def __init__(self, classed: bool = False) -> None:
        super().__init__()
        self.classed = classed
        self.heads, self.last = nn.Linear(16, 48), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.heads(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        found = query @ (key.softmax(2).mT @ value) + value
        if self.classed:
            found = found + pad(value[:, :, 1:] * query[:, :, 1:], (0, 0, 1, 0))
        return self.last(found.transpose(1, 2).flatten(2)).mean(1)


class Divided(nn.Module):
    """Depthwise convolutions of different sizes of an image's channels, beside a token of its
    class."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.layers = nn.ModuleList(
            nn.Conv2d(8, 8, size, padding=size // 2, groups=8) for size in (3, 5)
        )

    def forward(self, x: Tensor) -> Tensor:
        image = self.first(x)[:, 1:].mT.unflatten(2, (4, 4))
        parts = zip(self.layers, image.split(8, 1), strict=True)
        return torch.cat([layer(part) for layer, part in parts], 1).mean((2, 3))


NETWORKS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "attention": (Pixels(), IMAGES),
    "heads": (Pixels(heads=2), IMAGES),
    "products": (Pixels(TOO_WIDE), IMAGES),
    "factored": (Factored(), TOKENS),
    "classed": (Factored(classed=True), TOKENS),
    "divided": (Divided(), (2, 17, 16)),
    "talking": (TalkingHeads(), (2, 6, 32)),
}


@cache
def graph_of(name: str) -> Graph:
    module, shape = NETWORKS[name]
    case = Case(module, torch.randn(shape))
    return apply(
        case.after(*CLEAN_UP), passes(msgspec.structs.replace(case.workload, precision="bf16"))
    )


def planned(name: str) -> tuple[list[str], AskedEngines]:
    engines = AskedEngines()
    made = build_plan(graph_of(name), cast("Engines", engines), TYPES["bf16"], 1)
    assert_sound(made)
    return [step.operation for step in made.plan.steps], engines


@pytest.mark.parametrize("name", ["attention", "heads"])
def test_convolutions_and_attention_copy_nothing(name: str) -> None:
    """Attention is written where its results are joined, and the next head reads it there."""
    steps, _ = planned(name)
    heads = ["convolution", "attention", "fused", "convolution", "attention"]
    assert steps == ["fetch", "convolution", *heads, "convolution", "reduce"]


def test_products_of_wide_heads_copy_nothing() -> None:
    """They read channels that are aligned for tensor cores, though not as whole tensors are."""
    steps, engines = planned("products")
    assert not {"copy", "reshape"} & {*steps}
    products = [item for item in engines.operations if isinstance(item, Problem)]
    assert {item.alignment for item in products if item.batch > 1} == {16}


def test_softmax_over_tokens_is_read_where_it_is_computed() -> None:
    steps, _ = planned("factored")
    assert steps[:4] == ["fetch", "linear", "turn", "softmax"]
    assert "copy" not in steps
    assert steps.count("turn") == 1


def test_a_function_writes_rows_in_the_order_of_the_layer_that_reads_them() -> None:
    steps, _ = planned("factored")
    assert steps[-4:] == ["matrix_product", "fused", "linear", "reduce"]


def test_a_term_of_some_tokens_is_added_where_all_are_joined() -> None:
    steps, _ = planned("classed")
    assert "pad" not in steps
    assert steps[-4:] == ["fused", "concatenate", "linear", "reduce"]


def test_an_image_is_copied_once_for_all_convolutions_of_its_ranges() -> None:
    steps, _ = planned("divided")
    assert steps == ["fetch", "linear", "copy", "convolution", "convolution", "reduce"]


def test_heads_are_mixed_where_their_scores_are_stored() -> None:
    """Queries, keys and values are copied at once; nothing else is before the result."""
    steps, _ = planned("talking")
    products = ["matrix_product", "fused_softmax", "fused", "matrix_product"]
    assert steps == ["fetch", "linear", "copy", *products, "reshape", "linear", "reduce"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention", "products", "classed", "divided", "talking"])
def test_every_value_is_where_the_plan_says(name: str) -> None:
    torch.manual_seed(0)
    graph = graph_of(name)
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", KnownEngines()), tensors, LibrariesMachine)
