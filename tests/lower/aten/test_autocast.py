"""The casts that autocast makes, written into the graph: against eager under autocast itself.

PyTorch's lists for a CPU differ from those for CUDA in what follows the last layer; the networks
here end in float32, where the two agree.
"""

from __future__ import annotations

import copy
from collections import Counter

import pytest
import torch
from hypothesis import given
from torch import Tensor, nn
from torch.nn import functional

from golow import models
from golow.lower.aten.autocast import CAST, HALVED, NoCasts, autocast
from golow.lower.aten.translation import Captured
from golow.lower.capture.capture import capture_training
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph, GraphInput, GraphOutput, Node, Ref, Value
from golow.lower.ir.pass_runner import apply
from golow.lower.ir.verify import interpret, verify
from support.examples import examples
from support.graphs.given_values import given_values
from support.models.drawn_networks import Small, networks


def loss(output: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(output.float(), target)


def captured_step(module: nn.Module, x: Tensor, y: Tensor) -> Captured:
    captured = capture_training("net", module, (x,), (y,), loss)
    return captured._replace(graph=apply(captured.graph, CLEAN_UP))


def eager_step(module: nn.Module, x: Tensor, y: Tensor, half: torch.dtype) -> dict[str, Tensor]:
    """Loss, output, gradients and buffers of eager's step under autocast."""
    module.train()
    with torch.autocast("cpu", half):
        output = module(x)
        value = loss(output, y)
    value.backward()
    found = {"loss/loss": value.detach(), "output/0": output.detach()}
    found |= {f"gradient/{n}": p.grad for n, p in module.named_parameters() if p.grad is not None}
    return found | {f"buffer/{n}": b for n, b in module.named_buffers()}


def kind(node: Node) -> str:
    return node.op.split(".")[1]


def dtypes(graph: Graph) -> dict[str, str]:
    return {name: value.dtype for name, value in graph.values().items()}


@pytest.mark.slow
@examples(15)
@given(networks())
def test_the_step_is_eagers_under_autocast(drawn: tuple[nn.Module, tuple[int, ...]]) -> None:
    module, shape = drawn
    x, y = torch.randn(3, *shape), torch.randint(0, 5, (3,))
    captured = captured_step(module, x, y)
    graph = verify(autocast(captured.graph, "bfloat16"))
    values = given_values(captured, module, x, y)
    wanted = eager_step(copy.deepcopy(module), x, y, torch.bfloat16)
    found = interpret(graph, values)
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype, name
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("half", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    "name",
    ["mlp", "lenet5", "resnet18", pytest.param("mobilenet_v2", marks=pytest.mark.whole_network)],
)
def test_products_are_half_and_what_is_trained_is_not(name: str, half: str) -> None:
    module = models.build(name)
    side = 64 if name in ("resnet18", "mobilenet_v2") else 28
    channels = 3 if side == 64 else 1
    x, y = torch.randn(2, channels, side, side), torch.randint(0, 10, (2,))
    before = captured_step(module, x, y).graph
    graph = verify(autocast(before, half))
    types = dtypes(graph)
    products = [node for node in graph.nodes if kind(node) in HALVED]
    assert len(products) == sum(kind(node) in HALVED for node in before.nodes)
    for node in products:
        given = {types[reference] for reference in node.references()}
        made = {value.dtype for value in node.outputs if value is not None}
        assert given == made == {half}, node
    assert graph.inputs == before.inputs
    for item in graph.outputs:
        if item.kind in ("gradient", "loss"):
            assert types[item.name] == "float32"
    # Each parameter is cast once, and the operations in between are the same ones.
    casts = [node for node in graph.nodes if node.op == CAST]
    sources = Counter(next(node.references()) for node in casts)
    parameters = {item.value.name for item in graph.inputs if item.kind == "parameter"}
    assert all(sources[parameter] <= 1 for parameter in parameters)
    rest = [node.op for node in graph.nodes if node.op != CAST]
    assert rest == [node.op for node in before.nodes]


@pytest.mark.slow
def test_the_casts_do_not_depend_on_the_batch() -> None:
    """Also where there are as many samples as a layer has outputs."""

    def casts(batch: int) -> list[tuple[str, str]]:
        module = nn.Sequential(nn.Softmax(1), nn.Linear(6, 4), nn.Softmax(1), nn.Linear(4, 4))
        x, y = torch.randn(batch, 6), torch.randint(0, 4, (batch,))
        graph = autocast(captured_step(module, x, y).graph, "bfloat16")
        return [(node.op, node.name) for node in graph.nodes]

    assert casts(4) == casts(3) == casts(7)


@pytest.mark.slow
def test_a_gradient_is_cast_where_it_is_made() -> None:
    x, y = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))
    before = captured_step(Small(), x, y).graph
    graph = autocast(before, "bfloat16")
    made = {value.name: node for node in graph.nodes for value in node.outputs if value}
    for old, new in zip(before.outputs, graph.outputs, strict=True):
        if old.kind == "gradient" and old.name != new.name:
            assert made[new.name].module == made[old.name].module


