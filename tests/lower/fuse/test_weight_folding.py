"""What inference does once at loading: batch norm in the weights, and kernels cut to the taps
that ever meet the image."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from golow.lower.aten.canonical import canonicalise
from golow.lower.fuse.epilogue_fusion import fuse_padding, fuse_residual
from golow.lower.fuse.weight_folding import fold_batch_norm, trim_kernels
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Activation, Graph, GraphInput, GraphOutput, Node, Ref, Value
from golow.lower.ir.operator import written
from golow.lower.ir.pass_runner import apply
from golow.lower.ir.verify import interpret, verify
from golow.lower.operators.batch_norm import BatchNormInference
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.folded_batch_norm import FoldedBias, FoldedWeight
from golow.lower.operators.linear import Linear
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.trimmed_weight import TrimmedWeight
from golow.lower.to_vocabulary import CANONICAL
from support.examples import examples
from support.graphs.lowering import Case, count, only, ops, record, records

PADDED = (*CANONICAL, fuse_padding)
FOLDED = (*PADDED, fold_batch_norm, eliminate_dead_code)
CONVOLUTION, LINEAR = Convolution.op(), Linear.op()
WEIGHTS = [FoldedWeight.op(), FoldedBias.op()]


def folded(module: nn.Module, *shape: int) -> Graph:
    return Case(module, torch.randn(shape)).after(*FOLDED)


# ---------------------------------------------------------------- batch norm


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_batch_norm_goes_into_the_convolution(bias: bool, affine: bool, groups: int) -> None:
    layers = nn.Conv2d(4, 8, 3, groups=groups, bias=bias), nn.BatchNorm2d(8, affine=affine)
    graph = folded(nn.Sequential(*layers), 2, 4, 6, 7)
    assert ops(graph) == [*WEIGHTS, CONVOLUTION]
    assert (graph.nodes[2].module, graph.nodes[2].absorbed) == ("0", ("1",))


def test_batch_norm_goes_into_a_linear_layer() -> None:
    graph = folded(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)), 3, 6)
    assert ops(graph) == [*WEIGHTS, LINEAR]


@pytest.mark.parametrize("length", [5, 6])
def test_batch_norm_of_another_axis_stays(length: int) -> None:
    """After a linear layer over [N, L, C] the norm's channels are L, even where L equals C."""
    graph = folded(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(length)), 3, length, 6)
    reshape = Reshape.op()  # to one row and back, as a signal
    assert ops(graph) == [LINEAR, reshape, BatchNormInference.op(), reshape]


def test_batch_norm_that_trains_stays() -> None:
    layers = nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8, track_running_stats=False)
    graph = folded(nn.Sequential(*layers), 2, 4, 6, 7)
    assert ops(graph)[0] == CONVOLUTION
    assert len(graph.nodes) > 2
    assert not count(graph, FoldedWeight)
    module = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))
    graph = Case(module, torch.randn(3, 6), mode="train").after(*FOLDED)
    assert not count(graph, FoldedWeight)


class Twice(nn.Module):
    """A layer's value that both the norm and another read."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return self.bn(y) + y


class Shared(Twice):
    """One weight before the norm and without it."""

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x)) + self.conv(x)


class Between(Twice):
    """An activation between the layer and the norm."""

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(torch.relu(self.conv(x)))


def test_a_value_that_another_reads_is_not_folded() -> None:
    assert count(folded(Twice(), 2, 4, 6, 7), BatchNormInference) == 1
    assert count(folded(Between(), 2, 4, 6, 7), BatchNormInference) == 1


def test_a_shared_weight_is_folded_for_one_reader_alone() -> None:
    graph = folded(Shared(), 2, 4, 6, 7)
    assert count(graph, BatchNormInference) == 0
    assert count(graph, FoldedWeight) == 1
    plain, normed = (layer.weight.name for layer in records(graph, Convolution))
    assert {"conv_weight"} < {plain, normed}


class Block(nn.Module):
    """As torchvision's: the residual is added after the second norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        return functional.relu(self.bn2(self.conv2(y)) + x, inplace=True)


def test_a_residual_block_becomes_two_convolutions() -> None:
    graph = Case(Block(), torch.randn(2, 4, 6, 7)).lowered()
    first, second = (node for node in graph.nodes if node.op == CONVOLUTION)
    assert set(ops(graph)) == {CONVOLUTION, *WEIGHTS}
    assert (first.module, second.module) == ("conv1", "conv2")
    assert "bn1" in first.absorbed and "bn2" in second.absorbed
    one, other = records(graph, Convolution)
    assert one.residual is None and other.residual == Ref(name="input_0")
    assert one.activation == other.activation == Activation(name="relu")


def test_a_norm_of_a_sum_does_not_scale_the_residual_wrongly() -> None:
    class Sum(Twice):
        def forward(self, x: Tensor) -> Tensor:
            return self.bn(self.conv(x) + x[:, :, 1:-1, 1:-1])

    graph = Case(Sum(), torch.randn(2, 4, 6, 7)).after(
        *PADDED, fuse_residual, fold_batch_norm, eliminate_dead_code
    )
    assert count(graph, BatchNormInference) == 1


def value(name: str, *shape: int) -> Value:
    return Value(name=name, shape=shape, dtype="float32")


