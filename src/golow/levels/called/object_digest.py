"""Writes a Python object as text that two processes have in common if, and only if, it behaves the
same in both: values, containers, instances by their attributes, functions by their code and by what
that refers to. What it does not know how to write, it refuses: `Unknown`."""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import importlib.util
import logging
import os
import pathlib
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    UnionType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np
import torch
from torch import Tensor

STANDARD = sys.stdlib_module_names - {"__main__"}
KNOWN = frozenset({"torch", "transformers", "numpy", "golow", *STANDARD})
"""Packages whose code is known by a version, or, for golow, by all its files."""
PLAIN = (
    bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, slice,
    pathlib.PurePath, re.Pattern, torch.dtype, torch.device, torch.layout, torch.memory_format,
    torch.Size,
)  # fmt: skip
COMPILED = (
    BuiltinFunctionType, WrapperDescriptorType, MethodDescriptorType, GetSetDescriptorType,
    MemberDescriptorType, type(torch.ops.aten), type(torch.ops.aten.add),
    type(torch.ops.aten.add.default), np.ufunc,
)  # fmt: skip
"""Functions in C and their like, which have no state, by their names."""
SURROUNDINGS = frozenset({"environ", "getenv", "environb"})
"""Names by which code reads what no object holds."""
NO_PART = frozenset({
    "__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "__static_attributes__",
    "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__",
    "__orig_bases__", "__parameters__", "__dataclass_fields__", "__dataclass_params__",
    "__match_args__",
})  # fmt: skip
"""Attributes of classes that do not change what their methods do."""
OF_A_PROCESS = frozenset({"_original_object_hash"})
"""Attributes that differ between processes and change nothing: transformers' hash of settings."""
IN_PYTHON = ("dataclasses", "types")
"""Modules of the standard library whose instances have all their state in attributes."""
Text = Iterator[str]


class Unknown(Exception):
    """An object of a kind that cannot be written."""


def written(item: Any, weights: Collection[int]) -> Text:
    """Yield the text. weights: ids of tensors of which only the form counts. Raises `Unknown`."""
    yield from _Writer(weights).object(item)


