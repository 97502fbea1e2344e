"""What unfolds into simpler calls: each definition means what ATen computes, what changes memory or
has no definition stays, and an operation that the vocabulary has stays whole."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from golow.lower.aten.canonical import canonicalise
from golow.lower.aten.decomposition import decompose
from golow.lower.aten.functional import make_functional
from golow.lower.decompositions import own_definitions
from golow.lower.decompositions.experts import grouped_product, grouped_product_backward
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.verify import interpret, operation, verify
from support.graphs.lowering import Case, applied, ops
from support.graphs.one_call import Call, tensor
from support.models.many_networks import Function

X, Y = tensor(2, 3, 4, 5), tensor(2, 3, 4, 5, seed=1)
POSITIONS = torch.tensor([2, 0, 1])
FALSE = torch.zeros(4, 5, dtype=torch.bool)

CALLS: dict[str, tuple[Any, ...]] = {
    "a factor": ("aten.add.Tensor", X, Y, {"alpha": 2}),
    "a factor of a difference": ("aten.sub.Tensor", X, Y, {"alpha": 0.5}),
    "a product and a sum": ("aten.addmm.default", tensor(5), tensor(3, 6), tensor(6, 5)),
    "half of it": (
        "aten.addmm.default", tensor(5), tensor(3, 6), tensor(6, 5), {"beta": 0.5, "alpha": 2}
    ),
    "batches of it": ("aten.baddbmm.default", tensor(3, 2), tensor(4, 3, 6), tensor(4, 6, 2)),
    "bounds": ("aten.clamp.default", X, -0.5, 0.25),
    "one bound": ("aten.clamp.default", X, None, 0.25),
    "bounds of tensors": ("aten.clamp.Tensor", X, Y, Y + 1),
    "variance": ("aten.var.correction", X, [1, 3], {"correction": 0, "keepdim": True}),
    "variance of all": ("aten.var.correction", X, None),
    "variance and mean": ("aten.var_mean.correction", X, [-1]),
    "variance of one": ("aten.var.correction", tensor(1), [0]),
    "norm": ("aten.linalg_vector_norm.default", X, 2, [1]),
    "rms norm": ("aten.rms_norm.default", X, [4, 5], tensor(4, 5), 1e-3),
    "group norm": (
        "aten.native_group_norm.default", X, tensor(3), tensor(3, seed=1), 2, 3, 20, 3, 1e-5
    ),
    "group norm without weights": (
        "aten.native_group_norm.default", tensor(2, 4, 5), None, None, 2, 4, 5, 2, 1e-5
    ),
    "any": ("aten.any.dim", FALSE.logical_or(torch.eye(4, 5).bool()), 1),
    "none": ("aten.any.default", FALSE),
    "all": ("aten.all.dims", ~FALSE, [0, 1]),
    "truths counted": ("aten.sum.default", X > 0),
    "a sum of another type": ("aten.sum.dim_IntList", X.float(), [1], {"dtype": torch.float64}),
    "softmax of another type": ("aten.softmax.int", X.float(), 1, torch.float64),
    "a part": ("aten.select.int", X, 2, -1),
    "a part's gradient": ("aten.slice_backward.default", X, [2, 3, 9, 5], 2, 3, 7, 1),
    "every second's gradient": ("aten.slice_backward.default", X, [2, 3, 9, 5], 2, 1, 9, 2),
    "the even ones' gradient": ("aten.slice_backward.default", X, [2, 3, 7, 5], 2, 0, 7, 2),
    "a few thirds' gradient": ("aten.slice_backward.default", X, [2, 3, 17, 5], 2, 5, 16, 3),
    "one's gradient": ("aten.select_backward.default", tensor(3, 5), [3, 4, 5], 1, -1),
    "a part replaced": ("aten.slice_scatter.default", X, tensor(2, 3, 2, 5), 2, 1, 3),
    "nothing replaced": ("aten.slice_scatter.default", X, tensor(0, 3, 4, 5), 0, -2, 0),
    "the whole replaced": ("aten.slice_scatter.default", X, tensor(2, 3, 4, 5), 0, -9, 9),
    "repeated": ("aten.repeat.default", tensor(2, 3), [2, 1, 3]),
    "rolled": ("aten.roll.default", X, [1, -2], [2, 3]),
    "rolled by more than there is": ("aten.roll.default", X, [7], [1]),
    "rolled as one": ("aten.roll.default", X, [7]),
    "largest": ("aten.max.dim", X, 1),
    "smallest": ("aten.min.dim", X, -1, True),
    "the first of them": ("aten.topk.default", X, 2, 2),
    "the last of them": ("aten.topk.default", X, 3, -1, False),
    "place among all": ("aten.argmax.default", X),
    "rows added": ("aten.index_add.default", X, 1, POSITIONS, Y),
    "rows added with a factor": ("aten.index_add.default", X, -3, POSITIONS, Y, {"alpha": 2}),
    "copied": ("aten.copy.default", X, tensor(4, 5)),
    "circular": ("aten.pad.default", X, [1, 2, 3, 0], "circular"),
    "reflected": ("aten.pad.default", X, [1, 2, 3, 0], "reflect"),
    "replicated": ("aten.pad.default", X, [1, 2, 3, 0], "replicate"),
    "replicated, backward": (
        "aten.replication_pad2d_backward.default", tensor(2, 3, 7, 8), X, [1, 2, 3, 0]
    ),
    "in order": ("aten.as_strided.default", X, [2, 3, 20, 1], [60, 20, 1, 7]),
    "strided": ("aten.as_strided.default", X, [4, 5], [7, 2], 3),
    "strided, replaced": ("aten.as_strided_scatter.default", X, tensor(4, 5), [4, 5], [20, 2], 3),
    "all replaced": ("aten.as_strided_scatter.default", X, tensor(2, 60), [2, 60], [60, 1], 0),
    "attention": (
        "aten.scaled_dot_product_attention.default", tensor(2, 3, 4, 8), tensor(2, 3, 6, 8),
        tensor(2, 3, 6, 8, seed=1),
    ),
    "a hidden row": (
        "aten.scaled_dot_product_attention.default", X, X, X,
        torch.tensor([True, False, True, False]).reshape(4, 1).expand(4, 4),
    ),
    "signals": (
        "aten.convolution.default", tensor(2, 4, 9), tensor(6, 2, 3), tensor(6), [2], [1], [2],
        False, [0], 2,
    ),
    "transposed": (
        "aten.convolution.default", X, tensor(3, 4, 3, 2), tensor(4), [2, 1], [1, 0], [1, 2],
        True, [1, 0], 1,
    ),
    "volumes": (
        "aten.convolution.default", tensor(2, 2, 4, 5, 6), tensor(4, 2, 3, 2, 2), tensor(4),
        [1, 2, 1], [1, 0, 1], [1, 1, 2], False, [0, 0, 0], 1,
    ),
    "bilinear": ("aten.upsample_bilinear2d.vec", X, None, False, [2.0, 1.5]),
    "bilinear between corners": ("aten.upsample_bilinear2d.vec", X, [7, 3], True, None),
    "bicubic": ("aten.upsample_bicubic2d.vec", X, [7, 9], False, None),
    "nearest": ("aten.upsample_nearest2d.vec", X, [3, 11], None),
    "nearest exact": ("aten._upsample_nearest_exact2d.vec", X, [3, 11], None),
    "linear of signals": ("aten.upsample_linear1d.vec", tensor(2, 3, 5), [8], False, None),
    "transposed volumes": (
        "aten.convolution.default", tensor(2, 4, 3, 4, 5), tensor(4, 3, 2, 3, 2), tensor(6),
        [2, 1, 1], [1, 0, 1], [1, 2, 1], True, [1, 0, 0], 2,
    ),
    "transposed volumes, backward": (
        "aten.convolution_backward.default", tensor(2, 3, 4, 6, 6), tensor(2, 4, 3, 4, 5),
        tensor(4, 3, 2, 3, 2, seed=1), [3], [1, 1, 1], [0, 0, 0], [1, 1, 1], True, [0, 0, 0], 1,
        [True, True, True],
    ),
    "smooth": ("aten._upsample_bilinear2d_aa.default", tensor(1, 2, 7, 9), [3, 4], False),
    "smooth by cubes": ("aten._upsample_bicubic2d_aa.default", tensor(1, 2, 7, 9), [3, 12], True),
    "smooth, backward": (
        "aten._upsample_bicubic2d_aa_backward.default", tensor(1, 2, 3, 12), [3, 12], [1, 2, 7, 9],
        False,
    ),
    "largest of volumes and places": (
        "aten.max_pool3d_with_indices.default", tensor(2, 2, 5, 6, 7).round(), [3, 2, 3], [2, 1, 3],
        [1, 0, 1], [1, 2, 1], True,
    ),
    "largest in windows of any size": (
        "aten.adaptive_max_pool2d.default", tensor(2, 2, 5, 7).round(), [3, 5]
    ),
    "largest in windows that are drawn": (
        "aten.fractional_max_pool2d.default", tensor(2, 3, 7, 9), [2, 3], [4, 5],
        tensor(2, 3, 2).abs() % 1,
    ),
    "largest in volumes that are drawn": (
        "aten.fractional_max_pool3d.default", tensor(2, 3, 5, 7, 8), [2, 2, 3], [3, 1, 4],
        tensor(2, 3, 3).abs() % 1,
    ),
    "means of volumes of any size": (
        "aten._adaptive_avg_pool3d.default", tensor(1, 2, 5, 6, 7), [3, 4, 9]
    ),
    "means of volumes, uneven": (
        "aten.avg_pool3d.default", tensor(1, 2, 5, 6, 8), [2, 3, 3], [2], [1], True, False
    ),
    "means of volumes with a divisor": (
        "aten.avg_pool3d.default", tensor(1, 2, 5, 6, 7), [2, 3, 2], [2], [1, 1, 0], True, True, 5
    ),
    "running products": ("aten.cumprod.default", X, -2),
    "running maxima": ("aten.cummax.default", torch.cat([X.round(), X[:1] * math.nan, X]), 0),
    "running minima": ("aten.cummin.default", X.round(), 2),
    "running logarithms": (
        "aten.logcumsumexp.default", torch.cat([X[..., :2] * 0 - math.inf, X * 30], -1), -1
    ),
    "random slopes at their mean": ("aten.rrelu.default", X * 3, 0.1, 0.4),
    "inverse error function": ("aten.erfinv.default", torch.linspace(-1, 1, 41).double()),
    "complementary error function": ("aten.erfc.default", torch.linspace(-3, 9, 41).double()),
    "arc sine": ("aten.asin.default", torch.linspace(-1.1, 1.1, 23).double()),
    "arc cosine": ("aten.acos.default", torch.linspace(-1, 1, 21).double()),
    "asinh": ("aten.asinh.default", torch.tensor([-1e30, -3.0, -1e-9, 0.0, 2.0, 1e12]).double()),
    "acosh": ("aten.acosh.default", torch.tensor([0.5, 1.0, 1.0001, 3.0, 1e30]).double()),
    "atanh": ("aten.atanh.default", torch.tensor([-1.0, -0.9, 1e-9, 0.5, 1.0]).double()),
    "hypotenuse": (
        "aten.hypot.default", torch.tensor([0.0, 3.0, 1e200, math.inf]).double(),
        torch.tensor([0.0, -4.0, 1e200, 1.0]).double(),
    ),
    "sign of another": (
        "aten.copysign.Tensor", tensor(4), torch.tensor([0.0, -0.0, 2.0, -math.inf]).double()
    ),
    "towards zero": (
        "aten.div.Tensor_mode", torch.tensor([-7, 7, -7, 7]), torch.tensor([2, 2, -2, -2]),
        {"rounding_mode": "trunc"},
    ),
    "towards zero by a number": (
        "aten.div.Scalar_mode", torch.tensor([-7, 7, 0]), -2, {"rounding_mode": "trunc"}
    ),
    "to decimals": ("aten.round.decimals", X * 100, {"decimals": -1}),
    "relu of whole numbers": ("aten.relu.default", (X * 3).long()),
    "distances": ("aten._cdist_forward.default", tensor(2, 4, 3), tensor(2, 5, 3), 2.0, None),
    "distances, other norms": ("aten._cdist_forward.default", X, tensor(2, 3, 2, 5), 1.5, None),
    "distances of pairs": ("aten._pdist_forward.default", tensor(5, 3), 1.0),
    "places in a triangle": ("aten.tril_indices.default", 4, 5, -1),
    "places above": ("aten.triu_indices.default", 5, 3, -2),
    "by a mask": ("aten.index_put.default", X, [X > 0], tensor(1)),
    "rows by a mask": (
        "aten.index_put.default", tensor(3, 4), [torch.tensor([True, False, True])], tensor(4), True
    ),
    "in order of a mask": ("aten.masked_scatter.default", X, Y > 0, tensor(130)),
    "a diagonal": ("aten.diagonal.default", X, -1, 3, 1),
    "a diagonal replaced": ("aten.diagonal_scatter.default", X, tensor(2, 3, 4), 1, 2, 3),
    "windows of an axis": ("aten.unfold.default", X, 2, 3, 1),
    "windows of an axis, backward": (
        "aten.unfold_backward.default", tensor(2, 3, 2, 5, 3), [2, 3, 4, 5], 2, 3, 1
    ),
    "written in memory": ("aten.put.default", X, torch.tensor([0, 7, 7]), tensor(3), True),
    "second smallest": ("aten.kthvalue.default", X, 2, 1, True),
    "histogram": (
        "aten.histc.default", torch.tensor([0.0, 3.0, 1.0, 3.0, -1.0, 4.0, 2.0]), 4, 0, 3
    ),
    "a wide histogram": ("aten.histc.default", X.float(), 7, -0.5, 1.5),
    "middle": ("aten.median.dim", torch.cat([X, X[:1] * math.nan]), 0),
    "middle of all": ("aten.median.default", X),
    "places in order": ("aten.searchsorted.Tensor", torch.tensor([0.0, 1.0]).double(), X),
    "sums by index": (
        "aten.scatter_reduce.two", tensor(3, 4), 0, torch.tensor([[0, 2, 0, 0], [0, 2, 1, 0]]),
        tensor(2, 4), "sum", {"include_self": False},
    ),
    "means by index": (
        "aten.scatter_reduce.two", tensor(3, 4), 0, torch.tensor([[0, 2, 0], [0, 2, 1]]),
        tensor(2, 4), "mean",
    ),
    "maxima by index": (
        "aten.scatter_reduce.two", tensor(3, 4), 1, torch.tensor([[0, 2, 0], [0, 2, 1], [1, 1, 1]]),
        tensor(4, 5, seed=1), "amax",
    ),
    "minima by index": (
        "aten.scatter_reduce.two", tensor(3, 4), 0, torch.tensor([[0, 2, 0, 1], [0, 2, 1, 1]]),
        torch.cat([tensor(1, 4), tensor(1, 4) * math.nan]), "amin", {"include_self": False},
    ),
    "truths by index": ("aten.scatter.value", FALSE, 1, torch.tensor([[1], [3]]), True),
    "multiple margins": (
        "aten.multilabel_margin_loss_forward.default", tensor(3, 5),
        torch.tensor([[1, 2, -1, 3, 0], [0, 4, -1, -1, -1], [-1, 2, 2, 2, 2]]), 1,
    ),
    "unweighted bags": (
        "aten._embedding_bag.default", tensor(6, 3), torch.tensor([1, 5, 2, 2, 0]),
        torch.tensor([0, 2, 2]), False, 1, False, None, False, 2,
    ),
    "sampled by reflection": (
        "aten.grid_sampler_2d.default", tensor(2, 3, 4, 5), tensor(2, 3, 6, 2), 0, 2, False
    ),
    "sampled, backward": (
        "aten.grid_sampler_2d_backward.default", tensor(2, 3, 3, 6), tensor(2, 3, 4, 5),
        tensor(2, 3, 6, 2), 0, 0, True, [True, True],
    ),
    "sampled in a volume": (
        "aten.grid_sampler_3d.default", tensor(1, 2, 3, 4, 5), tensor(1, 3, 2, 2, 3), 0, 1, True
    ),
    "losses with weights": (
        "aten.nll_loss_forward.default", tensor(5, 4), torch.tensor([0, 3, 1, 2, 1]),
        tensor(4).abs(), 1, 1,
    ),
    "mean pooling of volumes": ("aten.avg_pool3d.default", tensor(2, 2, 5, 6, 7), [2, 3, 2], [2]),
    "max pooling of volumes": ("aten.max_pool3d.default", tensor(2, 2, 5, 6, 7), [2], [1], [1]),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_definition_means_what_aten_computes(name: str) -> None:
    op, *position = CALLS[name]
    keywords = position.pop() if isinstance(position[-1], dict) else {}
    made = Call(op, position, keywords)
    graph = verify(decompose(verify(made.graph)))
    assert all(item.op.startswith("golow.") for item in canonicalise(graph).nodes), ops(graph)
    found = interpret(graph, made.given)
    torch.testing.assert_close(found, made.wanted, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_names_of_aten_exist() -> None:
    """Those of other libraries exist when these are imported."""
    for op in own_definitions():
        assert operation(op) is not None if op.startswith("aten.") else "." in op


def test_each_row_is_multiplied_by_its_experts_weight() -> None:
    """Of three experts the second has no rows, and the last row is nobody's."""
    rows, weight, ends = tensor(6, 4), tensor(3, 4, 5), torch.tensor([2, 2, 5])
    parts = [rows[:2] @ weight[0], rows[2:5] @ weight[2], tensor(1, 5) * 0]
    torch.testing.assert_close(grouped_product(rows, weight, ends), torch.cat(parts))
    gradient = tensor(6, 5)
    found = grouped_product_backward(rows, weight, ends, gradient)
    _, wanted = torch.func.vjp(lambda x, w: grouped_product(x, w, ends), rows, weight)
    torch.testing.assert_close(found, wanted(gradient))


