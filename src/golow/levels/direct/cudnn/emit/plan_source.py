"""A built plan as C++: a function that states where each value is stored, and every step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from golow.levels.direct.bundle_arrays import Read
from golow.levels.direct.constant_keys import ConstantKey, constant_keys
from golow.levels.direct.cudnn.build.branches import runs_beside
from golow.levels.direct.cudnn.emit.contents import Contents, storage
from golow.levels.direct.cudnn.emit.kernels import Kernels, numbers
from golow.levels.direct.cudnn.emit.library_calls import LibraryCalls
from golow.levels.direct.cudnn.engines.own_engine import OwnEngine
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.recurrent_network import NetworkEngine
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.steps.built_plan import (
    Built,
    Call,
    EngineCall,
    FlatCall,
    KernelCall,
    Tensor,
)
from golow.levels.direct.cudnn.steps.returned_values import copy_out, made_outputs
from golow.levels.direct.emit.constants import Constants
from golow.levels.direct.emit.network import identifier
from golow.levels.direct.emit.spelling import listed, text
from golow.lower.ir.graph import GraphInput
from golow.lower.plan.plan import Step
from golow.records.errors import GolowError

ALIGNMENT = 256  # bytes, of each place within what is kept
ABSENT = "absent"
OWN_PLACES = ("input", "arena", "once", "constant")


class Parts(NamedTuple):
    """State that all plans of a project share and extend. keys: numbers of constants that plans may
    share. weights: names of those that are read, in order."""

    kernels: Kernels
    libraries: LibraryCalls
    constants: Constants
    keys: dict[ConstantKey, int]
    weights: dict[str, None]


class Written(NamedTuple):
    """A plan that is written. sources: the graph's inputs by the names of their values. read:
    constants. outputs: the types in which the caller gets what it returns."""

    built: Built
    sources: dict[str, GraphInput]
    read: Read
    outputs: Sequence[str]


def plan_source(title: str, batch: int, written: Written, parts: Parts) -> str:
    """Return the source of one plan."""
    return _PlanSource(written, parts).source(title, batch)


def require_emitted(title: str, built: Built) -> None:
    """Raise `GolowError` for a plan with a step that has no form in C++."""
    for call, step in zip(built.calls, built.plan.steps, strict=True):
        network = isinstance(call, EngineCall) and isinstance(call.engine, NetworkEngine)
        if network or isinstance(call, FlatCall) or runs_beside(call):
            what = f"{step.operation} of {step.modules[0] or 'the model'}"
            by = " by cuDNN's recurrent networks" if network else ""
            raise GolowError(
                f"{title} cannot be written as C++: {what}{by}, which the program has not",
                "--level libtorch writes it as calls of PyTorch's library.",
            )


class _PlanSource:
    def __init__(self, written: Written, parts: Parts) -> None:
        self._built, self._outputs, self._parts = written.built, written.outputs, parts
        self._inputs = {
            tensor.buffer: int(target)
            for (kind, target), tensor in self._built.inputs.items()
            if kind == "input"
        }
        self._kept = dict[str, int]()  # where each further place begins
        total = 0
        for place, size in self._built.plan.sizes.items():
            if place not in OWN_PLACES:
                self._kept[place] = total
                total += -(-size // ALIGNMENT) * ALIGNMENT
        self._kept_bytes = total
        self._lines: list[str] = []
        self._contents = Contents(
            self._built, written.sources, written.read, parts.constants, self._value
        )

    def source(self, title: str, batch: int) -> str:
        steps = self._built.plan.steps
        loading = sum(step.once for step in steps)
        body = "".join(f"  {line}\n" if line else "\n" for line in self._body())
        return (
            f"// {title} for a batch of {batch}: {len(steps) - loading} steps in each iteration, "
            f"{loading} while weights are loaded.\n\n"
            f'#include "kernels.h"\n#include "libraries.h"\n#include "support/plan.h"\n\n'
            f"namespace golow {{\n\nvoid plan_{batch}(Plan& plan) {{\n{body}}}\n\n"
            "}  // namespace golow\n"
        )

    def _body(self) -> Sequence[str]:
        sizes = self._built.plan.sizes
        arena, once, constant = (sizes.get(place, 0) for place in ("arena", "once", "constant"))
        self._lines.append(f"plan.memory({arena}, {once}, {constant}, {self._kept_bytes});")
        self._pieces()
        for fill in self._built.fills:
            content = f"{storage(fill.tensor)}, {self._contents.of(fill.value)}"
            self._lines.append(f"plan.fill({self._value(fill.tensor)}, {content});")
        self._parts.weights.update(dict.fromkeys(self._contents.weights))
        for call, step in zip(self._built.calls, self._built.plan.steps, strict=True):
            self._step(call, step)
        self._copies()
        return self._lines

    # ------------------------------------------------------------ memory

    def _pieces(self) -> None:
        keys = constant_keys(self._built.plan)
        for index, buffer in enumerate(self._built.plan.buffers):
            if buffer.place == "input":
                place = f"input({self._inputs[index]}, {buffer.bytes})"
            elif buffer.place == "constant":
                key = self._parts.keys.setdefault(keys[index], len(self._parts.keys))
                place = f"constant({key}, {buffer.offset}, {buffer.bytes})"
            elif buffer.place in self._kept:
                place = f"kept({self._kept[buffer.place] + buffer.offset}, {buffer.bytes})"
            else:
                place = f"{buffer.place}({buffer.offset}, {buffer.bytes})"
            self._lines.append(f"const Value {self._piece(index)} = plan.{place};")

    def _piece(self, index: int) -> str:
        name = identifier(self._built.plan.buffers[index].name)
        return f"{name}_{index}" if name else f"value_{index}"

    def _value(self, tensor: Tensor | None) -> str:
        if tensor is None:
            return ABSENT
        name = self._piece(tensor.buffer)
        return f"{name} + {tensor.offset}" if tensor.offset else name

    # ------------------------------------------------------------ steps

    def _step(self, call: Call, step: Step) -> None:
        layers = " + ".join(filter(None, step.modules)) or "the model"
        note = " ".join(step.implementation.split())
        self._lines += ["", f"plan.layer({text(layers)}, {text(step.operation)});  // {note}"]
        verb = "plan.load" if step.once else "plan.run"
        if isinstance(call, KernelCall):
            self._launch(verb, call.kernel, map(self._value, call.arguments))
        elif isinstance(call, EngineCall):
            self._engine(verb, call)

    def _launch(self, verb: str, kernel: Kernel, pointers: Iterator[str]) -> None:
        launched = self._parts.kernels.call(kernel)
        self._lines.append(f"{verb}({launched}, {listed(pointers)}, {numbers(kernel)});")

    def _engine(self, verb: str, call: EngineCall) -> None:
        engine: Any = call.engine
        values, workspace = [*map(self._value, call.arguments)], self._value(call.workspace)
        if isinstance(engine, OwnEngine):
            for kernel, pointers in engine.launches(values, workspace):
                self._launch(verb, kernel, (item or ABSENT for item in pointers))
            return
        libraries = self._parts.libraries
        if engine.kind == "cudnn":
            name = libraries.plan(engine.encode(), engine.operands, engine.name)
        else:
            problem, algorithm = engine.chosen
            name = libraries.product(problem, algorithm)
            a, b, *others, d = values
            rest = iter(others)
            bias = next(rest) if problem.bias or problem.bias_gradient else ABSENT
            values = [a, b, bias, next(rest) if problem.residual else ABSENT, d]
        self._lines.append(f"{verb}({name}, {listed(values)}, {workspace});")

    def _copies(self) -> None:
        """Copies of the results to the caller's memory."""
        outputs = zip(made_outputs(self._built), self._outputs, strict=True)
        for number, (tensor, dtype) in enumerate(outputs):
            size = ITEM_BYTES[dtype] * math.prod(tensor.shape)
            name = f"output_{number}"
            self._lines += [
                "",
                f'plan.layer("output {number}", "copy");',
                f"const Value {name} = plan.output({number}, {size});",
            ]
            self._launch("plan.run", copy_out(tensor, dtype), iter([self._value(tensor), name]))
