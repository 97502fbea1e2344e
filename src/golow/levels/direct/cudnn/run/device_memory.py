"""Where the buffers of a plan are in device memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.nvidia.memory import Region
from golow.lower.plan.plan import Place, Plan

ARENA: Place = "arena"
CONSTANT: Place = "constant"
ONCE: Place = "once"


class SharedState(NamedTuple):
    """Memory of other plans of the same network. places: whole ones; moved: addresses of buffers in
    other places, by their numbers in this plan."""

    places: Mapping[Place, Region]
    moved: Mapping[int, int]


NO_STATE = SharedState({}, {})


class DeviceMemory:
    """Device memory for each place of a plan and each of its inputs.

    arena: the memory of an iteration, at least as large as the plan's; plans that never run at the
    same time may share it. weights: another memory of the same plan, whose constants this one
    reads, too. state: what plans of a training run share. Counters of arrivals are never shared.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        arena: Region | None = None,
        weights: DeviceMemory | None = None,
        state: SharedState = NO_STATE,
    ) -> None:
        self._plan = plan
        self._moved: Mapping[int, int] = state.moved if weights is None else weights._moved
        given = {ARENA: arena, CONSTANT: None if weights is None else weights.place(CONSTANT)}
        given |= state.places
        self._places = {
            place: given.get(place) or Region(size)
            for place, size in plan.sizes.items()
            if size and place != ONCE
        }
        self._inputs = self._new_inputs()

    def place(self, place: Place) -> Region | None:
        """The memory of a place; None if the plan has none."""
        return self._places.get(place)

    def places(self) -> Mapping[Place, Region]:
        """The memory of every place."""
        return self._places

    def input(self, index: int) -> Region:
        """The memory of the input in the buffer with that index."""
        return self._inputs[index]

    def address(self, tensor: Tensor) -> int:
        """Return the tensor's device address."""
        buffer = self._plan.buffers[tensor.buffer]
        if buffer.place == "input":
            return self._inputs[tensor.buffer].address + tensor.offset
        if (moved := self._moved.get(tensor.buffer)) is not None:
            return moved + tensor.offset
        return self._places[buffer.place].address + buffer.offset + tensor.offset

    def address_of(self, place: Place) -> int:
        """Return the device address of a place, which may be a piece of the arena."""
        if (piece := self._plan.pieces.get(place)) is not None:
            return self._places[ARENA].address + piece[0]
        return self._places[place].address

    def forget_inputs(self) -> None:
        """Free the memory of the inputs: nothing reads them there any more."""
        self._inputs = {}

    @contextmanager
    def with_inputs(self) -> Iterator[None]:
        """Memory for the inputs, after `forget_inputs`; it is freed at the end."""
        self._inputs = self._new_inputs()
        try:
            yield
        finally:
            self._inputs = {}

    def _new_inputs(self) -> dict[int, Region]:
        return {
            index: Region(buffer.bytes)
            for index, buffer in enumerate(self._plan.buffers)
            if buffer.place == "input"
        }

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Memory for the steps that run only when loading; it is freed at the end."""
        self._places[ONCE] = Region(self._plan.sizes[ONCE])
        try:
            yield
        finally:
            del self._places[ONCE]

    def move_constants(self, moved: Mapping[int, int]) -> None:
        """Let the constants be at these addresses, by their buffers, and free their own memory."""
        self._moved = {**self._moved, **moved}
        self._places.pop(CONSTANT, None)