def test_batch_norm_keeps_its_statistics() -> None:
    x, y = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))
    graph = autocast(captured_step(Small(), x, y).graph, "bfloat16")
    types = dtypes(graph)
    norms = [node for node in graph.nodes if "batch_norm" in node.op and node.phase == "forward"]
    assert norms
    for node in norms:
        output, _, _, mean, variance = node.outputs
        assert output is not None and mean is not None and variance is not None
        assert (output.dtype, mean.dtype, variance.dtype) == ("bfloat16", "float32", "float32")
    assert {types[i.name] for i in graph.outputs if i.kind == "buffer"} <= {"float32", "int64"}


def test_the_loss_is_float32_and_its_gradient_goes_on_in_half() -> None:
    x, y = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))
    captured = capture_training("net", Small(), (x,), (y,), functional.cross_entropy)
    graph = verify(autocast(apply(captured.graph, CLEAN_UP), "float16"))
    types = dtypes(graph)
    for node in graph.nodes:
        if kind(node) in ("_log_softmax", "nll_loss_forward", "nll_loss_backward"):
            assert {types[name] for name in node.references()} <= {"float32", "int64"}
    [backward] = [node for node in graph.nodes if kind(node) == "_log_softmax_backward_data"]
    [cast] = [
        n for n in graph.nodes if n.op == CAST and n.arguments[0] == Ref(name=_made(backward))
    ]
    assert types[_made(backward)] == "float32"
    assert cast.outputs[0] is not None
    assert cast.outputs[0].dtype == "float16"


def _made(node: Node) -> str:
    assert node.outputs[0] is not None
    return node.outputs[0].name


def test_float64_and_integers_stay() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 3).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x.double())

    x, y = torch.randn(2, 4), torch.randint(0, 3, (2,))
    captured = capture_training("wide", Wide(), (x,), (y,), functional.cross_entropy)
    graph = apply(captured.graph, CLEAN_UP)
    assert autocast(graph, "bfloat16") == graph


def test_what_refuses_its_casts_is_named() -> None:
    values = [Value(name=name, shape=(2, 3), dtype="float32") for name in "xw"]
    inputs = tuple(GraphInput(value=value, kind="parameter", target=value.name) for value in values)
    product = Node(
        name="product",
        op="aten.mm.default",
        arguments=(Ref(name="x"), Ref(name="w")),
        outputs=(Value(name="y", shape=(2, 2), dtype="float32"),),
        module="layer1.0",
    )
    outputs = (GraphOutput(name="y", kind="output", target="0"),)
    graph = Graph(name="made", mode="train", inputs=inputs, nodes=(product,), outputs=outputs)
    with pytest.raises(NoCasts) as caught:
        autocast(graph, "bfloat16")
    assert caught.value.node.module == "layer1.0"