def test_a_norm_that_was_decomposed_before_is_folded_too() -> None:
    """It has three results, two of them empty, where the convolution has one."""
    inputs = [value("x", 2, 3, 5, 5), value("w", 4, 3, 3, 3)]
    inputs += [value(name, 4) for name in ("scale", "shift", "mean", "variance")]
    refs = [Ref(name=item.name) for item in inputs]
    graph = Graph(
        name="decomposed",
        mode="infer",
        inputs=tuple(GraphInput(value=v, kind="constant", target=v.name) for v in inputs),
        nodes=(
            Node(
                name="conv",
                op="aten.convolution.default",
                arguments=(*refs[:2], None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1),
                outputs=(value("conv", 2, 4, 3, 3),),
            ),
            Node(
                name="bn",
                op="aten._native_batch_norm_legit_no_training.default",
                arguments=(Ref(name="conv"), *refs[2:], 0.1, 1e-5),
                outputs=(value("bn", 2, 4, 3, 3), None, None),
                several=True,
            ),
        ),
        outputs=(GraphOutput(name="bn", kind="output", target="0"),),
    )
    values = {item.name: torch.rand(item.shape) + 0.5 for item in inputs}
    wanted = interpret(verify(graph), values)["output/0"]
    small = apply(graph, (canonicalise, fold_batch_norm, eliminate_dead_code))
    assert ops(small) == [*WEIGHTS, CONVOLUTION]
    assert torch.allclose(interpret(small, values)["output/0"], wanted, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- kernels

TRIMMED = (*PADDED, trim_kernels, eliminate_dead_code)


@pytest.mark.parametrize(
    ("layer", "image", "kernel"),
    [
        (nn.Conv2d(2, 3, 3, padding=1), (1, 1), (1, 1)),
        (nn.Conv2d(2, 3, 3, padding=1), (2, 2), None),  # each tap meets a pixel somewhere
        (nn.Conv2d(2, 3, 3, padding=1), (1, 5), (1, 3)),
        (nn.Conv2d(2, 3, 3, padding=1, stride=2), (2, 2), (2, 2)),  # at (0, 0) alone
        (nn.Conv2d(2, 3, 3, padding=2, dilation=2), (2, 2), (1, 1)),
        (nn.Conv2d(2, 3, 5, padding=2), (2, 2), (3, 3)),
        (nn.Conv2d(2, 2, 3, padding=1, groups=2), (1, 1), (1, 1)),
        (nn.Conv2d(2, 3, (2, 4), padding="same"), (1, 1), (1, 1)),  # asymmetric padding
        (nn.Conv2d(2, 3, 1), (1, 1), None),
        (nn.Conv2d(2, 3, 3), (3, 3), None),
        (nn.Conv2d(2, 3, 1, padding=1, stride=2), (1, 1), None),  # no tap meets anything
    ],
)
def test_a_kernel_is_cut_to_the_taps_that_meet_a_pixel(
    layer: nn.Module, image: tuple[int, int], kernel: tuple[int, int] | None
) -> None:
    graph = Case(layer, torch.randn(2, 2, *image)).after(*TRIMMED)
    assert count(graph, CONVOLUTION) == 1
    assert count(graph, TrimmedWeight) == (kernel is not None)
    if kernel is not None:
        assert only(graph, TrimmedWeight).outputs[0].shape[2:] == kernel


def test_folded_and_trimmed_and_with_residual() -> None:
    graph = Case(Block(), torch.randn(2, 4, 1, 1)).lowered()
    assert count(graph, TrimmedWeight) == 2
    assert count(graph, BatchNormInference) == 0


def convolution_graph(
    image: tuple[int, int], kernel: tuple[int, int], sides: tuple[int, ...],
    stride: tuple[int, int], dilation: tuple[int, int], groups: int,
) -> Graph:  # fmt: skip
    x, weight = value("x", 2, 2, *image), value("w", 4, 2 // groups, *kernel)
    layer = Convolution(
        x=Ref(name="x"),
        weight=Ref(name="w"),
        stride=stride,
        padding=sides,  # type: ignore[arg-type]
        dilation=dilation,
        groups=groups,
    )
    size = [
        (image[i] + sides[i] + sides[i + 2] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in (0, 1)
    ]
    node = written(Node(name="y", op="", arguments=()), layer, outputs=(value("y", 2, 4, *size),))
    return Graph(
        name="convolution",
        mode="infer",
        inputs=tuple(GraphInput(value=v, kind="input", target=v.name) for v in (x, weight)),
        nodes=(node,),
        outputs=(GraphOutput(name="y", kind="output", target="0"),),
    )


@st.composite
def convolutions(draw: st.DrawFn) -> Graph:
    """A convolution with a result of one pixel at least, mostly padding around a small image."""
    image, kernel, stride, dilation = (
        (draw(st.integers(1, most)), draw(st.integers(1, most))) for most in (4, 5, 3, 3)
    )
    sides = [draw(st.integers(0, 4)) for _ in range(4)]
    for i in (0, 1):
        reach = dilation[i] * (kernel[i] - 1) + 1
        sides[i] += max(0, reach - image[i] - sides[i] - sides[i + 2])
    return convolution_graph(image, kernel, tuple(sides), stride, dilation, draw(st.integers(1, 2)))


@examples(100)
@given(convolutions())
def test_trimming_never_changes_the_value_nor_the_shape(graph: Graph) -> None:
    values = {item.value.name: torch.randn(item.value.shape) for item in graph.inputs}
    wanted = interpret(verify(graph), values)["output/0"]
    small = apply(graph, (trim_kernels,))
    found = interpret(small, values)["output/0"]
    assert found.shape == wanted.shape
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert min(record(small, Convolution).padding) >= 0
    again = apply(small, (trim_kernels,))
    assert count(again, TrimmedWeight) == count(small, TrimmedWeight)  # nothing left to cut
