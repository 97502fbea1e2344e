"""Optimizer fusion: adds the optimizer's update of every parameter to the graph."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from golow.lower.ir.graph import Graph, GraphInput, GraphOutput, Node, OutputKind, Ref, Value
from golow.lower.ir.operator import Operator, vocabulary, written
from golow.lower.ir.rewriting import Links, result
from golow.lower.operators.adam_update import AdamStep, AdamUpdate
from golow.lower.operators.all_reduce import AllReduce
from golow.lower.operators.clip_factor import ClipFactor
from golow.lower.operators.joined_weight import JoinedWeight
from golow.lower.operators.rmsprop_update import RmspropUpdate
from golow.lower.operators.sgd_update import SgdUpdate
from golow.records.workload import Optimizer, OptimizerState

RATE = Value(name="learning_rate", shape=(), dtype="float32")
STEPS = Value(name="adam_steps", shape=(), dtype="float32")
Kept = dict[OptimizerState, Value]
UPDATES = (SgdUpdate.op(), AdamUpdate.op(), RmspropUpdate.op())


def append_update(graph: Graph, optimizer: Optimizer) -> Graph:
    """Add the update of every parameter that has a gradient, as early as possible.

    Directly after it is computed, the gradient is still in the cache and does not have to be kept
    any longer. A parameter that a later node reads is updated after that node; where gradients are
    clipped, all updates are at the end, since the factor needs all of them. Where ranks average
    gradients, the updates of a bucket follow the next bucket's mean: the exchange has until then.
    Learning rate and number of steps are inputs, so that they can change from step to step.
    """
    return _Writer(graph, optimizer).written()


def decay_apart(graph: Graph, decays: Mapping[str, float]) -> Graph:
    """Give the updates of these parameters separate weight decays."""
    targets = {item.value.name: item.target for item in graph.inputs if item.kind == "parameter"}

    def changed(node: Node) -> Node:
        parameter = node.keywords.get("parameter")
        if node.op not in UPDATES or not isinstance(parameter, Ref):
            return node
        decay = decays.get(targets[parameter.name])
        if decay is None:
            return node
        return msgspec.structs.replace(node, keywords={**node.keywords, "weight_decay": decay})

    return msgspec.structs.replace(graph, nodes=tuple(map(changed, graph.nodes)))


def rates_apart(graph: Graph, groups: Mapping[str, int]) -> Graph:
    """Give the updates of parameters learning rates by their groups. That of group 0 is the input
    that is there; the others have further ones, whose targets are the groups' numbers."""
    targets = {item.value.name: item.target for item in graph.inputs if item.kind == "parameter"}
    used: dict[int, None] = {}

    def changed(node: Node) -> Node:
        parameter = node.keywords.get("parameter")
        if node.op not in UPDATES or not isinstance(parameter, Ref):
            return node
        group = groups.get(targets[parameter.name], 0)
        if not group:
            return node
        used[group] = None
        return _of_group(node, group, ("learning_rate", "rate", "root"))

    updated = [changed(node) for node in graph.nodes]
    nodes: list[Node] = []
    for node in updated:
        if node.op == AdamStep.op():  # the last one counts the step
            nodes += (_own_step(node, group) for group in used)
        nodes.append(node)
    rates = [
        GraphInput(value=_renamed(RATE, f"{RATE.name}_{k}"), kind="learning_rate", target=str(k))
        for k in used
    ]
    return msgspec.structs.replace(graph, inputs=(*graph.inputs, *rates), nodes=tuple(nodes))


def _of_group(node: Node, group: int, names: tuple[str, ...]) -> Node:
    own = {
        name: Ref(name=f"{item.name}_{group}")
        for name, item in node.keywords.items()
        if name in names and isinstance(item, Ref)
    }
    return msgspec.structs.replace(node, keywords={**node.keywords, **own})


def _own_step(node: Node, group: int) -> Node:
    values = [item and _renamed(item, f"{item.name}_{group}") for item in node.outputs]
    own = _of_group(node, group, ("learning_rate",))
    return msgspec.structs.replace(own, name=f"{node.name}_{group}", outputs=tuple(values))


