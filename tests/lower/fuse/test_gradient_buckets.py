"""Gradients of several ranks are averaged in buckets, in the order in which they appear."""

from __future__ import annotations

import math

import msgspec
import pytest
import torch

from golow.lower.analysis.liveness import gradient_places
from golow.lower.fuse.gradient_buckets import average_gradients
from golow.lower.fuse.optimizer_updates import append_update
from golow.lower.ir.graph import Graph, Node
from golow.lower.ir.pass_runner import apply
from golow.lower.ir.rewriting import Links
from golow.lower.ir.verify import interpret, verify
from golow.lower.operators.all_reduce import AllReduce
from golow.lower.operators.clip_factor import ClipFactor
from golow.lower.operators.sgd_update import SgdUpdate
from golow.lower.to_vocabulary import CANONICAL
from golow.records.workload import Optimizer
from golow.workload.graph_capture import capture
from support.direct.in_process import graph_inputs
from support.direct.rank_networks import NETWORKS, prepared


def captured(network: str) -> tuple[Graph, dict[str, torch.Tensor]]:
    workload = prepared(network)
    found = capture(workload)
    graph = apply(found.graph, CANONICAL)
    holder = type("Holder", (), {"prepared": workload, "constants": found.constants})
    return graph, graph_inputs(holder, graph)  # type: ignore[arg-type]


def buckets(graph: Graph) -> list[tuple[int, AllReduce, Node]]:
    found = ((k, AllReduce.of(node), node) for k, node in enumerate(graph.nodes))
    return [(k, operator, node) for k, operator, node in found if operator is not None]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("size", [1, 2048, 1 << 30])
def test_each_gradient_is_in_one_bucket_after_all_of_its(network: str, size: int) -> None:
    graph, given = captured(network)
    averaged = verify(average_gradients(graph, 2, size, size))
    links, values, found = Links(averaged), averaged.values(), buckets(averaged)
    gradients = {o.target: o.name for o in graph.outputs if o.kind == "gradient"}
    means = {o.target: o.name for o in averaged.outputs if o.kind == "gradient"}
    made = {
        value.name: gradient.name
        for _, operator, node in found
        for value, gradient in zip(node.outputs, operator.gradients, strict=True)
        if value is not None
    }
    assert {target: made[name] for target, name in means.items()} == gradients
    for k, (position, operator, _) in enumerate(found):
        makers = [links.maker[ref.name] for ref in operator.gradients]
        assert max(makers) < position
        assert makers == sorted(makers)
        if k + 1 < len(found):
            assert sum(4 * math.prod(values[r.name].shape) for r in operator.gradients) >= size
    before, after = interpret(graph, given), interpret(averaged, given)
    for name, tensor in before.items():  # ranks that are all like this one
        assert torch.equal(tensor, after[name]), name


def test_the_first_bucket_is_small() -> None:
    graph, _ = captured("lenet")
    sizes = [len(op.gradients) for _, op, _ in buckets(average_gradients(graph, 2, 1, 1 << 30))]
    assert sizes[0] == 1
    assert len(sizes) == 2


def test_updates_wait_for_the_next_bucket_and_not_for_later_ones() -> None:
    graph, _ = captured("lenet")
    optimizer = Optimizer(learning_rate=0.1, momentum=0.9)
    found = append_update(average_gradients(graph, 2, 1, 2048), optimizer)
    positions = [position for position, _, _ in buckets(found)]
    links = Links(found)
    assert len(positions) > 2
    for position, node in enumerate(found.nodes):
        update = SgdUpdate.of(node)
        if update is None:
            continue
        own = links.maker[update.gradient.name]
        later = [mean for mean in positions if mean > own]
        if not later:
            continue
        assert position > later[0]
        between = range(later[0] + 1, position)
        others = [k for k in between if SgdUpdate.of(found.nodes[k]) is None]
        read = max(k for k in links.readers[update.parameter.name] if k != position)
        assert not others or others[-1] <= read


def test_what_is_clipped_is_the_means() -> None:
    graph, _ = captured("lenet")
    found = append_update(average_gradients(graph, 2), Optimizer(learning_rate=0.1, clip=1.0))
    means = {o.name for o in found.outputs if o.kind == "gradient"}
    clip = next(c for c in map(ClipFactor.of, found.nodes) if c is not None)
    assert {ref.name for ref in clip.gradients} == means


def test_a_gradient_that_is_read_later_is_not_averaged_in_place() -> None:
    graph, _ = captured("lenet")
    averaged = average_gradients(graph, 2, 1, 1)
    position, operator, node = buckets(averaged)[0]
    (made,), (gradient,) = node.outputs, operator.gradients
    assert made is not None
    places = gradient_places(averaged)
    late = Node(
        name="late", op="aten.neg.default", arguments=(gradient,),
        outputs=(msgspec.structs.replace(made, name="late"),),
    )  # fmt: skip
    nodes = (*averaged.nodes[: position + 1], late, *averaged.nodes[position + 1 :])
    after = gradient_places(msgspec.structs.replace(averaged, nodes=nodes))
    assert len(places) == len([o for o in graph.outputs if o.kind == "gradient"])
    assert len(after.keys() & places.keys()) == len(places) - 1
