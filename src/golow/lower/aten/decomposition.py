"""Decomposition: replaces ATen's calls outside the vocabulary with simpler ones.

Three sources, in this order: golow's own definitions (``decompositions/``), PyTorch's table, and
the composite definitions that the dispatcher has. Each step unfolds one call by one level; what it
gives is looked at again, so that an operation that the vocabulary knows stays whole wherever it
appears. What has no definition stays, and the levels refuse it by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from operator import getitem
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, fx
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from golow.lower.aten.canonical import operator_of
from golow.lower.aten.functional import make_functional
from golow.lower.aten.recurrence_calls import in_vocabulary
from golow.lower.aten.translation import argument, value_of
from golow.lower.decompositions import own_definitions
from golow.lower.ir.graph import (
    Argument,
    Graph,
    GraphInput,
    GraphOutput,
    Node,
    Ref,
    Scalar,
    Symbol,
    Value,
)
from golow.lower.ir.operator import PREFIX, spellings
from golow.lower.ir.rewriting import Links, Names, changes_in_place, rewritten
from golow.lower.ir.verify import operation
from golow.records.errors import GolowError

# Views that demand a layout, which definitions do not promise.
STRICT = {
    "aten.view.default": "aten.reshape.default",
    "aten._unsafe_view.default": "aten.reshape.default",
}
MOST_ROUNDS = 12  # a definition that never ends is a fault
_MOST_TEMPLATES = 10_000  # some KB each; networks have dozens that differ


def decompose(graph: Graph) -> Graph:
    """Unfold every call that the vocabulary does not know, as far as there are definitions."""
    return unfold(graph, lambda node, links: operator_of(node, links) is None)


def unfold(graph: Graph, chosen: Callable[[Node, Links], bool]) -> Graph:
    """Unfold the calls of ATen that are chosen, as far as there are definitions."""
    names = Names(graph)
    graph = lenient(graph)
    for _ in range(MOST_ROUNDS):
        links = Links(graph)
        replaced: dict[int, Sequence[Node]] = {}
        renamed: dict[str, str] = {}
        for position, node in enumerate(graph.nodes):
            if node.op.startswith(PREFIX) or changes_in_place(node) or not chosen(node, links):
                continue
            template = _template(node, links)
            if template is not None:
                nodes, same = instance(template, node, names)
                replaced[position] = nodes
                renamed |= same
        if not replaced:
            break
        graph = rewritten(graph, replaced, followed(renamed))
    return graph


def lenient(graph: Graph) -> Graph:
    """The graph with reshapes for views: what replaces a call may be in another order."""
    nodes = (msgspec.structs.replace(n, op=STRICT.get(n.op, n.op)) for n in graph.nodes)
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


class Template(NamedTuple):
    """Nodes to which a call unfolds. nodes: with placeholders for names: ``%3`` is the argument of
    that position among the call's values, ``#name`` a value made here. outputs: for each of the
    call's values the name of what it is; None for one that nothing gives."""

    nodes: tuple[Node, ...]
    outputs: tuple[str | None, ...]


def signature(node: Node, links: Links) -> object:
    """Key of the definition: operation, shapes, types and numbers."""
    values = tuple(
        (links.values[name].shape, links.values[name].dtype) for name in node.references()
    )
    read = tuple(value is not None for value in node.outputs)
    same = tuple(list(node.references()).index(name) for name in node.references())
    plain = msgspec.structs.replace(
        _without_names(node), name="", outputs=(), module="", absorbed=(), phase="forward"
    )
    return (msgspec.json.encode(plain), values, read, same, torch.get_default_dtype())


def _without_names(node: Node) -> Node:
    counter = iter(range(10**6))

    def scalar(item: Scalar) -> Scalar:
        return Ref(name=f"%{next(counter)}") if isinstance(item, Ref) else item

    def shown(given: Argument) -> Argument:
        return tuple(scalar(i) for i in given) if isinstance(given, tuple) else scalar(given)

    return msgspec.structs.replace(
        node,
        arguments=tuple(shown(a) for a in node.arguments),
        keywords={name: shown(a) for name, a in node.keywords.items()},
    )


# ---------------------------------------------------------------- unfolding one call


_TEMPLATES: dict[object, Template | None] = {}


