"""Attention that a network writes in its parts becomes one operator, with what it adds to its
scores and hides of them; what only looks like attention stays as it is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.direct.cudnn.passes import passes
from golow.lower.fuse.products import scale_products
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.lower.operators.attention import Attention
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.softmax import Softmax
from golow.lower.recognise.attention_fusion import name_attention
from golow.lower.recognise.whole_attention import CUDNN, HIDDEN, Kernels
from golow.models.windows import WindowAttention
from golow.records.workload import Precision
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines
from support.examples import examples
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, assert_close, count
from support.models.written_attention import ANY, HEADS, HIDING, LENGTH, WIDTH, Other, Written

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


def of(module: nn.Module, x: Tensor | None = None) -> Case:
    torch.manual_seed(0)
    return Case(module, torch.randn(3, LENGTH, HEADS * WIDTH) if x is None else x)


def named(case: Case, kernels: Kernels = ANY) -> Graph:
    return case.after(*passes(case.workload), scale_products, name_attention(kernels))


def assert_named(case: Case, times: int = 1) -> Graph:
    """As one operator each, which means the same."""
    graph = named(case)
    assert count(graph, Attention) == times
    assert count(graph, Softmax) == count(graph, MatrixProduct) == 0
    assert_close(case.run(graph), case.run(case.graph), "named")
    return graph


@pytest.mark.parametrize("flat", [False, True], ids=["four axes", "flat"])
@pytest.mark.parametrize("scale", ["query", "key", "scores", "none"])
def test_attention_is_named(scale: str, flat: bool) -> None:
    assert_named(of(Written(scale, flat=flat)))


@pytest.mark.parametrize("hidden", ["past", "keys", "both", "kept"])
def test_hidden_scores_are_added(hidden: str) -> None:
    assert_named(of(Written(hidden=hidden)))


@pytest.mark.parametrize("flat", [False, True], ids=["four axes", "flat"])
@pytest.mark.parametrize("added", ["distances", "images", "both"])
def test_added_numbers_are_added(added: str, flat: bool) -> None:
    assert_named(of(Written(added=added, flat=flat)))


@pytest.mark.slow
@given(
    st.sampled_from(["", "past", "keys", "both", "kept"]),
    st.sampled_from(["", "distances", "images", "both"]),
    st.sampled_from(["query", "key", "scores", "none"]),
    st.booleans(),
)
@examples(12)
def test_any_of_it_together(hidden: str, added: str, scale: str, flat: bool) -> None:
    assert_named(of(Written(scale, hidden, added, flat)))


@pytest.mark.slow
@pytest.mark.parametrize("shifted", [False, True])
def test_windows_have_their_own_masks(shifted: bool) -> None:
    """Swin's attention adds a bias for each head, and for each window of an image a mask."""
    module = WindowAttention(16, heads=2, size=14, shift=3 if shifted else 0)
    assert_named(of(module, torch.randn(2, 14, 14, 16)))


@pytest.mark.parametrize(
    "kind",
    ["wide", "narrow", "a little", "scores too", "weights too", "columns", "logarithm",
     "multiplied", "second"],
)  # fmt: skip
def test_what_is_no_such_attention_stays(kind: str) -> None:
    case = of(Other(kind), torch.randn(2, 6, 16))
    graph = named(case)
    assert count(graph, Attention) == 0
    assert count(graph, MatrixProduct) == 2
    assert_close(case.run(graph), case.run(case.graph), "left")


@pytest.mark.slow
def test_masks_have_any_number_of_keys() -> None:
    for length in (7, 8):
        case = of(Masked(), torch.randn(2, length, HEADS * WIDTH))
        assert count(named(case, CUDNN), Attention) == count(named(case), Attention) == 1


@pytest.mark.parametrize("kernels", [ANY, CUDNN], ids=["float32", "16 bits"])
@pytest.mark.parametrize("kind", [*HIDING][1:])
def test_large_numbers_hide_scores(kind: str, kernels: Kernels) -> None:
    """A row of them alone has equal weights. In 16 bits no mask says so: it is added in float32."""
    case = of(Other(kind), torch.randn(2, 6, 16))
    graph = named(case, kernels)
    assert [attention.exact for attention in attentions(graph)] == [kernels.rounds]
    assert_close(case.run(graph), case.run(case.graph), "named")


@pytest.mark.parametrize(("added", "exact"), [("", False), ("distances", True)])
def test_numbers_are_not_rounded_to_16_bits(added: str, exact: bool) -> None:
    """Eager adds them to scores in float32; a mask is exact in 16 bits."""
    case = of(Written(hidden="past", added=added))
    assert [attention.exact for attention in attentions(named(case, CUDNN))] == [exact]
    assert [attention.exact for attention in attentions(named(case))] == [False]


def attentions(graph: Graph) -> list[Attention]:
    return [found for node in graph.nodes if (found := Attention.of(node)) is not None]


class Masked(nn.Module):
    """Causal attention of any length."""

    def forward(self, x: Tensor) -> Tensor:
        images, length, _ = x.shape
        heads = x.view(images, length, HEADS, WIDTH).transpose(1, 2)
        mask = torch.ones(length, length).triu(1).bool()
        scores = (heads @ heads.transpose(-2, -1)).masked_fill(mask, -math.inf)
        return (scores.softmax(-1) @ heads).mean((1, 2))


def test_a_hidden_score_has_no_weight() -> None:
    """Whatever its size is, up to ten thousand times what attention's scores are."""
    assert math.exp(HIDDEN + 1e4) == 0


@pytest.mark.parametrize("kernels", [ANY, CUDNN], ids=["float32", "16 bits"])
@pytest.mark.parametrize("kind", ["plain", "past", "windows"])
def test_every_value_is_where_the_plan_says(kind: str, kernels: Kernels) -> None:
    if kind == "windows":
        case = of(WindowAttention(16, heads=2, size=14, shift=3), torch.randn(2, 14, 14, 16))
    else:
        case = of(Written(hidden="past" if kind == "past" else ""))
    graph = named(case, kernels)
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


@pytest.mark.parametrize(
    ("precision", "found"), [("tf32", 1), ("bf16", 1), ("fp16", 1), ("default", 0), ("ieee", 0)]
)
def test_the_level_names_it_where_it_has_kernels(precision: Precision, found: int) -> None:
    case = of(Written(hidden="past"))
    workload = msgspec.structs.replace(case.workload, precision=precision)
    assert count(apply(case.graph, passes(workload)), Attention) == found
