"""State that training changes: each parameter's float32 original, what the optimizer keeps of it,
its gradient and half-precision copy. All have the same offset in flat places, so that one step
updates many parameters: all vectors, and the weights in parts, in the order in which the backward
pass makes their gradients. A part's gradients need no memory before the first of them and after its
update. Parameters whose updates have other settings are in separate groups, and so are weights
whose gradients the ranks of a training run exchange in other buckets."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from golow.levels.direct.bundle_arrays import STATE
from golow.levels.direct.cudnn.problems.layouts import Layout, same_memory
from golow.levels.direct.cudnn.problems.precision import Types
from golow.levels.direct.cudnn.steps.built_plan import POSITION, Built, Cell, Tensor
from golow.levels.direct.node import CurrentNode
from golow.lower.analysis.joined_parameters import JoinedParameters, joined_parameters
from golow.lower.analysis.liveness import gradient_places
from golow.lower.fuse.optimizer_updates import UPDATES
from golow.lower.ir.graph import Argument, Graph, Ref, Value
from golow.lower.ir.rewriting import Links
from golow.lower.operators.all_reduce import AllReduce
from golow.lower.operators.joined_weight import joined_shape
from golow.lower.plan.plan import Place

New = Callable[[str, Sequence[int], Layout, Place], Tensor]
Role = Literal["master", "momentum", "square", "gradient_sum", "gradient", "copy"]
KEPT: tuple[Role, ...] = ("momentum", "square", "gradient_sum")
# "vectors", or "weights." and the number of the part; "vectors.1" if it has other settings. Weights
# have gradients in the type of products, vectors (biases, batch norm) in float32.
Group = str
VECTORS: Group = "vectors"
# A part is a launch, and its gradients are held together.
PART_BYTES, MOST_PARTS = 16 << 20, 8
# Settings of an update that may be others for other parameters.
DIFFERING = ("learning_rate", "weight_decay")
RATE = "learning_rate"  # the kind of a graph's input


class Held(NamedTuple):
    """Where a plan holds a parameter that it trains, for another plan of the same network. buffer:
    that of its original, which parameters of layers that are computed as one share."""

    group: Group
    layout: Layout
    buffer: int


class TrainingState:
    """The parameters of one plan. new: allocates a value in a place, as `PlanMemory.new`. group_of:
    of each parameter that is trained, by its target. masters, kept, gradients: by target; kept is
    what the optimizer keeps of each, and sums of gradients, by its kind among the graph's inputs.

    held: of another plan with the same state, by target, in the order in which it allocated the
    parameters: then this one's are at the same offsets of the same places.
    """

    def __init__(
        self, current: CurrentNode, types: Types, new: New, held: Mapping[str, Held]
    ) -> None:
        self._current, self._types, self._new = current, types, new
        graph = current.graph
        joined = joined_parameters(graph)
        self.group_of = {target: one.group for target, one in held.items()}
        self.group_of = self.group_of or grouped(graph, joined)
        self._pieces = _shared_pieces(joined, self.group_of, held)
        beside = [item for item in joined if self._pieces.get(item.targets[0]) == item.targets]
        self._joined = {item.weight: item.targets for item in beside}
        self._joined_gradients = {item.gradient: item.targets for item in beside if item.gradient}
        self._gradient_of = gradient_places(graph)
        outputs = [item for item in graph.outputs if item.kind in ("gradient", "gradient_sum")]
        self._gradients = {current.group(item.name) for item in outputs}
        self._targets = {item.name: item.target for item in outputs}
        self._updates = any(item.kind == "gradient" for item in graph.outputs)
        kinds = {item.kind for item in graph.inputs}
        self.masters: dict[str, Tensor] = {}
        self.kept: dict[str, dict[str, Tensor]] = {role: {} for role in KEPT if role in kinds}
        self.gradients: dict[str, Tensor] = {}
        self.copies: list[tuple[Tensor, Tensor]] = []
        self.beside: dict[int, int] = {}  # buffers whose offset follows from a master's offset
        self._values = {i.target: i.value for i in graph.inputs if i.kind == "parameter"}
        for target, one in held.items():
            self._master(target, one.layout)

    def parameter(self, target: str, value: Value, layout: Layout) -> Tensor | None:
        """Return the original, or its copy in half precision. The first call allocates it with
        gradient and what is kept, in its layout; None for a later call with another layout."""
        master = self._master(target, layout)
        if not same_memory(value.shape, master.layout, layout._replace(dtype="float32")):
            return None
        return self._in_type(master, value, layout, target)

    def joined(self, weight: Value, dtype: str) -> Tensor | None:
        """Return the parameters that a weight joins as one tensor of this type; None if they are
        not side by side."""
        targets = self._joined.get(weight.name)
        if targets is None:
            return None
        first = self._master(targets[0], Layout("float32"))
        whole = first._replace(shape=weight.shape)
        return self._in_type(whole, weight, Layout(dtype), targets[0])

    def _in_type(self, master: Tensor, value: Value, layout: Layout, target: str) -> Tensor:
        """The original of a value, or a copy in half precision."""
        if layout.dtype == "float32":
            return master
        copy = self._new(value.name, value.shape, layout, place_of("copy", self.group_of[target]))
        self.beside[copy.buffer] = master.buffer
        self.copies.append((master, copy))
        return copy

    def gradient(self, target: str) -> Tensor:
        """Return the place of a parameter's gradient; where gradients are only added up, of their
        sum."""
        self._allocate(target)
        return self.gradients[target] if self._updates else self.gradient_sum(target)

    def gradient_sum(self, target: str) -> Tensor:
        """Return the sum of a parameter's gradients so far, which the plan must have."""
        self._allocate(target)
        return self.kept["gradient_sum"][target]

    def place(self, index: int = 0) -> Tensor | None:
        """Return the place that the plan keeps for the current node's value of that index, if it is
        the gradient of a parameter."""
        value = self._current.output(index)
        if (targets := self._joined_gradients.get(value.name)) is not None:
            return self.gradient(targets[0])._replace(shape=value.shape)
        target = self._gradient_of.get(value.name)
        return None if target is None else self.gradient(target)

    def target_of(self, gradient: str) -> str:
        """The parameter whose gradient the graph returns under this name."""
        return self._targets[gradient]

    def gradient_name(self, target: str) -> str:
        """The name under which the graph returns a parameter's gradient."""
        return next(name for name, found in self._targets.items() if found == target)

    def _allocate(self, target: str) -> None:
        self._master(target, Layout("float32"))

    def has_place(self, name: str) -> bool:
        """True if the value is stored where the plan keeps gradients of parameters."""
        return name in self._gradient_of or name in self._joined_gradients

    def is_gradient(self, name: str) -> bool:
        """True if the value, or a view of it, is the gradient of a parameter."""
        return name in self._gradients

    def gradient_type(self, group: Group) -> str:
        """Return the type in which gradients of a group are stored."""
        return "float32" if group.partition(".")[0] == VECTORS else self._types.computed

    @property
    def groups(self) -> list[Group]:
        """The groups that have parameters."""
        return list(dict.fromkeys(self.group_of[target] for target in self.masters))

    def members(self, group: Group) -> list[str]:
        """The parameters of a group, by target."""
        return [target for target, found in self.group_of.items() if found == group]

    def inputs(self) -> dict[tuple[str, str], Tensor]:
        """The originals and what is kept of them, by kind and target."""
        found = {("parameter", target): tensor for target, tensor in self.masters.items()}
        for kind, tensors in self.kept.items():
            found |= {(kind, target): tensor for target, tensor in tensors.items()}
        return found

    def _master(self, target: str, layout: Layout) -> Tensor:
        if target not in self.masters:
            self._hold(self._pieces.get(target, (target,)), layout)
        return self.masters[target]

    def _hold(self, targets: Sequence[str], layout: Layout) -> None:
        """Allocate memory for parameters side by side, in PyTorch's order if there are several."""
        shapes = [self._values[target].shape for target in targets]
        whole = shapes[0]
        if len(shapes) > 1:
            whole, layout = joined_shape(shapes), Layout(layout.dtype)
        group, master = self.group_of[targets[0]], layout._replace(dtype="float32")
        gradient = layout._replace(dtype=self.gradient_type(group))
        roles: tuple[tuple[dict[str, Tensor], Role, Layout], ...] = (
            (self.masters, "master", master),
            *((self.kept[role], role, master) for role in KEPT if role in self.kept),
            *(((self.gradients, "gradient", gradient),) if self._updates else ()),
        )
        name = self._values[targets[0]].name
        for held, role, made in roles:
            memory, offset = self._new(name, whole, made, place_of(role, group)), 0
            for target, shape in zip(targets, shapes, strict=True):
                held[target] = memory._replace(shape=shape, offset=offset)
                offset += made.bytes(shape)
            self.beside[memory.buffer] = self.masters[targets[0]].buffer


