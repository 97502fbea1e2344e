"""Passes for the training step: names, batch norm with relu, and SGD as torch has it."""

from __future__ import annotations

import copy
from functools import partial

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.lower.fuse.epilogue_fusion import fuse_activation
from golow.lower.fuse.norm_fusion import fuse_batch_norm_relu
from golow.lower.fuse.optimizer_updates import append_update
from golow.lower.ir.clean_up import CLEAN_UP, eliminate_dead_code
from golow.lower.ir.graph import Activation, Graph, GraphInput, GraphOutput, Node, Ref, Value
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.verify import verify
from golow.lower.operators.activation import Activate, ActivateBackward
from golow.lower.operators.adaptive_average_pool import (
    AdaptiveAveragePool,
    AdaptiveAveragePoolBackward,
)
from golow.lower.operators.batch_norm import BatchNorm, BatchNormBackward
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.expand import Expand
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.permute import Permute
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.sgd_update import SgdUpdate
from golow.lower.recognise.training_idioms import name_global_pooling, take_gradients_from_results
from golow.lower.to_vocabulary import CANONICAL
from golow.records.workload import KEPT, Optimizer
from support.graphs.lowering import Case, applied, assert_close, count, only, record, records, run
from support.graphs.parameter_updates import assert_updates_follow_the_last_read
from support.models import optimizers

NAMED = (*CANONICAL, name_global_pooling, take_gradients_from_results, eliminate_dead_code)
IMAGES = (3, 3, 6, 6)


class Pooled(nn.Module):
    """Convolution, norm, relu, the mean over the image in one of its forms, and classes."""

    def __init__(self, form: str = "pool") -> None:
        super().__init__()
        self.conv, self.bn, self.act = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(4, 5)
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.bn(self.conv(x)))
        if self.form == "pool":
            x = self.pool(x)
        elif self.form == "keep":
            x = x.mean((2, 3), keepdim=True)
        elif self.form == "rows":
            x = x.mean(2, keepdim=True).mean(3, keepdim=True)
        else:
            x = x.mean((2, 3))
        return self.fc(torch.flatten(x, 1))


def training(module: nn.Module, *shape: int) -> Case:
    return Case(module, torch.randn(shape or IMAGES), mode="train")


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(("form", "forward"), [("pool", 1), ("keep", 1), ("mean", 0)])
def test_global_pooling_is_recognised(form: str, forward: int) -> None:
    graph = training(Pooled(form)).after(*NAMED)
    assert count(graph, AdaptiveAveragePool) == forward
    assert len(means(graph)) == 1 - forward
    assert count(graph, AdaptiveAveragePoolBackward) == 1
    assert not divisions(graph)
    assert not count(graph, Expand)
    pooled = record(graph, AdaptiveAveragePool) if forward else means(graph)[0]
    shape = record(graph, AdaptiveAveragePoolBackward).shape
    assert shape == graph.values()[pooled.x.name].shape


def divisions(graph: Graph) -> list[Binary]:
    return [item for item in records(graph, Binary) if item.function == "divide"]


def means(graph: Graph) -> list[Reduce]:
    return [item for item in records(graph, Reduce) if item.function == "mean"]


def test_a_mean_over_rows_is_no_global_pooling() -> None:
    """But its gradient is that of pooling a single row to one pixel, and equals it."""
    graph = training(Pooled("rows")).after(*NAMED)
    assert not count(graph, AdaptiveAveragePool)
    assert len(means(graph)) == 2
    assert count(graph, AdaptiveAveragePoolBackward) == 1
    assert len(divisions(graph)) == 1


def test_a_mean_in_another_dtype_is_no_pooling() -> None:
    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean((2, 3), keepdim=True, dtype=torch.float64)

    assert not count(Case(Mean(), torch.randn(IMAGES)).after(*NAMED), AdaptiveAveragePool)


@pytest.mark.parametrize(
    ("layer", "wanted"),
    [
        (nn.ReLU(), Activation(name="relu")),
        (nn.ReLU6(), Activation(name="clip", numbers=(0.0, 6.0))),
        (nn.Hardtanh(-0.5, 0.25), Activation(name="clip", numbers=(-0.5, 0.25))),
        (nn.Tanh(), Activation(name="tanh")),
        (nn.Sigmoid(), Activation(name="sigmoid")),
    ],
    ids=str,
)
def test_gradients_from_the_result(layer: nn.Module, wanted: Activation) -> None:
    case = training(nn.Sequential(nn.Linear(6, 8), layer, nn.Linear(8, 5)), 3, 6)
    graph = case.after(*NAMED, fuse_activation, eliminate_dead_code)
    first = next(node for node in graph.nodes if node.op == Linear.op())
    assert records(graph, Linear)[0].activation == wanted
    assert not count(graph, Activate)  # its argument is not kept
    backward = record(graph, ActivateBackward)
    assert backward.value == Ref(name=first.outputs[0].name)  # type: ignore[union-attr]
    assert (backward.activation, backward.from_result) == (wanted, True)


