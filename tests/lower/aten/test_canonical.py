"""From ATen's calls to the vocabulary: every spelling means what ATen computes, what is not in the
vocabulary is left alone, and a layer is the same operator in both modes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from golow.lower.aten.canonical import canonicalise
from golow.lower.canonical_passes import CANONICAL
from golow.lower.ir.graph import Node, decode_graph, encode_graph
from golow.lower.ir.operator import PREFIX, record_of, references, spellings
from golow.lower.ir.passes import CLEAN_UP
from golow.lower.ir.verify import interpret, operation, verify
from golow.lower.operators.activation import ActivateBackward
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.linear import Linear
from support.aten_calls import CALLS
from support.lowering import Case, count, ops, records
from support.many_networks import Function
from support.one_call import Call, Transposed, arranged, tensor

# ---------------------------------------------------------------- every spelling


def test_every_spelling_has_a_case() -> None:
    assert set(CALLS) == set(spellings())


@pytest.mark.parametrize("op", sorted(spellings()))
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_spelling_means_what_aten_computes(op: str, data: st.DataObject) -> None:
    drawn = data.draw(CALLS[op])
    position, keywords = arranged(data.draw, operation(op), drawn.named)
    made = Call(op, position, keywords, drawn.results)
    graph = verify(canonicalise(verify(made.graph)))
    node = graph.nodes[-1]
    assert node.op.startswith(PREFIX), (position, keywords)
    assert node.arguments == ()
    arguments = record_of(node)
    assert arguments is not None
    assert set(node.keywords) == set(type(arguments).__struct_fields__)
    back = decode_graph(encode_graph(graph))
    assert record_of(back.nodes[-1]) == arguments
    torch.manual_seed(0)
    found = interpret(back, made.given)
    torch.testing.assert_close(found, made.wanted, rtol=1e-12, atol=1e-12, equal_nan=True)


SPECIAL = [-0.0, 0.0, -1.0, 1.0, 6.0, 7.0, float("nan"), float("inf"), -float("inf")]


@pytest.mark.parametrize(
    ("op", "numbers"),
    [
        ("aten.threshold_backward.default", {"threshold": 0}),
        ("aten.hardtanh_backward.default", {"min_val": 0.0, "max_val": 6.0}),
        ("aten.hardtanh_backward.default", {"min_val": -1.0, "max_val": 1.0}),
    ],
)
def test_gradients_at_their_bounds_and_of_no_number(op: str, numbers: dict[str, float]) -> None:
    values = torch.tensor(SPECIAL)
    gradient, x = torch.meshgrid(values, values, indexing="ij")
    made = Call(op, [gradient, x], numbers)
    graph = verify(canonicalise(made.graph))
    assert count(graph, ActivateBackward) == 1
    found = interpret(graph, made.given)
    torch.testing.assert_close(found, made.wanted, rtol=0, atol=0, equal_nan=True)


# ---------------------------------------------------------------- what is left alone

IMAGE, PLAIN = tensor(2, 4, 6, 7), tensor(4, 6, 7)
KERNEL, MATRIX = tensor(4, 4, 3, 3), tensor(5, 6)
CHANNELS = [tensor(4) for _ in range(2)] + [tensor(4), tensor(4).abs() + 1]
WHOLE = torch.arange(6).reshape(2, 3)
INFINITE = float("inf")

LEFT: dict[str, tuple[Any, ...]] = {
    # arithmetic that does more than its name says
    "alpha": ("aten.add.Tensor", IMAGE, IMAGE, {"alpha": 2}),
    "alpha of a difference": ("aten.sub.Scalar", IMAGE, 2, 0.5),
    "softmax into another dtype": ("aten.softmax.int", IMAGE.float(), 1, torch.float64),
    "log-softmax into another dtype": ("aten.log_softmax.int", IMAGE.float(), 1, torch.float64),
    "sum into another dtype": (
        "aten.sum.dim_IntList", IMAGE.float(), [1], {"dtype": torch.float64}
    ),
    "mean into another dtype": ("aten.mean.default", IMAGE.float(), {"dtype": torch.float64}),
    "sum of truths": ("aten.sum.default", WHOLE > 2),
    # layers
    "transposed convolution": (
        "aten.convolution.default", IMAGE, KERNEL, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1
    ),
    "transposed convolution, backward": (
        "aten.convolution_backward.default", tensor(2, 4, 8, 9), IMAGE, KERNEL, [4], [1, 1], [0, 0],
        [1, 1], True, [0, 0], 1, [True, True, True],
    ),
    "convolution in one dimension": (
        "aten.convolution.default", PLAIN, tensor(3, 6, 2), None, [1], [0], [1], False, [0], 1
    ),
    "convolution in three dimensions": (
        "aten.convolution.default", tensor(1, 2, 3, 4, 5), tensor(2, 2, 2, 2, 2), None, [1, 1, 1],
        [0, 0, 0], [1, 1, 1], False, [0, 0, 0], 1,
    ),
    "convolution without a batch": ("aten.conv2d.default", PLAIN, KERNEL),
    "convolution by name without a batch": (
        "aten.conv2d.padding", PLAIN, KERNEL, None, [1, 1], "same"
    ),
    "product and a matrix": ("aten.addmm.default", tensor(3, 5), tensor(3, 6), Transposed(MATRIX)),
    "product and half a bias": (
        "aten.addmm.default", tensor(5), tensor(3, 6), Transposed(MATRIX), {"beta": 0.5}
    ),
    "twice a product and a bias": (
        "aten.addmm.default", tensor(5), tensor(3, 6), Transposed(MATRIX), {"alpha": 2}
    ),
    "product and a bias, not transposed": (
        "aten.addmm.default", tensor(5), tensor(3, 6), tensor(6, 5)
    ),
    # images without a batch
    "max pooling": ("aten.max_pool2d.default", PLAIN, [2, 2]),
    "max pooling with indices": ("aten.max_pool2d_with_indices.default", PLAIN, [2, 2]),
    "average pooling": ("aten.avg_pool2d.default", PLAIN, [2, 2]),
    "adaptive pooling": ("aten.adaptive_avg_pool2d.default", PLAIN, [2, 2]),
    "pixels": ("aten.pixel_unshuffle.default", tensor(4, 6, 8), 2),
    # norms
    "a norm that trains in inference": (
        "aten.batch_norm.default", IMAGE, *CHANNELS, True, 0.1, 1e-5, False
    ),
    "a norm that does not train in training": (
        "aten._native_batch_norm_legit_functional.default", IMAGE, *CHANNELS, False, 0.1, 1e-5
    ),
    "a norm whose statistics are read": (
        "aten._native_batch_norm_legit_no_training.default", IMAGE, *CHANNELS, 0.1, 1e-5
    ),
    "gradient of a norm that does not train": (
        "aten.native_batch_norm_backward.default", IMAGE, IMAGE, *CHANNELS[:1], *CHANNELS[2:], None,
        None, False, 1e-5, [True, True, True],
    ),
    # activations
    "clip to infinity": ("aten.hardtanh.default", IMAGE, -INFINITE, 1.0),
    "its gradient": ("aten.hardtanh_backward.default", IMAGE, IMAGE, 0.0, INFINITE),
    "selu": ("aten.elu.default", IMAGE, 1.67, 1.05),
    "celu": ("aten.elu.default", IMAGE, 0.5, 1.0, 2.0),
    "elu's gradient from the result": (
        "aten.elu_backward.default", IMAGE, 1.0, 1.0, 1.0, True, IMAGE
    ),
    "a slope below zero": ("aten.leaky_relu.default", IMAGE, -0.1),
    "its gradient from a slope below zero": (
        "aten.leaky_relu_backward.default", IMAGE, IMAGE, -0.1, False
    ),
    "leaky_relu's gradient from the result": (
        "aten.leaky_relu_backward.default", IMAGE, IMAGE, 0.1, True
    ),
    "a threshold": ("aten.threshold_backward.default", IMAGE, IMAGE, 1.0),
    "softplus": ("aten.softplus.default", IMAGE),
    # indices
    "gradients by frequency": (
        "aten.embedding_dense_backward.default", tensor(2, 3), torch.tensor([0, 1]), 5, -1, True
    ),
    "the largest of all": ("aten.argmax.default", IMAGE),
    # others
    "rounding towards zero": ("aten.div.Tensor_mode", IMAGE, IMAGE, {"rounding_mode": "trunc"}),
    "reflection": ("aten.pad.default", IMAGE, [1, 1, 1, 1], "reflect"),
    "dropout that is on": ("aten.dropout.default", IMAGE, 0.5, True),
    "dropout that is off": ("aten.native_dropout.default", IMAGE, 0.5, False),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_in_the_vocabulary_stays(name: str) -> None:
    op, *position = LEFT[name]
    keywords = position.pop() if isinstance(position[-1], dict) else {}
    made = Call(op, position, keywords)
    before, after = made.graph.nodes[-1], canonicalise(verify(made.graph)).nodes[-1]
    assert after == before
    assert after.op == op


def test_one_call_that_stays_keeps_its_neighbours_from_nothing() -> None:
    module = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Softplus(), nn.Conv2d(4, 4, 3))
    graph = Case(module, IMAGE.float()).after(*CLEAN_UP, canonicalise)
    assert ops(graph) == [Convolution.op(), "aten.softplus.default", Convolution.op()]


# ---------------------------------------------------------------- one layer, one operator


LAYERS: list[nn.Module] = [
    nn.Conv2d(4, 6, 3, stride=2, padding=1),
    nn.Conv2d(4, 4, (1, 3), padding="same", dilation=2, bias=False),
    nn.MaxPool2d(2, ceil_mode=True),
    nn.AvgPool2d(3, 1, padding=1, count_include_pad=False),
    nn.AdaptiveAvgPool2d((2, 3)),
    nn.ReLU(),
    nn.ReLU(inplace=True),
    nn.ReLU6(),
    nn.Hardtanh(-0.5, 0.25),
    nn.Tanh(),
    nn.Sigmoid(),
    nn.SiLU(),
    nn.GELU(),
    nn.GELU("tanh"),
    nn.ELU(0.5),
    nn.LeakyReLU(0.1),
    nn.Hardswish(),
    nn.Hardsigmoid(),
    nn.Softmax(1),
    nn.LogSoftmax(-1),
    nn.ZeroPad2d((1, 0, 2, 1)),
    nn.Flatten(2),
    Function(lambda x: x + 1.5),
    Function(lambda x: x * x),
    Function(lambda x: x / 2 - x),
    Function(lambda x: -x),
    Function(lambda x: x.mean((2, 3), keepdim=True)),
    Function(lambda x: x.sum(1)),
    Function(lambda x: x.transpose(1, -1)),
    Function(lambda x: x[:, 1:3]),
    Function(lambda x: torch.cat([x, x], 1)),
    Function(lambda x: x.mean((2, 3)).unsqueeze(-1)),
]


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_a_layer_is_the_same_operator_in_both_modes(layer: nn.Module) -> None:
    """Up to the names of its values, and where the largest of a window was."""
    found = []
    for mode in ("infer", "train"):
        module = nn.Sequential(nn.Conv2d(3, 4, 1), layer, nn.Flatten(), nn.LazyLinear(5))
        module(torch.zeros(2, 3, 6, 7))
        graph = Case(module, torch.randn(2, 3, 6, 7), mode=mode).after(*CLEAN_UP, *CANONICAL)
        nodes = [n for n in graph.nodes if (n.module, n.phase) == ("1", "forward")]
        assert all(node.op.startswith(PREFIX) for node in nodes), ops(graph)
        found.append([without_names(node) for node in nodes])
    assert found[0] == found[1]
    assert found[0]


def without_names(node: Node) -> tuple[object, ...]:
    arguments = record_of(node)
    assert arguments is not None
    given = set(references(arguments)) | {"indices", "parts"}
    fields = msgspec.structs.asdict(arguments).items()
    return node.op, {name: item for name, item in fields if name not in given}


def test_a_linear_layer_is_one_operator_in_both_modes() -> None:
    for mode in ("infer", "train"):
        module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))
        graph = Case(module, torch.randn(3, 6), mode=mode).after(*CLEAN_UP, *CANONICAL)
        assert [layer.bias is not None for layer in records(graph, Linear)] == [True, True]
        assert not any(op.startswith("aten.") for op in ops(graph))
