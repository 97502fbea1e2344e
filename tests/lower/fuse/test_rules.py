"""Every declared rule: once where it fires, once where it must not."""

from __future__ import annotations

import msgspec
import pytest
import torch

import golow.lower
from golow.lower.fuse import (
    epilogue_fusion,
    norm_fusion,
    pooling,
    tied_weights,
    training,
    weight_folding,
)
from golow.lower.images import volumes
from golow.lower.ir.graph import Activation, Graph, GraphOutput
from golow.lower.ir.operator import Operator, modules_in
from golow.lower.ir.patterns import Rule
from golow.lower.operators.activation import ActivateBackward
from golow.lower.operators.adaptive_average_pool import (
    AdaptiveAveragePool,
    AdaptiveAveragePoolBackward,
)
from golow.lower.operators.batch_norm import BatchNorm, BatchNormBackward, BatchNormInference
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution, ConvolutionBackward
from golow.lower.operators.expand import Expand
from golow.lower.operators.folded_batch_norm import FoldedBias, FoldedWeight
from golow.lower.operators.pad import Pad
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.slice import Slice
from golow.lower.operators.take import AddRows, TakeBackward
from support.lowering import count, record, records
from support.written_graphs import RELU, TANH, Written, activate, add, numbers, one, ref

IMAGE = {"x": numbers(2, 3, 4, 4), "w": numbers(3, 3, 3, 3), "z": numbers(2, 3, 4, 4) + 1}
C = {name: numbers(3).abs() + 0.5 for name in ("scale", "shift", "mean", "variance")}
SAME = Convolution(x=ref("x"), weight=ref("w"), padding=(1, 1, 1, 1))
SIDES = {"before": (0, 0, 1, 2), "after": (0, 0, 0, 1)}
PADS = Pad(x=ref("x"), value=0.0, **SIDES)  # type: ignore[arg-type]
NORM = BatchNormInference(
    x=ref("c"), scale=ref("scale"), shift=ref("shift"), mean=ref("mean"), variance=ref("variance"),
    epsilon=1e-5,
)  # fmt: skip


def test_padding() -> None:
    convolution = msgspec.structs.replace(SAME, x=ref("p"))
    graph = Written(IMAGE, [one("p", PADS), one("c", convolution)], "c").after(
        epilogue_fusion.PADDING
    )
    assert record(graph, Convolution).padding == (2, 3, 1, 2)
    assert not count(graph, Pad)
    ones = msgspec.structs.replace(PADS, value=1.0)
    graph = Written(IMAGE, [one("p", ones), one("c", convolution)], "c").after(
        epilogue_fusion.PADDING
    )
    assert record(graph, Convolution).padding == (1, 1, 1, 1)


@pytest.mark.parametrize("axis", [2, 3])
def test_cut(axis: int) -> None:
    """An output of 6x6 pixels, of which one range needs less padding; others need a cut."""
    wide = msgspec.structs.replace(SAME, padding=(2, 2, 2, 2))
    for start, stop, fits in ((0, 4, True), (2, 6, True), (1, 5, True), (0, 3, False)):
        for layer, taken in (
            (wide, fits),
            (msgspec.structs.replace(wide, activation=RELU), False),
            (msgspec.structs.replace(wide, stride=(2, 2)), False),
        ):
            cut = Slice(x=ref("c"), axis=axis, start=start, stop=stop, step=1)
            nodes = [one("c", layer), one("s", cut)]
            graph = Written(IMAGE, nodes, "s").after(epilogue_fusion.CUT)
            assert count(graph, Slice) == int(not taken)
            assert count(Written(IMAGE, nodes, "s", "c").after(epilogue_fusion.CUT), Slice) == 1
    of_channels = [one("c", wide), one("s", Slice(x=ref("c"), axis=1, start=0, stop=2, step=1))]
    assert count(Written(IMAGE, of_channels, "s").after(epilogue_fusion.CUT), Slice) == 1


def test_residual() -> None:
    nodes = [one("c", SAME), one("s", add("z", "c"))]
    graph = Written(IMAGE, nodes, "s").after(epilogue_fusion.RESIDUAL)
    assert record(graph, Convolution).residual == ref("z")
    assert not count(graph, Binary)
    graph = Written(IMAGE, nodes, "s", "c").after(epilogue_fusion.RESIDUAL)
    assert record(graph, Convolution).residual is None


def test_activation() -> None:
    for maker in (SAME, add("x", "z")):
        nodes = [one("c", maker), one("a", activate("c"))]
        graph = Written(IMAGE, nodes, "a").after(epilogue_fusion.ACTIVATION)
        assert record(graph, type(maker)).activation == RELU  # type: ignore[attr-defined]
        graph = Written(IMAGE, nodes, "a", "c").after(epilogue_fusion.ACTIVATION)
        assert record(graph, type(maker)).activation is None  # type: ignore[attr-defined]