@pytest.mark.parametrize("layer", [nn.SiLU(), nn.GELU(), nn.ELU(), nn.Hardswish()], ids=str)
def test_gradients_from_the_argument_keep_it(layer: nn.Module) -> None:
    case = training(nn.Sequential(nn.Linear(6, 8), layer, nn.Linear(8, 5)), 3, 6)
    graph = case.after(*NAMED, fuse_activation, eliminate_dead_code)
    assert not record(graph, ActivateBackward).from_result
    assert record(graph, ActivateBackward).value == record(graph, Activate).x
    assert all(linear.activation is None for linear in records(graph, Linear))


# ---------------------------------------------------------------- batch norm and relu

FUSED = (*NAMED, fuse_batch_norm_relu, fuse_activation, eliminate_dead_code)


@pytest.mark.parametrize("form", ["pool", "mean"])
def test_batch_norm_and_relu_become_one_in_both_directions(form: str) -> None:
    graph = training(Pooled(form)).after(*FUSED)
    forward, backward = only(graph, BatchNorm), only(graph, BatchNormBackward)
    assert (forward.module, forward.absorbed) == ("bn", ("act",))
    assert (backward.module, backward.absorbed) == ("bn", ("act",))
    assert record(graph, BatchNorm).activation == Activation(name="relu")
    assert record(graph, BatchNormBackward).activation == Activation(name="relu")
    assert not count(graph, Activate) and not count(graph, ActivateBackward)


class AllAtTheTop(nn.Module):
    """No layer of its own for relu and the mean: all of it at the same place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.relu(self.bn(self.conv(x))).mean((2, 3)))


def test_the_gradient_of_the_mean_keeps_nothing_for_its_shape() -> None:
    graph = training(AllAtTheTop()).after(*FUSED)
    assert count(graph, AdaptiveAveragePoolBackward) == activated_norms(graph) == 1


def activated_norms(graph: Graph) -> int:
    return sum(norm.activation is not None for norm in records(graph, BatchNorm))


class NormTwice(Pooled):
    """The norm's value is read beside the relu."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(self.conv(x))
        return self.fc(torch.flatten(self.pool(torch.relu(y) + y), 1))


class ReluTwice(Pooled):
    """The relu's value is read twice, which is no matter."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn(self.conv(x)))
        return self.fc(torch.flatten(self.pool(y * torch.tanh(y)), 1))


class Frozen(Pooled):
    """A norm with running statistics in the middle of training."""

    def forward(self, x: Tensor) -> Tensor:
        norm = self.bn
        given = norm.running_mean, norm.running_var, norm.weight, norm.bias
        y = torch.relu(functional.batch_norm(self.conv(x), *given, training=False))
        return self.fc(torch.flatten(self.pool(y), 1))


@pytest.mark.parametrize(("module", "fused"), [(NormTwice, 0), (ReluTwice, 1), (Frozen, 0)])
def test_only_a_norm_that_relu_alone_reads_is_fused(module: type[Pooled], fused: int) -> None:
    graph = training(module()).after(*FUSED)
    assert activated_norms(graph) == fused
    gradients = records(graph, BatchNormBackward)
    assert sum(gradient.activation is not None for gradient in gradients) == fused
    assert (count(graph, BatchNorm) == 0) == (module is Frozen)


# ---------------------------------------------------------------- the update


class Tied(nn.Module):
    """One weight in two layers, and a parameter that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.idle = nn.Parameter(torch.randn(3))
        self.last = nn.Linear(6, 5, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.second(torch.relu(self.first(x)))))


def two_steps_of_torch(
    module: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor
) -> dict[str, Tensor]:
    updating = optimizers.in_torch(optimizer, module.parameters())
    for _ in range(2):
        updating.zero_grad()
        functional.cross_entropy(module(x), y).backward()
        optimizers.clip(optimizer, module.parameters())
        updating.step()
    return {f"parameter/{name}": p.detach() for name, p in module.named_parameters()}


