"""A built plan as C++: a function that states where each value is stored, and every step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from golow.levels.direct.bundle_arrays import Read
from golow.levels.direct.constant_keys import ConstantKey, constant_keys
from golow.levels.direct.emit.constants import Constants
from golow.levels.direct.emit.network import Network, Sized, identifier
from golow.levels.direct.emit.project import PLAN
from golow.levels.direct.emit.spelling import listed, text
from golow.levels.direct.onednn.bindings.constants import DST, SCRATCHPAD, SRC
from golow.levels.direct.onednn.bindings.library import Descriptor, Engine
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.build.inputs import Key
from golow.levels.direct.onednn.emit.functions import (
    function_call,
    independent_of_weights,
    not_emitted,
    results,
)
from golow.levels.direct.onednn.emit.kernels import Kernels
from golow.levels.direct.onednn.emit.layouts import Layouts
from golow.levels.direct.onednn.emit.spelling import argument
from golow.levels.direct.onednn.run.called_plan import (
    CalledPlan,
    inputs_of,
    is_written_in_place,
    outputs_of,
)
from golow.levels.direct.onednn.steps.built_plan import (
    ArrayCall,
    Built,
    Call,
    KernelCall,
    PrimitiveCall,
    Tensor,
)
from golow.lower.plan.plan import Step
from golow.records.errors import GolowError

Keys = dict[ConstantKey, int]
"""Numbers of the constants that plans may share."""


def plan_sources(
    network: Network[CalledPlan], parts: tuple[Kernels, Constants, Keys], prefix: str = PLAN
) -> dict[str, str]:
    """Return the sources of a network's plans by their files. parts: of the whole project, and are
    added to. prefix: of the names of files and functions."""
    return {
        f"{prefix}_{batch}.cpp": _InferenceSource(batch, sized, parts).source(network.shown, prefix)
        for batch, sized in network.plans.items()
    }


def require_emitted(title: str, built: Built) -> None:
    """Raise `GolowError` for a plan with a step that has no form in C++."""
    for refusal in not_emitted(built):
        raise GolowError(
            f"{title} cannot be written as C++: {refusal.reason}, which the program does not have",
            "--level libtorch writes it as calls of PyTorch's library.",
        )


class PlanSource:
    """parts: of the whole project, and are added to."""

    def __init__(
        self,
        batch: int,
        built: Built,
        read: Read,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor],
        parts: tuple[Kernels, Constants, Keys],
    ) -> None:
        self._batch, self._built, self._read = batch, built, read
        self._kernels, self._constants, self._keys = parts
        self._outputs = outputs
        # What has another place than the plan states.
        self._places = {
            given.buffer: f"plan.input({number}, {given.bytes})"
            for number, given in enumerate(inputs)
            if given is not None
        }
        self._lines: list[str] = []
        self._layouts = Layouts(self._lines)
        self._fixed = independent_of_weights(self._built)

    def source(self, title: str, prefix: str = PLAN) -> str:
        """The plan's file. prefix: of the function's name."""
        steps = self._built.plan.steps
        loading = sum(step.once for step in steps)
        return (
            f"// {title} for a batch of {self._batch}: {len(steps) - loading} steps in each "
            f"iteration, {loading} while weights are loaded.\n\n"
            f'#include "support/plan.h"\n#include "support/weight_arithmetic.h"\n\n'
            f"namespace golow {{\n\nvoid {prefix}_{self._batch}(Plan& plan) {{\n"
            + "".join(f"  {line}\n" if line else "\n" for line in self._body())
            + "}\n\n}  // namespace golow\n"
        )

    def _body(self) -> Sequence[str]:
        lines = self._lines
        sizes = self._built.plan.sizes
        lines.append(f"plan.memory({sizes['arena']}, {sizes['once']}, {sizes['constant']});")
        self._pieces()
        self._weights()
        for position, (call, step) in enumerate(
            zip(self._built.calls, self._built.plan.steps, strict=True)
        ):
            if position not in self._fixed or function_call_of(call) is not None:
                self._step(call, step)
        self._copies()
        return lines

    # ------------------------------------------------------------ memory

    def _pieces(self) -> None:
        keys = constant_keys(self._built.plan)
        for index, buffer in enumerate(self._built.plan.buffers):
            if buffer.place == "constant":
                key = self._keys.setdefault(keys[index], len(self._keys))
                place = f"plan.constant({key}, {buffer.offset}, {buffer.bytes})"
            else:
                place = f"plan.{buffer.place}({buffer.offset}, {buffer.bytes})"
            self._lines.append(
                f"const Value {self._piece(index)} = {self._places.get(index, place)};"
            )

    def _piece(self, index: int) -> str:
        name = identifier(self._built.plan.buffers[index].name)
        return f"{name}_{index}" if name else f"value_{index}"

    def _value(self, tensor: Tensor) -> str:
        name = self._piece(tensor.buffer)
        return f"{name} + {tensor.offset}" if tensor.offset else name

    def _weights(self) -> None:
        for (kind, target), tensor in self._built.inputs.items():
            if kind == "constant":
                self._content(tensor.buffer, target, self._read(kind, target))
            elif (weight := self._weight((kind, target), tensor)) is not None:
                self._lines.append(weight)
        for index, array in self._built.constants.items():
            self._content(index, self._built.plan.buffers[index].name, array)
        wanted = {
            position
            for position in self._fixed
            if function_call_of(self._built.calls[position]) is None
        }
        for position, arrays in self._contents(wanted).items():
            call, step = self._built.calls[position], self._built.plan.steps[position]
            if isinstance(call, ArrayCall):
                written = results(call, step)
                for tensor, array in zip(written, arrays[-len(written) :], strict=True):
                    self._content(tensor.buffer, step.operation, array)

    def _weight(self, key: Key, tensor: Tensor) -> str | None:
        """Condition under which an input of the graph is there; None for one that calls bring."""
        raise NotImplementedError

    def _contents(self, wanted: Collection[int]) -> Mapping[int, Sequence[np.ndarray]]:
        """Content that these functions of loading write."""
        raise NotImplementedError

    def _content(self, index: int, name: str, array: np.ndarray) -> None:
        found = self._constants.add(name, array)
        self._lines.append(f"plan.content({self._piece(index)}, {text(found)});")

    # ------------------------------------------------------------ steps

    def _step(self, call: Call, step: Step) -> None:
        lines = self._lines
        layers = " + ".join(filter(None, step.modules)) or "the model"
        of_library = isinstance(call, PrimitiveCall)
        note = f"  // {step.implementation}" if of_library else ""
        lines += ["", f"plan.layer({text(layers)}, {text(step.operation)});{note}"]
        verb = "plan.load" if step.once else "plan.run"
        if isinstance(call, PrimitiveCall):
            described = self._layouts.description(call.primitive.description)
            given = listed(self._argument(*item) for item in call.arguments.items())
            lines.append(f"{verb}({described}, {given});")
        elif isinstance(call, KernelCall):
            values = listed(map(self._value, call.arguments))
            name = self._kernels.name(call.kernel.code)
            lines.append(f"{verb}({name}, {values}, {listed(call.kernel.numbers)});")
        else:
            values = listed(map(self._value, call.arguments))
            lines.append(f"{verb}([](Pointers p) {{ {function_call(call)}; }}, {values});")

    def _argument(self, number: int, tensor: Tensor) -> str:
        layout = "no_layout" if number == SCRATCHPAD else self._layouts.layout(tensor.layout)
        return f"{{{argument(number)}, {self._value(tensor)}, {layout}}}"

    def _copies(self) -> None:
        """Outputs that the steps do not write where the caller wants them are copied there."""
        for number, tensor in enumerate(self._outputs):
            if (
                tensor.buffer in self._places
                and f"plan.output({number}," in self._places[tensor.buffer]
            ):
                continue
            self._lines += ["", f'plan.layer("output {number}", "copy");']
            self._lines.append(
                f"const Value output_{number} = plan.output({number}, {tensor.bytes});"
            )
            if tensor.descriptor is None or tensor.layout.is_plain:
                body = f"joined({{{{p[0], {tensor.bytes}}}}}, p[1])"
                values = listed((self._value(tensor), f"output_{number}"))
                self._lines.append(f"plan.run([](Pointers p) {{ {body}; }}, {values});")
                continue
            plain = Descriptor.plain(tensor.layout.shape)
            reorder = Primitive(Engine(), "reorder", tensor.layout, plain)
            described = self._layouts.description(reorder.description)
            source, target = self._layouts.layout(tensor.layout), self._layouts.layout(plain)
            self._lines.append(
                f"plan.run({described}, {{{{{argument(SRC)}, {self._value(tensor)}, {source}}}, "
                f"{{{argument(DST)}, output_{number}, {target}}}}});"
            )


class _InferenceSource(PlanSource):
    def __init__(
        self, batch: int, sized: Sized[CalledPlan], parts: tuple[Kernels, Constants, Keys]
    ) -> None:
        built = sized.plan.built
        outputs = outputs_of(built)
        super().__init__(batch, built, sized.read, inputs_of(built), outputs, parts)
        self._plan = sized.plan
        self._places |= {
            tensor.buffer: f"plan.output({number}, {tensor.bytes})"
            for number, tensor in enumerate(outputs)
            if is_written_in_place(built, tensor)
        }

    def _weight(self, key: Key, tensor: Tensor) -> str | None:
        kind, target = key
        there = kind in ("parameter", "buffer")
        return f"plan.weight({self._piece(tensor.buffer)}, {text(target)});" if there else None

    def _contents(self, wanted: Collection[int]) -> Mapping[int, Sequence[np.ndarray]]:
        return self._plan.contents(self._read, wanted) if wanted else {}


def function_call_of(call: Call) -> str | None:
    """The body of a function, if the call is one that has a form in C++."""
    return function_call(call) if isinstance(call, ArrayCall) else None
