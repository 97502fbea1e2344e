"""What the tests of the lowering share: capture as golow does it, run, compare, count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import torch
from torch import Tensor, nn

from golow.levels.direct.cudnn import level as cudnn
from golow.levels.direct.onednn import level as onednn
from golow.lower.aten.translation import Captured
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.float64_default import float64_by_default
from golow.lower.ir.graph import Argument, Graph, Node, Pass, Scalar, Symbol
from golow.lower.ir.operator import Kind, Operator
from golow.lower.ir.pass_runner import apply, content, stages
from golow.lower.ir.rewriting import changes_in_place
from golow.lower.ir.verify import interpret
from golow.records.workload import KEPT, Mode, Optimizer
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Loss, Request

OPTIMIZER = Optimizer(learning_rate=0.05, momentum=0.9, weight_decay=0.01)
DirectLevel = Literal["onednn", "cudnn"]


class Case:
    """A captured module with a tensor for every input of its graph. loss, targets: of a training
    step; by default cross-entropy, and class 0 or 1 for each row."""

    def __init__(
        self,
        module: nn.Module,
        *inputs: Tensor,
        mode: Mode = "infer",
        loss: str | Loss | None = None,
        targets: Tensor | None = None,
    ) -> None:
        seed_statistics(module)
        if mode == "train" and targets is None:
            targets = torch.arange(len(inputs[0])) % 2
        request = Request(
            module, inputs, mode=mode, targets=targets, loss=loss, optimizer=OPTIMIZER
        )
        prepared = prepare(request)
        self.workload = prepared.workload
        self.captured: Captured = capture(prepared)
        self.graph = self.captured.graph
        self._results: dict[bytes, dict[str, Tensor]] = {}
        state, batch = prepared.module.state_dict(), prepared.batches[0]
        self.values: dict[tuple[str, str], Tensor] = {}
        for kind in ("parameter", "buffer"):
            self.values |= {(kind, name): t.detach().clone() for name, t in state.items()}
        self.values |= {("input", str(i)): t for i, t in enumerate(batch.inputs)}
        self.values |= {("target", str(i)): t for i, t in enumerate(batch.targets)}
        self.values |= {("constant", name): t for name, t in self.captured.constants.items()}

    def run(self, graph: Graph) -> dict[str, Tensor]:
        """Outputs of a stage of the graph. Without momentum and learning rate, which the last
        stages take as well, those are zero and the optimizer's."""
        return run(graph, self.values)

    def after(self, *passes: Pass) -> Graph:
        """The graph after the passes; every stage verified, and equal to the one before."""
        before = None
        for stage in stages(self.graph, passes):
            found = self._given_by(stage)
            if before is not None and found is not before:
                assert_close(found, before, stage.history[-1].name)
            before = found
        return stage

    def _given_by(self, stage: Graph) -> dict[str, Tensor]:
        """Outputs of a stage. Most passes change nothing of a small network, and most stages of one
        level are the other's, too: each graph is run once."""
        made = content(stage)
        if made not in self._results:
            self._results[made] = self.run(stage)
        return self._results[made]

    def lowered(self, level: DirectLevel = "onednn") -> Graph:
        """The graph as this level gets it. Every stage is checked, of both direct levels."""
        return {name: self.after(*passes) for name, passes in self.direct_passes().items()}[level]

    def direct_passes(self) -> dict[str, tuple[Pass, ...]]:
        """All that both direct levels do to the captured graph."""
        return {
            "onednn": (*CLEAN_UP, *onednn.passes(self.workload)),
            "cudnn": (*CLEAN_UP, *cudnn.passes(self.workload)),
        }