def test_folded_batch_norm() -> None:
    nodes = [one("c", SAME), one("n", NORM)]
    graph = Written(IMAGE | C, nodes, "n").after(weight_folding.BATCH_NORM)
    assert count(graph, FoldedWeight) == count(graph, FoldedBias) == 1
    assert not count(graph, BatchNormInference)
    activated = [one("c", msgspec.structs.replace(SAME, activation=RELU)), one("n", NORM)]
    graph = Written(IMAGE | C, activated, "n").after(weight_folding.BATCH_NORM)
    assert count(graph, BatchNormInference) == 1


def test_folded_scale() -> None:
    """A number for each channel; not one for each column, nor after an activation."""
    product = Binary(function="multiply", a=ref("c"), b=ref("s"))
    activated = msgspec.structs.replace(SAME, activation=RELU)
    for layer, shape, taken in ((SAME, (3, 1, 1), 1), (SAME, (4,), 0), (activated, (3, 1, 1), 0)):
        given, nodes = IMAGE | {"s": numbers(*shape)}, [one("c", layer), one("y", product)]
        graph = Written(given, nodes, "y").after(weight_folding.SCALE)
        assert (count(graph, FoldedWeight), count(graph, Binary)) == (taken, 1 - taken)
        assert count(Written(given, nodes, "y", "c").after(weight_folding.SCALE), Binary) == 1


def test_norm_of_a_volume() -> None:
    given = {"v": numbers(2, 3, 2, 4, 4), "k": numbers(3, 3, 1, 1, 1)} | C
    layer = Convolution(
        x=ref("v"), weight=ref("k"), stride=(1,) * 3, padding=(0,) * 6, dilation=(1,) * 3
    )
    view = Reshape(x=ref("c"), shape=(2, 3, 8, 4))
    norm = msgspec.structs.replace(NORM, x=ref("i"))
    for shape, outputs, taken in (
        ((2, 3, 2, 4, 4), ("b",), 1),
        ((2, 3, 4, 2, 4), ("b",), 0),
        ((2, 3, 2, 4, 4), ("b", "i"), 0),
        ((2, 3, 2, 4, 4), ("b", "c"), 0),
    ):
        back = Reshape(x=ref("n"), shape=shape)
        nodes = [one("c", layer), one("i", view), one("n", norm), one("b", back)]
        graph = Written(given, nodes, *outputs).after(volumes.VOLUME_NORM)
        assert count(graph, Reshape) == (0 if taken else 2)


def test_global_pooling() -> None:
    mean = Reduce(function="mean", x=ref("x"), axes=(2, 3), keep=True)
    graph = Written(IMAGE, [one("m", mean)], "m").after(pooling.GLOBAL_POOLING)
    assert record(graph, AdaptiveAveragePool).size == (1, 1)
    for changes in ({"keep": False}, {"function": "sum"}, {"axes": (1, 2)}):
        other = msgspec.structs.replace(mean, **changes)
        graph = Written(IMAGE, [one("m", other)], "m").after(pooling.GLOBAL_POOLING)
        assert not count(graph, AdaptiveAveragePool)
    flat = {"x": numbers(2, 3, 4, 4, 2)}
    graph = Written(flat, [one("m", mean)], "m").after(pooling.GLOBAL_POOLING)
    assert not count(graph, AdaptiveAveragePool)


def test_flat_pooling() -> None:
    """Without the axes of the image."""
    mean = Reduce(function="mean", x=ref("x"), axes=(2, 3), keep=False)
    graph = Written(IMAGE, [one("m", mean)], "m").after(pooling.FLAT_POOLING)
    assert record(graph, AdaptiveAveragePool).size == (1, 1)
    assert count(graph, Reshape) == 1
    for changes in ({"keep": True}, {"function": "sum"}, {"axes": (1, 2)}):
        other = msgspec.structs.replace(mean, **changes)
        graph = Written(IMAGE, [one("m", other)], "m").after(pooling.FLAT_POOLING)
        assert not count(graph, AdaptiveAveragePool)


def test_relu_of_a_norm_in_inference() -> None:
    norm = one("n", msgspec.structs.replace(NORM, x=ref("x")))
    for activation, outputs, wanted in (
        (RELU, ("a",), RELU), (TANH, ("a",), None), (RELU, ("a", "n"), None),
    ):  # fmt: skip
        written = Written(IMAGE | C, [norm, one("a", activate("n", activation))], *outputs)
        graph = written.after(norm_fusion.INFERENCE_RELU)
        assert record(graph, BatchNormInference).activation == wanted