class _Writer:
    def __init__(self, weights: Collection[int]) -> None:
        self._weights = weights
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no id is used twice

    def object(self, item: Any) -> Text:
        """The text of any object; of one that was written before, its number."""
        if isinstance(item, PLAIN) and not isinstance(item, enum.Enum):
            yield f"{type(item).__name__} {item!r}\n"
            return
        if (number := self._seen.get(id(item))) is not None:
            yield f"again {number}\n"
            return
        self._seen[id(item)] = len(self._seen)
        self._kept.append(item)
        yield from self._new(item)

    def _new(self, item: Any) -> Text:
        if isinstance(item, Tensor):
            yield self._tensor(item)
        elif isinstance(item, type):
            yield from self._class(item)
        elif isinstance(item, FunctionType):
            yield from self._function(item)
        elif isinstance(item, MethodType):
            yield from self._parts("method", item.__func__, item.__self__)
        elif isinstance(item, type(_cached)):
            yield from self._parts("cached", item.__wrapped__)
        elif isinstance(item, functools.partial):
            yield from self._parts("partial", item.func, item.args, item.keywords)
        elif isinstance(item, property):
            yield from self._parts("property", item.fget)
        elif isinstance(item, (staticmethod, classmethod)):
            yield from self._parts(type(item).__name__, item.__func__)
        elif isinstance(item, ModuleType):
            yield f"module {item.__name__}\n"
        elif isinstance(item, enum.Enum):
            yield from self._parts("enum", type(item), item.name)
        elif isinstance(item, logging.Logger):
            yield f"logger {item.name}\n"
        elif isinstance(item, (UnionType, GenericAlias)) or type(item).__module__ == "typing":
            yield f"type {item!r}\n"
        elif isinstance(item, (dict, Mapping)):
            yield from self._parts(
                "mapping", type(item), *(x for pair in item.items() for x in pair)
            )
        elif isinstance(item, (list, tuple)):
            yield from self._parts(f"sequence {len(item)}", type(item), *item)
        elif isinstance(item, (set, frozenset)):
            yield from self._set(item)
        elif isinstance(item, COMPILED):
            yield f"compiled {item!r}\n" if "0x" not in repr(item) else f"{_name(item)}\n"
        else:
            yield from self._instance(item)

    def _parts(self, what: str, *parts: Any) -> Text:
        yield f"{what} of {len(parts)}\n"
        for part in parts:
            yield from self.object(part)

    def _tensor(self, item: Tensor) -> str:
        form = f"tensor {tuple(item.shape)} {item.dtype} {item.requires_grad}"
        return f"{form}\n" if id(item) in self._weights else f"{form} {_content(item)}\n"

    def _set(self, item: Collection[Any]) -> Text:
        if not all(isinstance(one, PLAIN) for one in item):
            raise Unknown(f"a set of {item}")
        yield from self._parts("set", *sorted(item, key=repr))

    def _instance(self, item: Any) -> Text:
        if type(item) is object:  # a mark that code compares with
            yield "mark\n"
            return
        if not hasattr(item, "__dict__") and hasattr(type(item), "__get__"):
            yield f"descriptor {type(item).__name__} {getattr(item, '__name__', '')}\n"
            return
        if not hasattr(item, "__dict__"):
            raise Unknown(f"{type(item).__name__}")
        if _top(type(item).__module__) in STANDARD and type(item).__module__ not in IN_PYTHON:
            raise Unknown(f"{type(item).__name__}")  # its state may be elsewhere
        state = {name: value for name, value in vars(item).items() if name not in OF_A_PROCESS}
        yield from self._parts("instance", type(item), state)

    def _class(self, item: type) -> Text:
        """Identity of a known class: its name and the attributes that others have set on it."""
        yield f"class {_name(item)}\n"
        known = _is_known(item)
        for name, value in sorted(vars(item).items()):
            if name in NO_PART or name.startswith("_abc_"):
                continue
            foreign = isinstance(value, FunctionType) and not _is_known(value)
            if foreign or not known:
                yield f"{name}\n"
                yield from self.object(value)
        yield from self._parts("bases", *item.__bases__)

    def _function(self, item: FunctionType) -> Text:
        if _is_known(item):
            yield f"function {_name(item)}\n"
            return
        cells = [_content_of(cell) for cell in item.__closure__ or ()]
        yield from self._parts("function", item.__defaults__, item.__kwdefaults__, *cells)
        yield from self._code(item.__code__, item.__globals__)

    def _code(self, code: CodeType, scope: Mapping[str, Any]) -> Text:
        if SURROUNDINGS.intersection(code.co_names):
            yield from self._environment(code)
        yield f"code {code.co_code.hex()} {code.co_varnames} {code.co_names} {code.co_flags}\n"
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from self._code(constant, scope)
            else:
                yield from self.object(constant)
        for name, module in _imported(code, scope):
            yield f"import {name} {module is None}\n"
            if module is not None:
                yield from self._read_from(module, code)
        for name in sorted(set(code.co_names) & scope.keys()):
            yield f"global {name}\n"
            value = scope[name]
            yield from self.object(value)
            if isinstance(value, ModuleType):
                yield from self._read_from(value, code)

    def _environment(self, code: CodeType) -> Text:
        """The variables that code names. Raises `Unknown` for code that names none."""
        names = sorted(
            item for item in code.co_consts if isinstance(item, str) and item.isidentifier()
        )
        if not names:
            raise Unknown(f"{code.co_name} reads the environment")
        for name in names:
            yield f"variable {name} {os.environ.get(name)!r}\n"

    def _read_from(self, module: ModuleType, code: CodeType) -> Text:
        """Write the attributes of a module whose names the code has: it may read them."""
        if _top(module.__name__) in KNOWN:
            return
        for name in sorted(set(code.co_names) & vars(module).keys()):
            yield f"{module.__name__}.{name}\n"
            yield from self.object(vars(module)[name])


def _imported(code: CodeType, scope: Mapping[str, Any]) -> Iterator[tuple[str, ModuleType | None]]:
    """The modules that the code imports when it runs, by name. One that is not there has not been
    needed by the runs before."""
    level = 0
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_CONST" and isinstance(step.argval, int):
            level = step.argval
        if step.opname != "IMPORT_NAME" or (_top(step.argval) in KNOWN and not level):
            continue
        try:
            relative = "." * level + step.argval
            name = importlib.util.resolve_name(relative, scope.get("__package__") or None)
        except ImportError as error:
            raise Unknown(str(error)) from error
        yield name, sys.modules.get(name)


def _content(tensor: Tensor) -> str:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().tobytes()).hexdigest()


def _content_of(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


@functools.cache
def _cached() -> None:
    """For the type of what `functools.cache` makes."""


def _is_known(item: Any) -> bool:
    return _top(getattr(item, "__module__", None) or "") in KNOWN


def _top(name: str) -> str:
    return name.partition(".")[0]


def _name(item: Any) -> str:
    return f"{getattr(item, '__module__', '')}.{getattr(item, '__qualname__', '?')}"