def run(graph: Graph, values: dict[tuple[str, str], Tensor]) -> dict[str, Tensor]:
    """Interpret the graph on copies of the values, which are by kind and target, in float64: what
    differs then is no rounding, not even of a gradient that is zero but for rounding."""
    given = {}
    for item in graph.inputs:
        key = (item.kind, item.target)
        if key not in values and item.kind in KEPT:
            tensor = torch.zeros(item.value.shape)
        elif key not in values and item.kind == "learning_rate":
            tensor = torch.tensor(OPTIMIZER.learning_rate)
        else:
            tensor = values[key].clone()
        if tensor.is_complex() and item.value.dtype == "float32":
            tensor = torch.view_as_real(tensor)
        given[item.value.name] = tensor.double() if tensor.is_floating_point() else tensor
    torch.manual_seed(0)  # for dropout
    with float64_by_default(), torch.no_grad():
        found = interpret(in_double(graph), given)
    return {name: tensor.clone() for name, tensor in found.items()}


def in_double(graph: Graph) -> Graph:
    """The graph with float64 where an argument names float32."""

    def scalar(item: Scalar) -> Scalar:
        double = Symbol(kind="dtype", name="float64")
        return double if item == Symbol(kind="dtype", name="float32") else item

    def argument(given: Argument) -> Argument:
        return tuple(map(scalar, given)) if isinstance(given, tuple) else scalar(given)

    def field(name: str, given: Argument) -> Argument:
        """Operators of the vocabulary name a dtype by its text."""
        return "float64" if (name, given) == ("dtype", "float32") else argument(given)

    nodes = (
        msgspec.structs.replace(
            node,
            arguments=tuple(map(argument, node.arguments)),
            keywords={name: field(name, given) for name, given in node.keywords.items()},
        )
        for node in graph.nodes
    )
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def seed_statistics(module: nn.Module) -> None:
    """Running statistics and affine parameters that a norm does not start with: with mean 0,
    variance 1 and scale 1 most mistakes in folding would not show."""
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            for tensor in (layer.running_mean, layer.weight, layer.bias):
                if tensor is not None:
                    tensor.data.copy_(torch.randn(tensor.shape))
            if layer.running_var is not None:
                layer.running_var.copy_(torch.rand(layer.running_var.shape) + 0.5)


def assert_close(
    found: dict[str, Tensor], wanted: dict[str, Tensor], what: str, limit: float = 1e-9
) -> None:
    """Everything that was wanted is there, in shape and dtype, within the relative distance."""
    for name, tensor in wanted.items():
        assert found[name].shape == tensor.shape, (what, name)
        assert found[name].dtype == tensor.dtype, (what, name)
        if tensor.dtype.is_floating_point:
            distance = (found[name].double() - tensor.double()).norm()
            scale = max(float(tensor.double().norm()), 1e-3 * tensor.numel() ** 0.5)
            assert distance <= limit * scale, (what, name, float(distance), scale)
        else:
            assert torch.equal(found[name], tensor), (what, name)


def count(graph: Graph, op: str | type[Operator]) -> int:
    """How many nodes of the graph are this operation."""
    return sum(node.op == _name(op) for node in graph.nodes)


def only(graph: Graph, op: str | type[Operator]) -> Node:
    """The one node that is this operation."""
    (node,) = (node for node in graph.nodes if node.op == _name(op))
    return node


def records(graph: Graph, kind: type[Kind]) -> list[Kind]:
    """The arguments of all nodes that are this operator, in order."""
    return [found for node in graph.nodes if (found := kind.of(node)) is not None]


def record(graph: Graph, kind: type[Kind]) -> Kind:
    """The arguments of the one node that is this operator."""
    (found,) = records(graph, kind)
    return found


def _name(op: str | type[Operator]) -> str:
    return op if isinstance(op, str) else op.op()


def ops(graph: Graph) -> list[str]:
    """The operations in order."""
    return [node.op for node in graph.nodes]


def in_place(graph: Graph) -> list[str]:
    """The operations that still overwrite a value."""
    return [node.op for node in graph.nodes if changes_in_place(node)]


def applied(graph: Graph, passes: Sequence[Pass]) -> Graph:
    """Passes on a graph that was written by hand."""
    return apply(graph, passes)
