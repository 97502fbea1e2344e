"""Copies between layouts outside a plan, and the arguments of a primitive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from golow.levels.direct.onednn.bindings.constants import DST, SCRATCHPAD, SRC
from golow.levels.direct.onednn.bindings.library import (
    Descriptor,
    Engine,
    ExecArg,
    Memory,
    OneDnnError,
    library,
)
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.run.shared_weights import Region


class Reorder:
    """A copy of a tensor into another layout, at any address. source_at: where it is."""

    def __init__(
        self, engine: Engine, source: Descriptor, source_at: int, target: Descriptor
    ) -> None:
        self._engine = engine
        self._primitive = Primitive(engine, "reorder", source, target)
        self._scratch = Region(self._primitive.scratchpad.bytes)
        self._target = Memory(engine, target, 0)
        self._memories = {
            SRC: Memory(engine, source, source_at),
            DST: self._target,
            SCRATCHPAD: Memory(engine, self._primitive.scratchpad, self._scratch.address),
        }

    def to(self, address: int) -> None:
        """Copy it there."""
        if status := library().dnnl_memory_set_data_handle(self._target.handle, address):
            raise OneDnnError("dnnl_memory_set_data_handle", status)
        _execute(self._primitive, self._engine, self._memories)


def primitive_arguments(memories: Mapping[int, Memory]) -> Any:
    """Return an array of the arguments and their memories, which must live as long."""
    pairs = [ExecArg(argument, memory.handle) for argument, memory in memories.items()]
    return (ExecArg * len(pairs))(*pairs)


def _execute(primitive: Primitive, engine: Engine, memories: Mapping[int, Memory]) -> None:
    arguments = primitive_arguments(memories)
    execute = library().dnnl_primitive_execute
    if status := execute(primitive.handle, engine.stream.handle, len(memories), arguments):
        raise OneDnnError("dnnl_primitive_execute", status)
