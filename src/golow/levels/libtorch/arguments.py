"""Arguments of the graph as C++ expressions, by the types of the operator's schema.

A list is written in braces: the same text initialises ``at::IntArrayRef`` and
``c10::SymIntArrayRef``, because an integer converts to ``c10::SymInt``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from golow.lower.ir.graph import Argument, Ref, Symbol
from golow.records.record import Record

Names = Mapping[str, str]

DTYPES = {
    "float64": "at::kDouble",
    "float32": "at::kFloat",
    "float16": "at::kHalf",
    "bfloat16": "at::kBFloat16",
    "int64": "at::kLong",
    "int32": "at::kInt",
    "int16": "at::kShort",
    "int8": "at::kChar",
    "uint8": "at::kByte",
    "bool": "at::kBool",
    "complex64": "at::kComplexFloat",
    "complex128": "at::kComplexDouble",
}
DEVICES = {"cpu": "at::kCPU", "cuda": "at::kCUDA"}
MEMORY_FORMATS = {
    "contiguous_format": "at::MemoryFormat::Contiguous",
    "preserve_format": "at::MemoryFormat::Preserve",
    "channels_last": "at::MemoryFormat::ChannelsLast",
    "channels_last_3d": "at::MemoryFormat::ChannelsLast3d",
}


class NotEmitted(Exception):
    """The argument has no C++ form here; the message states why."""


class PerSample(Record, frozen=True, kw_only=True):
    """An integer argument that is ``times`` the number of samples in the batch."""

    times: int


class Seed(Record, frozen=True, kw_only=True):
    """A number argument that is the gradient of the loss: the loss scale."""


def argument_text(argument: Argument | Any, kind: str, size: int | None, names: Names) -> str:
    """The C++ expression of one argument.

    kind: the schema's type (``SymInt[]?``). size: the length of a list of fixed size. names: maps
    the graph's values to C++ names. Raises `NotEmitted`.
    """
    if kind.endswith("?"):
        return "none" if argument is None else _given_optional(argument, kind[:-1], size, names)
    if kind.endswith("[]"):
        return _list_text(argument, kind[:-2], size, names)
    if kind not in _WRITERS:
        raise NotEmitted(f"an argument of type {kind} cannot be written in C++ yet")
    try:
        return _WRITERS[kind](argument, names)
    except (KeyError, TypeError, ValueError) as error:
        raise NotEmitted(f"{argument!r} is not an argument of type {kind}") from error


def string_text(text: str) -> str:
    """A C++ string literal; bytes that are not plain ASCII are written as octal escapes."""
    plain = re.compile(rb"[ !#-\[\]-~]")
    escaped = (
        chr(byte) if plain.match(bytes([byte])) else f"\\{byte:03o}" for byte in text.encode()
    )
    return f'"{"".join(escaped)}"'


def _given_optional(argument: Any, kind: str, size: int | None, names: Names) -> str:
    text = argument_text(argument, kind, size, names)
    if kind == "float[]":
        return f"at::ArrayRef<double>({text})"
    if text == "{}":  # which would mean "none" here
        return "c10::SymIntArrayRef()" if kind == "SymInt[]" else "at::IntArrayRef()"
    return text


def _list_text(argument: Any, kind: str, size: int | None, names: Names) -> str:
    # If the schema fixes the size, one number applies to all elements.
    items = argument if isinstance(argument, (tuple, list)) else (argument,) * (size or 1)
    texts = [argument_text(item, kind, None, names) for item in items]
    body = "{" + ", ".join(texts) + "}"
    if kind == "Tensor?":
        return f"c10::List<std::optional<Tensor>>({body})"
    if kind == "Tensor":
        return f"at::TensorList({body})"
    return body


def _tensor(argument: Any, names: Names) -> str:
    if argument is None:
        return "Tensor()"
    if isinstance(argument, Ref):
        return names[argument.name]
    return f"number({_number(argument, names)})"


def _integer(argument: Any, _: Names) -> str:
    if isinstance(argument, PerSample):
        return "samples" if argument.times == 1 else f"{argument.times} * samples"
    if not isinstance(argument, int):
        raise TypeError(argument)
    value = int(argument)
    # C++ has no negative literals: the smallest integer cannot be written as one.
    return f"({value + 1} - 1)" if value == -(2**63) else str(value)


def _float(argument: Any, _: Names) -> str:
    value = float(argument.name if isinstance(argument, Symbol) else _plain(argument))
    if math.isnan(value):
        return "std::numeric_limits<double>::quiet_NaN()"
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}std::numeric_limits<double>::infinity()"
    return repr(value)


def _bool(argument: Any, _: Names) -> str:
    return "true" if _plain(argument) else "false"


def _number(argument: Any, names: Names) -> str:
    if isinstance(argument, Seed):
        return "seed()"
    if isinstance(argument, bool):
        return _bool(argument, names)
    return (_integer if isinstance(argument, (int, PerSample)) else _float)(argument, names)


def _plain(argument: Any) -> bool | int | float:
    if isinstance(argument, (bool, int, float)):
        return argument
    raise TypeError(argument)


def _symbol(texts: Mapping[str, str], enumeration: str) -> Callable[[Any, Names], str]:
    """A writer for one kind of torch's named constants; a schema's default is a plain number."""

    def write(argument: Any, _: Names) -> str:
        if isinstance(argument, Symbol):
            return texts[argument.name]
        return f"static_cast<{enumeration}>({int(_plain(argument))})"

    return write


def _device(argument: Any, _: Names) -> str:
    name = argument.name if isinstance(argument, Symbol) else argument
    return DEVICES.get(name, f"at::Device({string_text(name)})")


def _string(argument: Any, _: Names) -> str:
    if not isinstance(argument, str):
        raise TypeError(argument)
    return string_text(argument)


_WRITERS: dict[str, Callable[[Any, Names], str]] = {
    "Tensor": _tensor,
    "int": _integer,
    "SymInt": _integer,
    "float": _float,
    "bool": _bool,
    "number": _number,
    "str": _string,
    "Device": _device,
    "ScalarType": _symbol(DTYPES, "at::ScalarType"),
    "Layout": _symbol({"strided": "at::kStrided"}, "at::Layout"),
    "MemoryFormat": _symbol(MEMORY_FORMATS, "at::MemoryFormat"),
}