def test_what_has_no_definition_stays() -> None:
    made = Call("aten.lgamma.default", [X], {})
    assert ops(decompose(made.graph)) == ["aten.lgamma.default"]


def test_what_the_vocabulary_has_stays_whole() -> None:
    module = nn.Sequential(nn.Linear(5, 5), nn.GELU(), nn.LayerNorm(5), nn.Softmax(-1))
    graph = Case(module, torch.randn(3, 5)).after(*CLEAN_UP, make_functional, decompose)
    assert ops(graph) == [
        "aten.linear.default", "aten.gelu.default", "aten.native_layer_norm.default",
        "aten.softmax.int",
    ]  # fmt: skip


def test_what_changes_memory_that_others_see_stays() -> None:
    """Unfolded by itself it would be a new value, and the others would not see it."""

    def changes_a_view(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.view(torch.int32).masked_fill_(y > 0, 1)
        return y

    case = Case(nn.Sequential(nn.Linear(5, 5), Function(changes_a_view)), torch.randn(3, 5))
    graph = applied(case.graph, (*CLEAN_UP, make_functional, decompose))
    assert "aten.masked_fill_.Scalar" in ops(graph)


def test_a_tensor_that_changes_its_own_shape_stays() -> None:
    """Other readers of its name would see the old shape."""
    made = Call("aten.transpose_.default", [tensor(2, 3), 0, 1], {})
    assert ops(decompose(made.graph)) == ["aten.transpose_.default"]


def test_values_keep_their_layer_and_phase() -> None:
    module = nn.Sequential(nn.Linear(6, 6), nn.Softplus(), nn.Linear(6, 2))
    graph = Case(module, torch.randn(3, 6), mode="train").after(
        *CLEAN_UP, make_functional, decompose
    )
    unfolded = [node for node in graph.nodes if node.module == "1"]
    assert len(unfolded) > 4
    assert {node.phase for node in unfolded} == {"forward", "backward"}
