"""What depends on weights alone is computed when a plan is loaded, and only that."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from golow.levels.direct import node as current_node
from golow.levels.direct.cudnn.passes import passes
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.lower.analysis.constant_values import constant_values
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph, GraphInput, GraphOutput, Node, Ref
from golow.lower.ir.pass_runner import apply
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.dropout import Dropout
from golow.lower.plan.plan import Step
from support.direct import onednn_in_process
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound
from support.direct.in_process import Network, assert_right
from support.graphs.lowering import Case, ops
from support.graphs.written_graphs import Written, one, ref

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


class Derived(nn.Module):
    """Much that depends on weights alone: normed weights, tables, a mask, a bias by index."""

    def __init__(self) -> None:
        super().__init__()
        self.image = parametrizations.weight_norm(nn.Conv2d(3, 8, 3))
        self.norm = nn.BatchNorm2d(8)
        self.row = nn.Linear(8, 8)
        self.table = nn.Parameter(torch.rand(5, 2))
        self.register_buffer("where", torch.randint(5, (64,)))
        self.register_buffer("time", torch.arange(8.0))

    def forward(self, x: Tensor) -> Tensor:
        y = self.row(self.norm(self.image(x)).mean((2, 3)))
        position = torch.arange(8)
        mask = torch.where(position > position[:, None], -1e30, 0.0)
        bias = self.table[self.where].view(8, 8, 2).permute(2, 0, 1)
        scores = (y * self.time.cos())[:, None, None] + bias + mask
        return functional.softmax(scores, -1) * y[:, None, None]


class Moved(nn.Module):
    """Weights that the input moves, and a constant that the iteration adds to."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6, 3, 3, 3))
        self.norm = nn.BatchNorm2d(6)
        self.register_buffer("sums", torch.rand(5, 6))
        self.register_buffer("rows", torch.tensor([0, 1, 1, 4]))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(functional.conv2d(x, self.weight * x.mean())).mean((2, 3))
        parts = torch.cat([self.sums[:1].exp(), y.exp()])
        added = torch.index_put(self.sums, (self.rows,), y, accumulate=True)
        return torch.cat([added, parts, torch.slice_scatter(self.sums, y, 0, 1)])