def test_spread_gradient() -> None:
    given = {"g": numbers(2, 3, 1, 1)}
    spread = one("e", Expand(x=ref("g"), shape=(2, 3, 4, 5)))
    for number, wanted in ((20, 1), (20.0, 1), (19, 0)):
        share = one("d", Binary(function="divide", a=ref("e"), b=number))
        graph = Written(given, [spread, share], "d").after(training.SPREAD_GRADIENT)
        assert count(graph, AdaptiveAveragePoolBackward) == wanted
    share = one("d", Binary(function="divide", a=ref("e"), b=20))
    graph = Written(given, [spread, share], "d", "e").after(training.SPREAD_GRADIENT)
    assert not count(graph, AdaptiveAveragePoolBackward)


def step(activation: Activation, *between: tuple[str, Operator], of: str = "n") -> Written:
    """A norm, what comes between, an activation of that value, and the way back to x."""
    given = IMAGE | C | {"gradient": numbers(2, 3, 4, 4) - 0.5}
    norm = BatchNorm(
        x=ref("x"), scale=ref("scale"), shift=None, running_mean=ref("mean"),
        running_variance=ref("variance"), momentum=0.1, epsilon=1e-5,
    )  # fmt: skip
    last = between[-1][0] if between else "a"
    forward = [*between] if between else [one("a", activate(of, activation))]
    outer = ActivateBackward(
        gradient=ref("gradient"), value=ref(last), activation=activation, from_result=True
    )
    inner = BatchNormBackward(
        gradient=ref("outer"), x=ref("x"), scale=ref("scale"), mean=ref("n_1"),
        inverse_deviation=ref("n_2"), epsilon=1e-5, wanted=(True, True, True, False),
    )  # fmt: skip
    nodes = [one("n", norm), *forward, one("outer", outer), one("inner", inner)]
    return Written(given, nodes, last, "n_3", "n_4", "inner", "inner_1", "inner_2")


CLIP = Activation(name="clip", numbers=(0.0, 6.0))


def fused(graph: Graph) -> list[bool]:
    """Whether the norm and its gradient have an activation."""
    found = [*records(graph, BatchNorm), *records(graph, BatchNormBackward)]
    return [item.activation is not None for item in found]


def test_relu_of_a_norm() -> None:
    assert fused(step(RELU).after(norm_fusion.RELU)) == [True, True]
    assert fused(step(CLIP).after(norm_fusion.RELU)) == [False, False]
    sum_of = msgspec.structs.replace(add("n", "z"), activation=RELU)
    assert fused(step(RELU, one("s", sum_of)).after(norm_fusion.RELU)) == [False, False]


def test_clip_and_residual_of_a_norm() -> None:
    for activation in (RELU, CLIP):
        assert fused(step(activation).after(norm_fusion.CLIPPED)) == [True, True]
        for operands in (("n", "z"), ("z", "n")):
            sum_of = msgspec.structs.replace(add(*operands), activation=activation)
            graph = step(activation, one("s", sum_of)).after(norm_fusion.CLIPPED)
            assert fused(graph) == [True, True]
            assert record(graph, BatchNorm).residual == ref("z")
            assert record(graph, BatchNormBackward).wanted == (True, True, True, False)
    assert fused(step(TANH).after(norm_fusion.CLIPPED)) == [False, False]


def test_a_norm_whose_own_value_goes_on_keeps_it() -> None:
    """Without it nobody could read the norm's value any more."""
    twice = step(RELU, one("t", activate("n", TANH)), one("a", activate("n")))
    for rule in (norm_fusion.RELU, norm_fusion.CLIPPED):
        assert fused(twice.after(rule)) == [False, False]


def test_a_gradient_that_others_read_is_a_further_result() -> None:
    """With a residual it goes there as well."""
    sum_of = msgspec.structs.replace(add("n", "z"), activation=RELU)
    base = step(RELU, one("s", sum_of))
    outputs = (*base.graph.outputs, GraphOutput(name="outer", kind="output", target="outer"))
    base.graph = msgspec.structs.replace(base.graph, outputs=outputs)
    graph = base.after(norm_fusion.CLIPPED)
    assert record(graph, BatchNormBackward).wanted == (True, True, True, True)
    graph = base.after(norm_fusion.RELU)
    assert fused(graph) == [False, False]


def test_the_sum_of_two_gradients() -> None:
    given = IMAGE | C | {"g": numbers(2, 3, 4, 4) - 0.5}
    inner = BatchNormBackward(
        gradient=ref("s"), x=ref("x"), scale=None, mean=ref("mean"),
        inverse_deviation=ref("variance"), epsilon=1e-5, wanted=(True, True, True, False),
        result=ref("z"), activation=RELU,
    )  # fmt: skip
    nodes = [one("s", add("g", "z")), one("inner", inner)]
    graph = Written(given, nodes, "inner").after(norm_fusion.GRADIENT_SUM)
    found = record(graph, BatchNormBackward)
    assert (found.gradient, found.second) == (ref("g"), ref("z"))
    assert not count(graph, Binary)
    graph = Written(given, nodes, "inner", "s").after(norm_fusion.GRADIENT_SUM)
    assert record(graph, BatchNormBackward).second is None
    plain = msgspec.structs.replace(inner, activation=None, result=None)
    graph = Written(given, [nodes[0], one("inner", plain)], "inner").after(norm_fusion.GRADIENT_SUM)
    assert record(graph, BatchNormBackward).second is None