def _template(node: Node, links: Links) -> Template | None:
    """Template of a call: traced once, for all graphs that have one like it."""
    key = signature(node, links)
    if key not in _TEMPLATES:
        if len(_TEMPLATES) >= _MOST_TEMPLATES:
            _TEMPLATES.clear()
        _TEMPLATES[key] = _unfolded(node, links)
    return _TEMPLATES[key]


def _unfolded(node: Node, links: Links) -> Template | None:
    """Graph of a call by the first definition that applies; None if there is none."""
    for definition in _definitions(node.op):
        with suppress(DoesNotApplyError):
            template = template_of(traced_calls(definition, node, links), node)
            template = _functional(template, [links.values[n] for n in node.references()])
            if template is not None:
                return template
    return None


def _definitions(op: str) -> Iterator[Callable[..., Any]]:
    """golow's, that of PyTorch's table, and the dispatcher's."""
    overload = operation(op)
    if (own := own_definitions().get(op)) is not None:
        yield own
    if overload in decomposition_table:
        yield decomposition_table[overload]
    if overload._can_decompose():
        yield overload


def traced_calls(definition: Callable[..., Any], node: Node, links: Links) -> fx.GraphModule:
    """The calls that a definition makes, without any that change a tensor in place. Raises
    `DoesNotApplyError` for arguments that it does not take."""
    placeholders = _without_names(node)
    values = [links.values[name] for name in node.references()]

    def call(*tensors: Tensor) -> Any:
        arguments = [_concrete(item, tensors) for item in placeholders.arguments]
        keywords = {name: _concrete(item, tensors) for name, item in placeholders.keywords.items()}
        result = definition(*arguments, **keywords)
        if result is NotImplemented:
            raise DoesNotApplyError
        return tuple(result) if isinstance(result, tuple) else result  # not a named one

    try:
        with FakeTensorMode(allow_non_fake_inputs=True), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = [torch.empty(v.shape, dtype=getattr(torch, v.dtype)) for v in values]
            traced = make_fx(functionalize(call), _allow_non_fake_inputs=True)(*given)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, AssertionError) as error:
        # PyTorch itself cannot trace it; the call is refused by its own name.
        raise DoesNotApplyError from error
    traced.graph.eliminate_dead_code()
    return traced


class DoesNotApplyError(Exception):
    """A definition does not take these arguments."""


def _concrete(given: Argument, tensors: Sequence[Tensor]) -> Any:
    if isinstance(given, tuple):
        return [_concrete_scalar(item, tensors) for item in given]
    return _concrete_scalar(given, tensors)


def _concrete_scalar(item: Scalar, tensors: Sequence[Tensor]) -> Any:
    if isinstance(item, Ref):
        return tensors[int(item.name[1:])]
    if isinstance(item, Symbol):
        if item.kind == "float":
            return float(item.name)
        # Fake tensors are on the CPU, wherever the model will run.
        return torch.device("cpu") if item.kind == "device" else getattr(torch, item.name)
    return item


def template_of(traced: fx.GraphModule, node: Node) -> Template | None:
    names: dict[Any, str] = {}
    nodes: list[Node] = []
    placeholders = 0
    results: Any = ()
    for item in traced.graph.nodes:
        if item.op == "placeholder":
            names[item] = f"%{placeholders}"
            placeholders += 1
        elif item.op == "output":
            results = item.args[0]
        elif item.op == "get_attr":
            return None  # a tensor that the definition brings along
        elif item.target is getitem:
            if (item.args[0], item.args[1]) not in names:
                return None
            names[item] = names[(item.args[0], item.args[1])]
        elif "val" not in item.meta:
            return None  # a call for its effect, such as a check of error codes
        else:
            try:
                nodes.append(_node(item, names))
            except GolowError:
                return None  # an argument that a graph cannot hold
    if len(nodes) == 1 and _is_same_call(nodes[0], _without_names(node)):
        return None  # it is its own definition
    if any(item.op.startswith("prims.") and item.op not in spellings() for item in nodes):
        return None  # another name for the same
    listed = results if isinstance(results, list | tuple) else (results,)
    outputs = tuple(names.get(item) if item is not None else None for item in listed)
    outputs = (*outputs, *(None,) * (len(node.outputs) - len(outputs)))
    return Template(tuple(nodes), outputs)


def _is_same_call(one: Node, other: Node) -> bool:
    """True if they differ in nothing but names: the gradient of a transposed convolution's weight
    is that of a convolution's, by the same operation with other arguments."""
    return (one.op, one.arguments, one.keywords) == (other.op, other.arguments, other.keywords)