@pytest.mark.parametrize("optimizer", optimizers.ALL, ids=str)
@pytest.mark.parametrize(("module", "shape"), [(Tied, (4, 6)), (Pooled, IMAGES)])
def test_two_steps_are_those_of_torch(
    module: type[nn.Module], shape: tuple[int, ...], optimizer: Optimizer
) -> None:
    built = module()
    case = training(built, *shape)
    update = partial(append_update, optimizer=optimizer)
    update.__name__ = "append_update"
    graph = applied(case.graph, (*CLEAN_UP, *FUSED, update, eliminate_dead_code))
    values = dict(case.values)
    values["learning_rate", ""] = torch.tensor(optimizer.learning_rate, dtype=torch.float64)
    for _ in range(2):
        found = run(graph, values)
        for kind in ("parameter", "buffer", *KEPT):
            values |= {
                (kind, name.removeprefix(f"{kind}/")): tensor
                for name, tensor in found.items()
                if name.startswith(f"{kind}/")
            }
    x, y = case.values["input", "0"].double(), case.values["target", "0"]
    wanted = two_steps_of_torch(copy.deepcopy(built).double().train(), optimizer, x, y)
    wanted.pop("parameter/idle", None)  # it has no gradient, so it is not in the graph
    assert {name for name in found if name.startswith("parameter/")} == set(wanted)
    assert_close(found, wanted, "two steps")


def test_each_parameter_is_updated_once() -> None:
    graph = training(Tied(), 4, 6).lowered()
    updated = [item.target for item in graph.outputs if item.kind == "parameter"]
    assert sorted(updated) == ["first.bias", "first.weight", "last.weight", "second.bias"]
    updates = [node for node in graph.nodes if SgdUpdate.of(node) is not None]
    assert [node.phase for node in updates] == ["update"] * 4
    assert all(None not in node.outputs for node in updates)  # momentum and parameter


def float_value(name: str, *shape: int) -> Value:
    return Value(name=name, shape=shape, dtype="float32")


def node(name: str, operator: Operator) -> Node:
    return written(
        Node(name=name, op="", arguments=()), operator, outputs=(float_value(name, 3, 3),)
    )


def ref(name: str) -> Ref:
    return Ref(name=name)


RELU = Activation(name="relu")


def late_reader() -> Graph:
    """The gradient of w is there before the last node, which reads w through two views."""
    return Graph(
        name="late",
        mode="train",
        inputs=(
            GraphInput(value=float_value("x", 3, 3), kind="input", target="0"),
            GraphInput(value=float_value("w", 3, 3), kind="parameter", target="w"),
            GraphInput(value=float_value("v", 3, 3), kind="parameter", target="v"),
        ),
        nodes=(
            node("w_t", Permute(x=ref("w"), order=(1, 0))),
            node("y", MatrixProduct(a=ref("x"), b=ref("w_t"))),
            node("gradient", Binary(function="multiply", a=ref("y"), b=ref("x"))),
            node("early", Binary(function="multiply", a=ref("v"), b=ref("x"))),
            node("w_t_t", Permute(x=ref("w_t"), order=(1, 0))),
            node("between", Activate(x=ref("y"), activation=RELU)),
            node("z", MatrixProduct(a=ref("between"), b=ref("w_t_t"))),
            node("after", Activate(x=ref("z"), activation=RELU)),
        ),
        outputs=(
            GraphOutput(name="gradient", kind="gradient", target="w"),
            GraphOutput(name="early", kind="gradient", target="v"),
            GraphOutput(name="after", kind="output", target="0"),
        ),
    )


def test_a_weight_is_updated_after_the_last_read_through_a_view() -> None:
    graph = verify(append_update(verify(late_reader()), Optimizer()))
    names = [node.name for node in graph.nodes]
    assert names[names.index("z") + 1] == "w_new"
    assert names[names.index("early") + 1] == "v_new"  # no later
    assert_updates_follow_the_last_read(graph)


def test_one_gradient_for_two_parameters() -> None:
    graph = late_reader()
    gradients = [msgspec.structs.replace(item, name="early") for item in graph.outputs[:2]]
    graph = msgspec.structs.replace(graph, outputs=(*gradients, graph.outputs[2]))
    graph = verify(append_update(graph, Optimizer()))
    assert count(graph, SgdUpdate) == 2
    assert_updates_follow_the_last_read(graph)


@pytest.mark.parametrize(("module", "shape"), [(Tied, (4, 6)), (Pooled, IMAGES)])
def test_updates_of_captured_steps_follow_the_last_read(
    module: type[nn.Module], shape: tuple[int, ...]
) -> None:
    graph = training(module(), *shape).lowered()
    assert count(graph, Linear) + count(graph, Convolution) >= 1
    assert_updates_follow_the_last_read(graph)
