"""A built plan as C++: a function that states where each value is stored, and every step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from golow.levels.direct.bundle_arrays import Read
from golow.levels.direct.constant_keys import ConstantKey, constant_keys
from golow.levels.direct.cudnn.emit.contents import Contents, storage
from golow.levels.direct.cudnn.emit.kernels import Kernels, numbers
from golow.levels.direct.cudnn.emit.library_calls import LibraryCalls
from golow.levels.direct.cudnn.engines.own_engine import OwnEngine
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES, OF_8_BITS
from golow.levels.direct.cudnn.problems.recurrent_network import NetworkEngine
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.steps.built_plan import (
    AverageCall,
    Built,
    Call,
    EngineCall,
    FlatCall,
    KernelCall,
    Tensor,
)
from golow.levels.direct.cudnn.steps.returned_values import copy_out, made_outputs
from golow.levels.direct.emit.constants import Constants
from golow.levels.direct.emit.network import Network, identifier
from golow.levels.direct.emit.project import PLAN
from golow.levels.direct.emit.spelling import listed, text
from golow.lower.ir.graph import GraphInput
from golow.lower.plan.plan import Place, Step
from golow.records.errors import GolowError, Unsupported

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


def plan_sources(network: Network[Written], parts: Parts, prefix: str = PLAN) -> dict[str, str]:
    """Return the sources of a network's plans by their files. prefix: of the names of files and
    functions."""
    return {
        f"{prefix}_{batch}.cpp": _InferenceSource(sized.plan, parts).source(
            network.shown, batch, prefix
        )
        for batch, sized in network.plans.items()
    }


def require_emitted(title: str, built: Built) -> None:
    """Raise `GolowError` for a plan with a step that has no form in C++."""
    for call, step in zip(built.calls, built.plan.steps, strict=True):
        if missing := _missing(call):
            raise GolowError(
                f"{title} cannot be written as C++: {step.operation} of "
                f"{step.modules[0] or 'the model'} by {missing}, which the program does not have",
                "--level libtorch writes it as calls of PyTorch's library.",
            )


def _missing(call: Call) -> str:
    """Name whatever the program lacks for a call; empty if it lacks nothing."""
    if isinstance(call, EngineCall) and isinstance(call.engine, NetworkEngine):
        return "cuDNN's recurrent networks"
    if isinstance(call, FlatCall | AverageCall):
        return ""
    narrow = any(item is not None and item.dtype in OF_8_BITS for item in call.arguments)
    return "numbers of 8 bits" if narrow else ""


class PlanSource:
    """inputs: the number of each value that calls bring, by its buffer. Steps that `Execution` runs
    beside others run in their order."""

    def __init__(self, written: Written, inputs: Mapping[int, int], parts: Parts) -> None:
        self._built, self._outputs, self._parts = written.built, written.outputs, parts
        self._inputs = inputs
        self._kept = dict[str, int]()  # where each further place begins
        total = 0
        for place, size in self._built.plan.sizes.items():
            if place not in OWN_PLACES:
                self._kept[place] = total
                total += -(-size // ALIGNMENT) * ALIGNMENT
        self._kept_bytes = total
        self._lines: list[str] = []
        self._wholes: dict[Place, str] = {}  # names of places that steps work on as a whole
        self._contents = Contents(
            self._built, written.sources, written.read, parts.constants, self._value
        )

    def source(self, title: str, batch: int, prefix: str = PLAN) -> str:
        """The plan's file. prefix: of the function's name."""
        steps = self._built.plan.steps
        loading = sum(step.once for step in steps)
        body = "".join(f"  {line}\n" if line else "\n" for line in self._body())
        return (
            f"// {title} for a batch of {batch}: {len(steps) - loading} steps in each iteration, "
            f"{loading} while weights are loaded.\n\n"
            f'#include "kernels.h"\n#include "libraries.h"\n#include "support/plan.h"\n\n'
            f"namespace golow {{\n\nvoid {prefix}_{batch}(Plan& plan) {{\n{body}}}\n\n"
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
        self._before()
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
            else:
                place = self._placed(index, buffer.place, buffer.offset, buffer.bytes)
            self._lines.append(f"const Value {self._piece(index)} = plan.{place};")

    def _placed(self, index: int | None, place: Place, offset: int, size: int) -> str:
        """A piece of a place, in C++. index: of its buffer, if it is one."""
        if place in self._kept:
            return f"kept({self._kept[place] + offset}, {size})"
        return f"{place}({offset}, {size})"

    def _whole(self, place: Place) -> str:
        if place not in self._wholes:
            plan = self._built.plan
            if place in plan.pieces:
                found = self._placed(None, "arena", *plan.pieces[place])
            else:
                found = self._placed(None, place, 0, plan.sizes[place])
            self._wholes[place] = f"whole_{identifier(place)}"
            self._lines.append(f"const Value {self._wholes[place]} = plan.{found};")
        return self._wholes[place]

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
        elif isinstance(call, FlatCall):
            self._flat(verb, call)
        else:
            raise Unsupported("cudnn", "a C++ project cannot average over ranks")

    def _flat(self, verb: str, call: FlatCall) -> None:
        plan = self._built.plan
        size = plan.pieces.get(call.first, (0, 0))[1] or plan.sizes[call.first]
        pointers = [
            self._whole(item) if isinstance(item, str) else self._value(item)
            for item in (call.first, *call.arguments)
        ]
        self._launch(verb, call.make(size // ITEM_BYTES[call.dtype]), iter(pointers))

    def _before(self) -> None:
        """Add what each iteration begins with."""

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
        for number, (tensor, dtype) in enumerate(self._returned()):
            size = ITEM_BYTES[dtype] * math.prod(tensor.shape)
            name = f"output_{number}"
            self._lines += [
                "",
                f'plan.layer("output {number}", "copy");',
                f"const Value {name} = plan.output({number}, {size});",
            ]
            self._launch("plan.run", copy_out(tensor, dtype), iter([self._value(tensor), name]))

    def _returned(self) -> Iterator[tuple[Tensor, str]]:
        """Yield what callers get, and the type in which they do."""
        raise NotImplementedError


class _InferenceSource(PlanSource):
    def __init__(self, written: Written, parts: Parts) -> None:
        given = written.built.inputs.items()
        inputs = {item.buffer: int(target) for (kind, target), item in given if kind == "input"}
        super().__init__(written, inputs, parts)

    def _returned(self) -> Iterator[tuple[Tensor, str]]:
        return zip(made_outputs(self._built), self._outputs, strict=True)