def is_shared(place: Place) -> bool:
    """True if all plans of a training run have the same offsets there."""
    return place.partition(".")[0] in ("master", "copy", "counter", *KEPT)


def changed(built: Built) -> dict[tuple[str, str] | Cell, Tensor]:
    """The tensors of a plan that training changes, and the cells that its steps share."""
    found: dict[tuple[str, str] | Cell, Tensor] = {
        key: tensor for key, tensor in built.inputs.items() if key[0] in (*STATE, RATE)
    }
    return found | {cell: item for cell, item in built.cells.items() if cell != POSITION}


def place_of(role: Role, group: Group) -> Place:
    """Return the place of a group's parameters, or of what is kept of them."""
    return f"{role}.{group}"


def is_of(role: Role, place: Place) -> bool:
    """True if the place is that of a group's parameters in this role."""
    return place.partition(".")[0] == role


def grouped(graph: Graph, joined: Sequence[JoinedParameters] = ()) -> dict[str, Group]:
    """Return the group of each parameter that is trained, in the order in which their gradients
    appear. Those that are joined are in one group if they can be."""
    found, filled = {}, dict[str, int]()
    following = {target for item in joined for target in item.targets[1:]}
    trained, settings, bucket_of = _by_appearance(graph), _settings(graph), _buckets(graph)
    weights = sum(4 * math.prod(v.shape) for _, v in trained if len(v.shape) > 1)
    enough = max(PART_BYTES, -(-weights // MOST_PARTS))
    numbers: dict[object, int] = {}  # of settings
    open_part: dict[tuple[int, int], Group] = {}  # by the number of settings, and the bucket
    for target, value in trained:
        number = numbers.setdefault(settings.get(target), len(numbers))
        if len(value.shape) <= 1:
            found[target] = f"{VECTORS}.{number}" if number else VECTORS
            continue
        kind = number, bucket_of.get(target, 0)
        part = open_part.get(kind)
        if part is None or (filled[part] >= enough and target not in following):
            part = open_part[kind] = f"weights.{len(filled)}"
            filled[part] = 0
        found[target] = part
        filled[part] += 4 * math.prod(value.shape)
    return found


def _shared_pieces(
    joined: Sequence[JoinedParameters], group_of: Mapping[str, Group], held: Mapping[str, Held]
) -> dict[str, tuple[str, ...]]:
    """The parameters that share a piece of memory, in order, by each of them. held: as in
    `TrainingState`."""
    pieces: dict[object, list[str]] = defaultdict(list)
    for target, one in held.items():
        pieces[one.buffer].append(target)
    for item in () if held else joined:
        groups = {group_of.get(target) for target in item.targets}
        if len(groups) == 1 and None not in groups:
            pieces[item.weight] = list(item.targets)
    return {target: tuple(piece) for piece in pieces.values() for target in piece}


def _settings(graph: Graph) -> dict[str, tuple[Argument, ...]]:
    """Settings that may differ between the updates of parameters, by target."""
    targets = {item.value.name: item.target for item in graph.inputs if item.kind == "parameter"}
    found = {}
    for node in graph.nodes:
        parameter = node.keywords.get("parameter")
        if node.op in UPDATES and isinstance(parameter, Ref):
            found[targets[parameter.name]] = tuple(node.keywords.get(name) for name in DIFFERING)
    return found


def _buckets(graph: Graph) -> dict[str, int]:
    """The number of the bucket in which the ranks exchange a gradient, by target; empty for a
    training run of one rank."""
    targets = {item.name: item.target for item in graph.outputs if item.kind == "gradient"}
    nodes = [node for node in graph.nodes if node.op == AllReduce.op()]
    return {
        targets[value.name]: number
        for number, node in enumerate(nodes)
        for value in node.outputs
        if value is not None
    }


def _by_appearance(graph: Graph) -> list[tuple[str, Value]]:
    """The parameters that are trained, in the order in which their gradients are made."""
    maker = Links(graph).maker
    gradients = [item for item in graph.outputs if item.kind == "gradient"]
    gradients.sort(key=lambda item: maker.get(item.name, -1))
    parameters = {i.target: i.value for i in graph.inputs if i.kind == "parameter"}
    return [(item.target, parameters[item.target]) for item in gradients]