class _Writer:
    """Collects what one graph's update adds."""

    def __init__(self, graph: Graph, optimizer: Optimizer) -> None:
        self.graph, self.optimizer = graph, optimizer
        self.links = Links(graph)
        self.inputs = [GraphInput(value=RATE, kind="learning_rate", target="")]
        self.outputs: list[GraphOutput] = []
        self.clip: Ref | None = None

    def written(self) -> Graph:
        parameters = {i.target: i.value for i in self.graph.inputs if i.kind == "parameter"}
        gradients = [item for item in self.graph.outputs if item.kind == "gradient"]
        first = self._count_step() if self.optimizer.counts_steps else []
        end = self._clipping([item.name for item in gradients])
        after: dict[int, list[Node]] = {}
        last = len(self.graph.nodes) - 1
        for item in gradients:
            parameter = parameters[item.target]
            update = self._update(parameter, item)
            there, read = self._there(item.name), _last_read(self.links, parameter.name)
            position = last if end else max(there, read)
            after.setdefault(position, []).append(update)
        nodes = list(first)
        for position, this in enumerate(self.graph.nodes):
            nodes += [this, *(end if position == last else ()), *after.get(position, ())]
        return msgspec.structs.replace(
            self.graph,
            inputs=(*self.graph.inputs, *self.inputs),
            nodes=tuple(nodes),
            outputs=(*self.graph.outputs, *self.outputs),
        )

    def _there(self, gradient: str) -> int:
        """Position after which nothing need wait for the gradient: of its maker, or if that
        averages over ranks, of the next node that does; the last one if there is none."""
        made, nodes = self.links.maker[gradient], self.graph.nodes
        if nodes[made].op != AllReduce.op():
            return made
        later = (k for k in range(made + 1, len(nodes)) if nodes[k].op == AllReduce.op())
        return next(later, len(nodes) - 1)

    def _count_step(self) -> list[Node]:
        number = _renamed(STEPS, "adam_steps_new")
        self.inputs.append(GraphInput(value=STEPS, kind="steps", target="steps"))
        self.outputs.append(GraphOutput(name=number.name, kind="steps", target="steps"))
        operator = AdamStep(steps=_ref(STEPS), learning_rate=_ref(RATE), betas=self.optimizer.betas)
        values = (number, _renamed(STEPS, "adam_rate"), _renamed(STEPS, "adam_root"))
        return [_node(operator, values)]

    def _clipping(self, gradients: list[str]) -> list[Node]:
        if self.optimizer.clip is None or not gradients:
            return []
        factor = _renamed(RATE, "clip_factor")
        self.clip = _ref(factor)
        self.outputs.append(GraphOutput(name=factor.name, kind="clip_factor", target=""))
        named = tuple(Ref(name=name) for name in gradients)
        return [_node(ClipFactor(gradients=named, norm=self.optimizer.clip), (factor,))]

    def _update(self, parameter: Value, gradient: GraphOutput) -> Node:
        target = gradient.target
        kept: Kept = {}
        for kind in _kept(self.optimizer):
            kept[kind] = _renamed(parameter, f"{parameter.name}_{kind}")
            self.inputs.append(GraphInput(value=kept[kind], kind=kind, target=target))
        operator, order = self._operator(parameter, kept, Ref(name=gradient.name))
        values = [_renamed(kept[kind], f"{kept[kind].name}_new") for kind in order]
        values.append(_renamed(parameter, f"{parameter.name}_new"))
        node = _node(operator, tuple(values), target.rpartition(".")[0])
        kinds: tuple[OutputKind, ...] = (*order, "parameter")
        for index, made in enumerate(kinds):
            self.outputs.append(GraphOutput(name=result(node, index), kind=made, target=target))
        return node

    def _operator(
        self, parameter: Value, kept: Kept, gradient: Ref
    ) -> tuple[Operator, tuple[OptimizerState, ...]]:
        """The update, and which of what is kept its results are, before the new parameter."""
        settings, rate = self.optimizer, _ref(RATE)
        if settings.name == "sgd":
            sgd = SgdUpdate(
                parameter=_ref(parameter),
                momentum=_ref(kept["momentum"]),
                gradient=gradient,
                learning_rate=rate,
                factor=settings.momentum,
                weight_decay=settings.weight_decay,
                nesterov=settings.nesterov,
                clip=self.clip,
            )
            return sgd, ("momentum",)
        if settings.name == "rmsprop":
            rmsprop = RmspropUpdate(
                parameter=_ref(parameter),
                square=_ref(kept["square"]),
                momentum=_ref(kept["momentum"]) if "momentum" in kept else None,
                gradient=gradient,
                learning_rate=rate,
                smoothing=settings.smoothing,
                epsilon=settings.epsilon,
                factor=settings.momentum,
                weight_decay=settings.weight_decay,
                clip=self.clip,
            )
            return rmsprop, settings.keeps
        adam = AdamUpdate(
            parameter=_ref(parameter),
            momentum=_ref(kept["momentum"]),
            square=_ref(kept["square"]),
            gradient=gradient,
            learning_rate=rate,
            rate=Ref(name="adam_rate"),
            root=Ref(name="adam_root"),
            betas=settings.betas,
            epsilon=settings.epsilon,
            weight_decay=settings.weight_decay,
            decoupled=settings.name == "adamw",
            clip=self.clip,
        )
        return adam, settings.keeps


def _kept(optimizer: Optimizer) -> tuple[OptimizerState, ...]:
    """State that each parameter needs: SGD has one form, which keeps momentum even if it is
    zero."""
    return ("momentum",) if optimizer.name == "sgd" else optimizer.keeps


def _last_read(links: Links, name: str) -> int:
    """Position of the last node that reads the value, or a view of it: parameters that are joined
    are so in their own memory."""
    last = -1
    for position in links.readers[name]:
        node = links.nodes[position]
        last = max(last, position)
        kind = vocabulary().get(node.op)
        if kind is JoinedWeight or (kind is not None and kind.is_view):
            last = max(last, _last_read(links, result(node)))
    return last


def _renamed(value: Value, name: str) -> Value:
    return msgspec.structs.replace(value, name=name)


def _ref(value: Value) -> Ref:
    return Ref(name=value.name)


def _node(operator: Operator, values: tuple[Value, ...], module: str = "") -> Node:
    empty = Node(name=values[-1].name, op="", arguments=(), module=module, phase="update")
    return written(empty, operator, outputs=values)
