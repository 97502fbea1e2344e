"""The examples of all operators, put together, and which of them are missing.

A file of ``tests/lower/operators/examples`` has the examples of the operator file of that name:

* RECORDS: a record of each of its classes.
* CALLS: for each overload of ATen's that it spells, how to draw a call.
* LEFT: calls that its spellings decline, by what is special about them.
* LAYERS: layers that become its operator, for images of four channels; those of an activation with
  its numbers.
* GRADIENTS: for each class that is a gradient, how to draw what is differentiated.
* NUMBERS: of an activation that takes any, some to try.
* NOT_IMPLEMENTED: by level, the classes that it does not compute.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from torch import nn

import golow.lower.operators
from golow.lower.ir.operator import Operator, modules_in
from support.graphs.example_files import examples_in

EXAMPLES = examples_in("operators")

PLACE = "tests/lower/operators/examples"


def found(name: str) -> dict[str, Any]:
    """The entries of the mappings with this name in all files."""
    return {key: item for own in EXAMPLES.values() for key, item in getattr(own, name, {}).items()}


RECORDS: dict[str, Operator] = {
    record.op(): record for own in EXAMPLES.values() for record in getattr(own, "RECORDS", ())
}
CALLS = found("CALLS")
GRADIENTS = found("GRADIENTS")
LEFT = {
    f"{path}: {what}": call
    for path, own in EXAMPLES.items()
    for what, call in getattr(own, "LEFT", {}).items()
}
LAYERS: list[tuple[str, nn.Module]] = [
    (f"{path}: {layer}", layer)
    for path, own in EXAMPLES.items()
    for layer in getattr(own, "LAYERS", ())
]


def not_implemented(level: str) -> set[str]:
    """The operators that the level does not compute, by their names in graphs."""
    kinds = [getattr(own, "NOT_IMPLEMENTED", {}).get(level, ()) for own in EXAMPLES.values()]
    return {kind.op() for own in kinds for kind in own}


# ---------------------------------------------------------------- what is missing


def definitions() -> dict[str, ModuleType]:
    """The files of operators, by their paths in ``src/golow/lower/operators``."""
    package = golow.lower.operators
    return {
        module.__name__.removeprefix(f"{package.__name__}.").replace(".", "/"): module
        for module in modules_in(package)
        if not hasattr(module, "__path__")
    }


def missing(path: str, defined: ModuleType, examples: Mapping[str, ModuleType]) -> list[str]:
    """What the examples of an operator file lack, each with the place where it belongs."""
    kinds, spelled = kinds_of(defined), getattr(defined, "SPELLINGS", {}).keys()
    function = getattr(defined, "FUNCTION", None)
    if path not in examples:
        return [f"{PLACE}/{path}.py is missing: the examples of lower/operators/{path}.py"]
    own = vars(examples[path])
    said = [*_further(own, spelled)]
    recorded = [type(record) for record in own.get("RECORDS", ())]
    said += [f"RECORDS lacks one {kind.__name__}(...)" for kind in kinds if kind not in recorded]
    said += [f"CALLS lacks {op}" for op in spelled if op not in own.get("CALLS", {})]
    said += [
        f"GRADIENTS lacks {kind.__name__}"
        for kind in kinds
        if kind.gradient_of and kind not in own.get("GRADIENTS", {})
    ]
    if function and not own.get("LAYERS"):
        said.append("LAYERS lacks a layer with the activation")
    if function and len(inspect.signature(function.forward).parameters) > 1 + _tried(own):
        said.append("NUMBERS lacks numbers to try the activation with")
    return [f"{PLACE}/{path}.py: {each}" for each in said]


def kinds_of(defined: ModuleType) -> list[type[Operator]]:
    """The classes of operators that the file defines."""
    return [
        item
        for item in vars(defined).values()
        if isinstance(item, type)
        and issubclass(item, Operator)
        and item.__module__ == defined.__name__
    ]


def _further(own: Mapping[str, Any], spelled: Any) -> Iterator[str]:
    for op in own.get("CALLS", {}):
        if op not in spelled:
            yield f"CALLS has {op}, which the operator's file does not spell"


def _tried(own: Mapping[str, Any]) -> int:
    """How many numbers each trial gives the activation."""
    return min((len(numbers) for numbers in own.get("NUMBERS", ())), default=0)