class Masked(nn.Module):
    """One function of the input and of what depends on a weight alone."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight.cos()


@cache
def case(kind: type[nn.Module]) -> Case:
    torch.manual_seed(0)
    return Case(kind(), torch.randn(4, 3, 8, 8))


def followed(of: Case) -> None:
    """Run the plan of `cudnn` on this processor: first what is done when loading."""
    graph = apply(of.after(*CLEAN_UP), passes(of.workload))
    tensors = {i.value.name: of.values[i.kind, i.target].detach() for i in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


def iterated(kind: type[nn.Module], precision: str = "bf16") -> list[Step]:
    of = case(kind)
    workload = msgspec.structs.replace(of.workload, precision=precision)
    graph = apply(apply(of.graph, CLEAN_UP), passes(workload))
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES[precision], 1)  # type: ignore[index]
    assert_sound(made)
    return [step for step in made.plan.steps if not step.once]


# ---------------------------------------------------------------- the analysis


def with_kinds(written: Written, **kinds: str) -> Graph:
    """The graph in inference with inputs of these kinds, by their names."""
    inputs = tuple(
        msgspec.structs.replace(item, kind=kinds.get(item.target, "input"))
        for item in written.graph.inputs
    )
    return msgspec.structs.replace(written.graph, mode="infer", inputs=inputs)


def sums() -> Graph:
    """own = w + b; mixed = own + x."""
    w, b, x = (torch.rand(3) for _ in range(3))

    def add(name: str, one_: str, other: str) -> tuple[str, Binary]:
        return name, Binary(function="add", a=ref(one_), b=ref(other), activation=None)

    nodes = [add("own", "w", "b"), add("mixed", "own", "x")]
    return with_kinds(Written({"w": w, "b": b, "x": x}, nodes, "mixed"), w="parameter", b="buffer")


def test_what_reads_weights_alone_is_constant() -> None:
    assert constant_values(sums()) == {"w", "b", "own"}
    training = msgspec.structs.replace(sums(), mode="train")
    assert not constant_values(training)


def test_a_buffer_that_the_model_changes_is_not() -> None:
    graph = sums()
    new = GraphOutput(name="mixed", kind="buffer", target="b")
    assert constant_values(msgspec.structs.replace(graph, outputs=(new,))) == {"w"}
    node = Node(name="n", op="aten.add_.Tensor", arguments=(Ref(name="b"), 1.0))
    changed = msgspec.structs.replace(graph, nodes=(*graph.nodes, node))
    assert constant_values(changed) == {"w"}


def test_what_is_drawn_at_random_is_not() -> None:
    written = Written(
        {"w": torch.rand(3)}, [one("drawn", Dropout(x=ref("w"), probability=0.5))], "drawn"
    )
    assert constant_values(with_kinds(written, w="parameter")) == {"w"}


# ---------------------------------------------------------------- plans


def test_an_iteration_computes_nothing_from_weights_alone() -> None:
    steps = Counter(step.operation for step in iterated(Derived))
    assert steps == {
        "convolution": 1, "reduce": 1, "linear": 1, "fused": 2, "fused_softmax": 1,
    }  # fmt: skip


def test_a_turned_constant_is_turned_once() -> None:
    """The bias by index [64, 2], read as [2, 8, 8]."""
    [softmax] = (step for step in iterated(Derived) if step.operation == "fused_softmax")
    layouts = {operand.shape: operand.layout for operand in softmax.reads}
    assert layouts[2, 8, 8] == "bfloat16"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Derived, Moved])
def test_the_plan_of_cudnn_computes_what_torch_does(kind: type[nn.Module]) -> None:
    followed(case(kind))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Derived, Moved])
def test_onednn_computes_what_torch_does(kind: type[nn.Module]) -> None:
    """In both steps: what the first changes must not be what loading computed."""
    assert_right(network(kind), onednn_in_process.compute(network(kind)))


@cache
def network(kind: type[nn.Module]) -> Network:
    torch.manual_seed(0)
    return onednn_in_process.lower(kind().eval(), torch.randn(4, 3, 8, 8), "infer")


def test_a_norm_stays_beside_a_weight_that_the_input_moves() -> None:
    graph = apply(apply(case(Moved).graph, CLEAN_UP), passes(case(Moved).workload))
    assert Convolution.op() in ops(graph)
    assert not any("folded" in op for op in ops(graph))


# ---------------------------------------------------------------- planted errors


def test_a_value_that_depends_on_the_input_is_missed_if_it_is_computed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_many(graph: Graph) -> frozenset[str]:
        made = (value for node in graph.nodes[-1:] for value in node.outputs)
        return constant_values(graph) | {value.name for value in made if value is not None}

    followed(case(Masked))
    monkeypatch.setattr(current_node, "constant_values", too_many)
    with pytest.raises(AssertionError, match=r"add by golow\.fused"):
        followed(case(Masked))


def test_an_input_that_is_taken_for_a_constant_is_seen() -> None:
    """The second step has another input, and must not have the first one's results."""
    right = network(Moved)

    def taken(item: GraphInput) -> GraphInput:
        wrong = {"kind": "constant", "target": "x"} if item.kind == "input" else {}
        return msgspec.structs.replace(item, **wrong)

    graph = msgspec.structs.replace(right.graph, inputs=tuple(map(taken, right.graph.inputs)))
    first = right.prepared.batches[0].inputs[0]
    wrong = Network(right.prepared, graph, right.constants | {"x": first})
    with pytest.raises(AssertionError, match="1/output"):
        assert_right(right, onednn_in_process.compute(wrong))