def test_a_gradient_of_the_pixels_that_a_shortcut_reads() -> None:
    """It may be either of the two that are added; the layer's other results stay."""
    given = IMAGE | C | {"outer": numbers(2, 3, 2, 2), "v": numbers(3, 3, 1, 1)}
    layer = ConvolutionBackward(
        gradient=ref("outer"), x=ref("x"), weight=ref("v"), stride=(2, 2), padding=(0, 0, 0, 0),
        dilation=(1, 1), groups=1, wanted=(True, True, False),
    )  # fmt: skip
    norm = BatchNormBackward(
        gradient=ref("x"), x=ref("x"), scale=None, mean=ref("mean"),
        inverse_deviation=ref("variance"), epsilon=1e-5, wanted=(True, True, True, False),
        second=ref("g"), result=ref("z"), activation=RELU,
    )  # fmt: skip
    swapped = msgspec.structs.replace(norm, gradient=ref("g"), second=ref("x"))
    for inner in (norm, swapped):
        written = Written(given, [one("g", layer), one("inner", inner)], "inner")
        graph = written.after(norm_fusion.STRIDED)
        found = record(graph, BatchNormBackward)
        assert (found.gradient, found.second, found.step) == (ref("x"), ref("g"), (2, 2))
        assert record(graph, ConvolutionBackward).compact
    alone = msgspec.structs.replace(norm, second=None, gradient=ref("g"))
    padded = msgspec.structs.replace(layer, stride=(3, 3), padding=(1, 1, 1, 1))
    for nodes, *returned in (
        ([one("g", layer), one("inner", alone)], "inner"),
        ([one("g", layer), one("inner", norm)], "inner", "g"),
        ([one("g", padded), one("inner", norm)], "inner"),
    ):
        graph = Written(given, nodes, *returned).after(norm_fusion.STRIDED)
        assert not record(graph, ConvolutionBackward).compact


def test_rows_that_are_added_to_a_gradient() -> None:
    given = {"g": numbers(2, 3, 4), "other": numbers(5, 4), "index": torch.tensor([[0, 4, 0]] * 2)}
    rows = TakeBackward(gradient=ref("g"), index=ref("index"), axis=0, size=5, skipped=4)
    for operands in (("r", "other"), ("other", "r")):
        nodes = [one("r", rows), one("s", add(*operands))]
        found = record(Written(given, nodes, "s").after(tied_weights.TIED), AddRows)
        assert (found.x, found.skipped) == (ref("other"), 4)
        assert not count(Written(given, nodes, "s", "r").after(tied_weights.TIED), AddRows)
    for other in (
        add("r", 1.0),
        add("r", "r"),
        msgspec.structs.replace(add("r", "other"), activation=RELU),
    ):
        graph = Written(given, [one("r", rows), one("s", other)], "s").after(tied_weights.TIED)
        assert not count(graph, AddRows)
    wide = Written(
        given | {"other": numbers(4)}, [one("r", rows), one("s", add("r", "other"))], "s"
    )
    assert not count(wide.after(tied_weights.TIED), AddRows)


def test_three_layers_share_a_weight() -> None:
    given = {"g": numbers(3, 4), "other": numbers(5, 4), "index": torch.tensor([0, 4, 0])}
    rows = TakeBackward(gradient=ref("g"), index=ref("index"), axis=0, size=5)
    nodes = [one("r", rows), one("s", add("other", "r")), one("t", rows), one("u", add("s", "t"))]
    graph = Written(given, nodes, "u").after(tied_weights.TIED)
    assert count(graph, AddRows) == 2 and not count(graph, Binary)


def test_every_declared_rule_has_a_test() -> None:
    declared = {
        name: item
        for module in modules_in(golow.lower)
        for name, item in vars(module).items()
        if isinstance(item, Rule)
    }
    assert set(declared) == {
        "PADDING", "CUT", "RESIDUAL", "ACTIVATION", "BATCH_NORM", "GLOBAL_POOLING",
        "SPREAD_GRADIENT", "RELU", "CLIPPED", "GRADIENT_SUM", "FLAT_POOLING", "INFERENCE_RELU",
        "TIED", "STRIDED", "VOLUME_NORM", "ANY_VOLUME_NORM", "SCALE",
    }  # fmt: skip
