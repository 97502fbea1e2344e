"""ATen's operators in C++: their names, headers and schemas.

``aten.add.Tensor`` is ``at::_ops::add_Tensor::call`` in ``<ATen/ops/add_ops.h>``, the same entry
to the dispatcher that the Python binding calls.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from golow.levels.libtorch.arguments import Names, NotEmitted, argument_text
from golow.lower.ir.graph import Argument, Node, Ref

# Random operators whose randomness the program can switch off: position of the probability.
DROPOUT = {"aten.native_dropout.default": 1, "aten.dropout.default": 1}
DROPOUT_SCALE = {"aten.native_dropout_backward.default": 2}


class Parameter(NamedTuple):
    """One parameter of a schema. size: the length of a list of fixed size."""

    name: str
    kind: str
    size: int | None
    default: Any
    required: bool
    written: bool


class Operator(NamedTuple):
    """One overload: its C++ name and header, and its schema, also as a line of text.

    aliases: a result may share an argument's memory. random: it draws random numbers.
    """

    symbol: str
    header: str
    schema: str
    parameters: tuple[Parameter, ...]
    returns: tuple[str, ...]
    aliases: bool
    random: bool


# Python's operators on integers and truth values: their headers are not in PyTorch's packages, and
# these do the same.
NAMED_OTHERWISE = {"__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor"}


def find_operator(name: str) -> Operator:
    """The overload with that full name (``aten.conv2d.default``). Raises `NotEmitted`."""
    namespace, _, rest = name.partition(".")
    packet, _, overload = rest.partition(".")
    if namespace != "aten":
        raise NotEmitted(f"{name} is not one of ATen's operators")
    packet = NAMED_OTHERWISE.get(packet, packet)
    try:
        found = getattr(getattr(torch.ops.aten, packet), overload)
        schema = found._schema
    except AttributeError as error:
        raise NotEmitted(f"this PyTorch has no operator {name}") from error
    symbol = packet if overload == "default" else f"{packet}_{overload}"
    return Operator(
        symbol=symbol,
        header=_header(packet, symbol),
        schema=str(schema).removeprefix("aten::"),
        parameters=tuple(_parameter(argument) for argument in schema.arguments),
        returns=tuple(_kind(item.real_type) for item in schema.returns),
        aliases=any(item.alias_info is not None for item in schema.returns),
        random=torch.Tag.nondeterministic_seeded in found.tags,
    )


def call_text(node: Node, operator: Operator, names: Names) -> list[str]:
    """The C++ arguments of the node's call, defaults filled in. Raises `NotEmitted`."""
    if len(node.arguments) > len(operator.parameters):
        raise NotEmitted(f"{node.op} takes {len(operator.parameters)} arguments")
    unknown = set(node.keywords) - {parameter.name for parameter in operator.parameters}
    if unknown:
        raise NotEmitted(f"{node.op} has no argument {', '.join(sorted(unknown))}")
    given = given_arguments(node, operator)
    texts = [argument_text(given[p.name], p.kind, p.size, names) for p in operator.parameters]
    if node.op in DROPOUT_SCALE:
        texts[DROPOUT_SCALE[node.op]] = f"dropout_scale({texts[DROPOUT_SCALE[node.op]]})"
    if not operator.random or _certain(given):
        return texts
    if node.op not in DROPOUT:
        raise NotEmitted(f"{node.op} is random and cannot be switched off for the check")
    texts[DROPOUT[node.op]] = f"probability({texts[DROPOUT[node.op]]})"
    return texts


def given_arguments(node: Node, operator: Operator) -> dict[str, Argument | Any]:
    """Every parameter's argument by name: given by position, by keyword, or the default."""
    given: dict[str, Argument | Any] = {}
    for position, parameter in enumerate(operator.parameters):
        if position < len(node.arguments):
            given[parameter.name] = node.arguments[position]
        elif parameter.name in node.keywords:
            given[parameter.name] = node.keywords[parameter.name]
        elif parameter.required:
            raise NotEmitted(f"{node.op} is called without its argument {parameter.name}")
        else:
            given[parameter.name] = parameter.default
    return given


def written_values(node: Node, operator: Operator) -> set[str]:
    """Names of the values that the operator changes in place."""
    given = given_arguments(node, operator)
    written = (given[p.name] for p in operator.parameters if p.written)
    return {argument.name for argument in written if isinstance(argument, Ref)}


def _certain(given: dict[str, Argument | Any]) -> bool:
    """True if the call is deterministic: not training, or a probability of zero."""
    switches = [given[name] for name in ("train", "training") if name in given]
    chances = [given[name] for name in ("p", "dropout_p", "dropout") if name in given]
    return False in switches or (bool(chances) and all(chance == 0 for chance in chances))


def _parameter(argument: Any) -> Parameter:
    return Parameter(
        name=argument.name,
        kind=_kind(argument.real_type),
        size=argument.N,
        default=argument.default_value if argument.has_default_value() else None,
        required=not argument.has_default_value(),
        written=argument.alias_info is not None and argument.alias_info.is_write,
    )


def _kind(kind: Any) -> str:
    """A type as the schema writes it; the type's own text does not distinguish SymInt."""
    if kind.kind() == "OptionalType":
        return f"{_kind(kind.getElementType())}?"
    if kind.kind() == "ListType":
        return f"{_kind(kind.getElementType())}[]"
    return "SymInt" if kind.kind() == "SymIntType" else str(kind)


@cache
def _header(packet: str, symbol: str) -> str:
    """The header that declares the operator; in-place and functional forms share the plain one."""
    folder = Path(torch.__file__).parent / "include"
    for base in (packet, packet.rstrip("_"), packet.removesuffix("_functional")):
        header = f"ATen/ops/{base}_ops.h"
        path = folder / header
        if path.is_file() and f"struct TORCH_API {symbol} {{" in path.read_text():
            return header
    raise NotEmitted(f"ATen's C++ headers do not declare {symbol}")
