"""The plan of a training step as C++, and where the state is that all plans of a project share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from golow.levels.direct.cudnn.build.training_state import changed, is_shared
from golow.levels.direct.cudnn.emit.plan_source import Parts, PlanSource, Written
from golow.levels.direct.cudnn.shared_kernels.cast import cast
from golow.levels.direct.cudnn.steps.built_plan import Built, Cell, Tensor
from golow.lower.plan.plan import Place

Key = tuple[str, str]  # kind and target
LOSS = ("loss", "loss")


class Stored(NamedTuple):
    """A tensor of the state: the number of its memory, and bytes from the start of that."""

    memory: int
    offset: int
    tensor: Tensor


class StateMemory:
    """Numbers the memory of the state: a piece for each place that all plans share, and for each
    tensor that is elsewhere. plans: in the order in which they were built: updates write the copies
    of parameters that the first of them reads."""

    def __init__(self, plans: Sequence[Built]) -> None:
        self._numbers: dict[Place | Key | Cell, int] = {}
        self.first = plans[0]
        self.stored: dict[Key | Cell, Stored] = {}
        for built in plans:
            for key, tensor in changed(built).items():
                buffer = built.plan.buffers[tensor.buffer]
                shared = is_shared(buffer.place)
                number = self.place(buffer.place) if shared else self._number(key)
                offset = buffer.offset + tensor.offset if shared else tensor.offset
                self.stored.setdefault(key, Stored(number, offset, tensor))

    def place(self, place: Place) -> int:
        """The number of a place that plans share."""
        return self._number(place)

    def _number(self, what: Place | Key | Cell) -> int:
        return self._numbers.setdefault(what, len(self._numbers))


class TrainingSource(PlanSource):
    """inputs: how many the network has; targets are counted after them."""

    def __init__(self, written: Written, inputs: int, memory: StateMemory, parts: Parts) -> None:
        built = written.built
        given = {
            tensor.buffer: int(target) + (inputs if kind == "target" else 0)
            for (kind, target), tensor in built.inputs.items()
            if kind in ("input", "target")
        }
        super().__init__(written, given, parts)
        self._memory = memory
        self._alone = {
            tensor.buffer: memory.stored[key].memory
            for key, tensor in changed(built).items()
            if not is_shared(built.plan.buffers[tensor.buffer].place)
        }

    def _placed(self, index: int | None, place: Place, offset: int, size: int) -> str:
        if index is not None and index in self._alone:
            return f"state({self._alone[index]}, 0, {size})"
        if is_shared(place):
            return f"state({self._memory.place(place)}, {offset}, {size})"
        return super()._placed(index, place, offset, size)

    def _before(self) -> None:
        """Copies of parameters in half precision: what renews them when a state is loaded, and in
        each iteration those that the updates of the first plan do not write."""
        buffers, known = self._built.plan.buffers, self._memory.first.plan.sizes
        for tensor, copy in self._built.copies:
            kernel = cast(tensor.dtype, copy.dtype, tensor.elements)
            values = self._value(tensor), self._value(copy)
            self._lines += ["", 'plan.layer("parameters", "copy");']
            self._launch("plan.renew", kernel, iter(values))
            if buffers[copy.buffer].place not in known:
                self._launch("plan.run", kernel, iter(values))

    def _returned(self) -> Iterator[tuple[Tensor, str]]:
        yield self._built.outputs[LOSS], "float32"
