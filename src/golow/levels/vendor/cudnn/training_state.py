"""What training changes: each parameter's float32 original, what the optimizer keeps of it, its
gradient and half-precision copy. All have the same offset in flat places, so that one step updates
all parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal

from golow.levels.vendor.cudnn.layouts import Layout, same_memory
from golow.levels.vendor.cudnn.precision import Types
from golow.levels.vendor.cudnn.steps import Tensor
from golow.lower.graph import Value
from golow.lower.plan import Place

New = Callable[[str, Sequence[int], Layout, Place], Tensor]
Role = Literal["master", "momentum", "square", "gradient", "copy"]
KEPT: tuple[Role, ...] = ("momentum", "square")
# Weights have gradients in the type of products, vectors (biases, batch norm) in float32.
Group = Literal["vectors", "weights"]
GROUPS: tuple[Group, ...] = ("vectors", "weights")


class TrainingState:
    """The parameters of one plan. new: allocates a value in a place, as `Builder.new`. kept: the
    kinds of the graph's inputs, among them what the optimizer keeps of each."""

    def __init__(self, types: Types, new: New, kept: Collection[str]) -> None:
        self._types, self._new = types, new
        self.masters: dict[str, Tensor] = {}
        self.kept: dict[str, dict[str, Tensor]] = {role: {} for role in KEPT if role in kept}
        self.gradients: dict[str, Tensor] = {}
        self.copies: list[tuple[Tensor, Tensor]] = []
        self.beside: dict[int, int] = {}  # buffers whose offset follows from a master's offset

    def parameter(self, target: str, value: Value, layout: Layout) -> Tensor | None:
        """Return the original, or its copy in half precision. The first call allocates it with
        gradient and what is kept, in its layout; None for a later call with another layout."""
        master = self._master(target, value, layout)
        if not same_memory(value.shape, master.layout, layout._replace(dtype="float32")):
            return None
        if layout.dtype == "float32":
            return master
        copy = self._new(value.name, value.shape, layout, place_of("copy", group_of(value.shape)))
        self.beside[copy.buffer] = master.buffer
        self.copies.append((master, copy))
        return copy

    def gradient(self, target: str, value: Value) -> Tensor:
        """Return the place of a parameter's gradient."""
        self._master(target, value, Layout("float32"))
        return self.gradients[target]

    def gradient_type(self, group: Group) -> str:
        """Return the type in which gradients of a group are stored."""
        return self._types.computed if group == "weights" else "float32"

    @property
    def groups(self) -> list[Group]:
        """The groups that have parameters."""
        present = {group_of(tensor.shape) for tensor in self.masters.values()}
        return [group for group in GROUPS if group in present]

    def _master(self, target: str, value: Value, layout: Layout) -> Tensor:
        if target in self.masters:
            return self.masters[target]
        group, master = group_of(value.shape), layout._replace(dtype="float32")
        gradient = layout._replace(dtype=self.gradient_type(group))
        roles: tuple[tuple[dict[str, Tensor], Role, Layout], ...] = (
            (self.masters, "master", master),
            *((self.kept[role], role, master) for role in KEPT if role in self.kept),
            (self.gradients, "gradient", gradient),
        )
        for held, role, made in roles:
            held[target] = self._new(value.name, value.shape, made, place_of(role, group))
            self.beside[held[target].buffer] = self.masters[target].buffer
        return self.masters[target]


def place_of(role: Role, group: Group) -> Place:
    """Return the place of a group's parameters, or of what is kept of them."""
    return f"{role}.{group}"


def places_of(role: Role) -> tuple[Place, ...]:
    """Return the places of all groups."""
    return tuple(place_of(role, group) for group in GROUPS)


def group_of(shape: Sequence[int]) -> Group:
    """Return the group of a parameter of that shape."""
    return "weights" if len(shape) > 1 else "vectors"