def _functional(template: Template | None, given: Sequence[Value]) -> Template | None:
    """The graph without calls that change a tensor in place: the dispatcher's definitions have
    some, on separate tensors. given: the call's arguments. None where one remains."""
    if template is None or not any(changes_in_place(node) for node in template.nodes):
        return template
    graph = make_functional(
        Graph(
            name="definition",
            mode="infer",
            # As state, so that no argument is changed.
            inputs=tuple(
                GraphInput(
                    value=msgspec.structs.replace(value, name=f"%{index}"),
                    kind="parameter",
                    target=str(index),
                )
                for index, value in enumerate(given)
            ),
            nodes=template.nodes,
            outputs=tuple(
                GraphOutput(name=name, kind="output", target=str(index))
                for index, name in enumerate(template.outputs)
                if name is not None
            ),
        )
    )
    if any(changes_in_place(node) for node in graph.nodes):
        return None
    found = {int(item.target): item.name for item in graph.outputs}
    return Template(graph.nodes, tuple(found.get(i) for i in range(len(template.outputs))))


def _node(item: fx.Node, names: dict[Any, str]) -> Node:
    result = item.meta["val"]
    several = isinstance(result, tuple | list)
    read = {user.args[1] for user in item.users if user.target is getitem}
    outputs: list[Value | None] = []
    for index, tensor in enumerate(result if several else (result,)):
        if tensor is None or (several and index not in read):
            outputs.append(None)
            continue
        name = f"#{item.name}" if index == 0 else f"#{item.name}:{index}"
        names[(item, index) if several else item] = name
        outputs.append(value_of(name, tensor))
    node = Node(
        name=f"#{item.name}",
        op=STRICT.get(str(item.target), str(item.target)),
        arguments=tuple(argument(given, names) for given in item.args),
        keywords={name: argument(given, names) for name, given in item.kwargs.items()},
        outputs=tuple(outputs),
        several=several,
    )
    return in_vocabulary(node)


# ---------------------------------------------------------------- putting it in place


def instance(
    template: Template, node: Node, names: Names
) -> tuple[tuple[Node, ...], dict[str, str]]:
    """The nodes of a call's definition, and what its values are called if they exist already."""
    known = {f"%{index}": name for index, name in enumerate(node.references())}
    same: dict[str, str] = {}
    for value, name in zip(node.outputs, template.outputs, strict=False):
        if value is None or name is None:
            continue
        if name in known:
            same[value.name] = known[name]
        else:
            known[name] = value.name
    nodes = []
    for item in template.nodes:
        for value in item.outputs:
            if value is not None and value.name not in known:
                known[value.name] = names.free(f"{node.name}_{_short(item.op)}")
        outputs = tuple(
            None if v is None else msgspec.structs.replace(v, name=known[v.name])
            for v in item.outputs
        )
        first = next((v.name for v in outputs if v is not None), "")
        nodes.append(
            msgspec.structs.replace(
                item,
                name=first or names.free(f"{node.name}_{_short(item.op)}"),
                arguments=tuple(_named(given, known) for given in item.arguments),
                keywords={key: _named(given, known) for key, given in item.keywords.items()},
                outputs=outputs,
                module=node.module,
                absorbed=node.absorbed,
                phase=node.phase,
            )
        )
    return tuple(_alive(nodes, node)), same


def _short(op: str) -> str:
    return op.split(".")[1].strip("_")


def _named(given: Argument, known: dict[str, str]) -> Argument:
    if isinstance(given, tuple):
        return tuple(_named_scalar(item, known) for item in given)
    return _named_scalar(given, known)


def _named_scalar(item: Scalar, known: dict[str, str]) -> Scalar:
    return Ref(name=known[item.name]) if isinstance(item, Ref) else item


def _alive(nodes: Sequence[Node], whole: Node) -> Iterator[Node]:
    """Nodes whose values are read, or are values of the call."""
    needed = {value.name for value in whole.outputs if value is not None}
    kept = []
    for node in reversed(nodes):
        if any(value is not None and value.name in needed for value in node.outputs):
            needed |= set(node.references())
            kept.append(node)
    yield from reversed(kept)


def followed(renamed: dict[str, str]) -> dict[str, str]:
    """Names of names, so that one look-up suffices."""
    found = {}
    for name, other in renamed.items():
        while other in renamed:
            other = renamed[other]
        found[name] = other
    return found
