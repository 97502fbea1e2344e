"""Writes a graph as one C++ file: a straight line of calls to ATen's operators, and nothing else.

The rest of the program is in ``sources/``. Shapes appear only in comments, so that one compiled
inference program serves every batch size: see `without_comments`. A training step contains the
batch size in some of its arguments; `golow.levels.libtorch.batch_size` finds them.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from golow.levels.libtorch.arguments import DTYPES, NotEmitted, PerSample, Seed, string_text
from golow.levels.libtorch.names import CppNames, value_names
from golow.levels.libtorch.operators import Operator, call_text, find_operator, written_values
from golow.levels.libtorch.placement import on_device
from golow.levels.libtorch.running_statistics import in_place, written_in_place
from golow.lower.ir.graph import Graph, Node, Ref, Symbol, Value
from golow.lower.operators.loss_gradient import LossGradient
from golow.records.errors import Unsupported
from golow.records.workload import Device

ALIASES = ("aten.detach.default", "aten.alias.default")
MEMBERS = {"parameter": "Parameter", "buffer": "Buffer", "constant": "Constant"}
# Where lists of tensors are defined. These headers take longer to compile than the rest.
LISTS = {"Tensor[]": "ATen/core/IListRef.h", "Tensor?[]": "ATen/core/List.h"}
LINE_LENGTH = 100


def emit_program(graph: Graph, device: Device = "cpu", products: str = "float32") -> str:
    """The text of ``program.cpp``, a `golow::Program` (see ``sources/program.h``) for the device.

    products: the dtype of the products in a training step with `golow.lower.aten.autocast`'s casts;
    in float16 the step scales its loss. Raises `Unsupported` with the node and its layer if an
    operation has no C++ form.
    """
    network = _network(graph, device, products)
    state, step = list(network.state_lines()), list(network.step_lines())
    kind = "true" if graph.mode == "train" else "false"
    if products != "float32":
        kind += f", {DTYPES[products]}"
    lines = [
        *_head(graph, network.operators),
        f"struct {network.struct} final : golow::Program {{",
        f"  {network.struct}() : Program({kind}) {{}}",
        "  std::vector<Operation> operations() const override;",
        "",
        *state,
        "",
        "  void step(const Batch& batch, Result& result) override {",
        *step,
        "  }",
        "};",
        "",
        *network.operation_lines(),
        "}  // namespace",
        "",
        "std::unique_ptr<golow::Program> golow::make_program() {",
        f"  return std::make_unique<{network.struct}>();",
        "}",
    ]
    return "\n".join(lines) + "\n"


def not_emitted(
    graph: Graph, device: Device = "cpu", products: str = "float32"
) -> Iterator[Unsupported]:
    """Every operation for which `emit_program` has no C++ form, in order; if all have one, what
    else the program cannot do."""
    network = _network(graph, device, products)
    refused = list(network.refused_calls())
    yield from refused
    if not refused:
        try:
            list(network.result_lines())
        except Unsupported as refusal:
            yield refusal


def _network(graph: Graph, device: Device, products: str) -> _Network:
    return _Network(on_device(_seeded(graph, scaled=products == "float16"), device))


def _seeded(graph: Graph, scaled: bool) -> Graph:
    """The training step with an ATen call for the gradient of the loss with respect to itself: one,
    or the loss scale, which is known only at run time."""

    def changed(node: Node) -> Node:
        seed = LossGradient.of(node)
        if seed is None:
            return node
        dtype = {"dtype": Symbol(kind="dtype", name=seed.dtype)}
        if scaled:
            return msgspec.structs.replace(
                node, op="aten.full.default", arguments=((), Seed()), keywords=dtype
            )
        return msgspec.structs.replace(
            node, op="aten.ones.default", arguments=((),), keywords=dtype
        )

    return msgspec.structs.replace(graph, nodes=tuple(map(changed, graph.nodes)))


def without_comments(code: str) -> str:
    """The code alone, on which the compiler's result depends."""
    # Strings are matched first, so that two slashes inside one do not start a comment.
    stripped = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*', lambda match: match[1] or "", code)
    return "\n".join(line.rstrip() for line in stripped.splitlines() if line.strip()) + "\n"


def _head(graph: Graph, operators: dict[str, Operator]) -> Iterator[str]:
    purpose = "one training step up to the gradients" if graph.mode == "train" else "inference"
    yield f"// {_comment(graph.name)}: {purpose}, {len(graph.nodes)} operations, written by golow."
    yield "//"
    yield "// Every statement is one call to ATen's dispatcher, the one that Python would make,"
    yield "// followed by the shapes of its results. A value is released after its last use."
    yield "//"
    yield "// A mark reads the clock while the layers are timed, and does nothing otherwise;"
    yield "// `operations`, at the end, states which operation each mark follows."
    yield '#include "program.h"'
    yield ""
    headers = {operator.header for operator in operators.values()}
    kinds = {p.kind for operator in operators.values() for p in operator.parameters}
    headers |= {LISTS[kind] for kind in kinds & LISTS.keys()}
    yield from (f"#include <{header}>" for header in sorted(headers))
    yield ""
    yield "// The operators, as PyTorch declares them:"
    for schema in sorted(operator.schema for operator in operators.values()):
        yield from textwrap.wrap(
            schema, LINE_LENGTH, initial_indent="//   ", subsequent_indent="//       "
        )
    yield ""
    yield "namespace {"
    yield ""
    yield "namespace ops = at::_ops;"
    yield "using namespace golow;"
    yield ""


class _Call(NamedTuple):
    """A call in three parts, so that a long one can be broken between its arguments."""

    opening: str
    arguments: list[str]
    closing: str = ")"


class _Network:
    """The writer of one graph: the names of its values, and how long they live."""

    def __init__(self, graph: Graph) -> None:
        self.written = written_in_place(graph)
        self.graph = in_place(graph, self.written)
        self.nodes = self.graph.nodes
        self.free_names = CppNames()
        self.struct = self.free_names.free(graph.name)
        self.names = value_names(self.graph, self.written, self.free_names)
        self.operators: dict[str, Operator] = {}
        self.inputs = {item.value.name: item for item in graph.inputs}
        self.leaving = {item.name for item in graph.outputs}
        self.producers = {v.name: n for n in self.nodes for v in n.outputs if v is not None}
        # By position, because the nodes of a layer that runs twice share their name.
        self.last_reader = {n: i for i, node in enumerate(self.nodes) for n in node.references()}

    # ------------------------------------------------------------ state

    def state_lines(self) -> Iterator[str]:
        """Parameters, buffers and constants as members of the program."""
        updated = {item.target for item in self.graph.outputs if item.kind == "buffer"}
        for kind, title in MEMBERS.items():
            for item in self.graph.inputs:
                if item.kind == kind:
                    mark = ", updated" if kind == "buffer" and item.target in updated else ""
                    name, key = self.names[item.value.name], string_text(item.target)
                    yield f"  {title} {name}{{*this, {key}{mark}}};  // {item.value}"

    def _member(self, kinds: tuple[str, ...], target: str) -> str:
        for item in self.graph.inputs:
            if item.kind in kinds and item.target == target:
                return self.names[item.value.name]
        raise Unsupported("libtorch", f"the step writes the {kinds[0]} {target} but never reads it")

    # ------------------------------------------------------------ the step

    def step_lines(self) -> Iterator[str]:
        """The body of ``step``: the batch, every node in order, and the results."""
        for item in self.graph.inputs:
            if item.kind in ("input", "target"):
                left = f"const Tensor& {self.names[item.value.name]}"
                yield f"    {left} = batch.{item.kind}({item.target});  // {item.value}"
        if any(isinstance(argument, PerSample) for argument in self._arguments()):
            yield "    const std::int64_t samples = batch.input(0).size(0);"
        place: tuple[str, str] | None = None
        for position, node in enumerate(self.nodes):
            if (node.module, node.phase) != place:
                place = (node.module, node.phase)
                yield ""
                yield f"    // {_place_text(node)}"
            yield from self._node_lines(node)
            yield from self._release_lines(node, position)
            yield f"    mark({position});"
        yield ""
        yield from self.result_lines()

    def refused_calls(self) -> Iterator[Unsupported]:
        """The operations that cannot be written in C++."""
        for node in self.nodes:
            if node.op not in ALIASES:
                try:
                    self._call(node)
                except Unsupported as refusal:
                    yield refusal

    def _arguments(self) -> Iterator[object]:
        """The arguments of all operations, with lists flattened."""
        for node in self.nodes:
            for argument in (*node.arguments, *node.keywords.values()):
                yield from argument if isinstance(argument, tuple) else (argument,)

    def _node_lines(self, node: Node) -> Iterator[str]:
        if node.op in ALIASES:
            yield from self._alias_lines(node)
            return
        operator, call = self._call(node)
        # A result that nothing reads gets no name, so that nothing keeps it alive.
        node = msgspec.structs.replace(node, outputs=tuple(map(self._wanted, node.outputs)))
        named = [self.names[value.name] for value in node.outputs if value is not None]
        if not named:
            yield from _statement("", call, node)
        elif operator.returns == ("Tensor[]",):
            yield from self._list_lines(node, call)
        elif not node.several:
            yield from _statement(f"auto {named[0]} = ", call, node)
        elif len(named) == 1:
            index = next(i for i, value in enumerate(node.outputs) if value is not None)
            call = call._replace(opening=f"std::get<{index}>({call.opening}", closing="))")
            yield from _statement(f"auto {named[0]} = ", call, node)
        else:
            places = [self._place(value) for value in node.outputs]
            yield f"    Tensor {', '.join(named)};"
            yield from _statement(f"std::tie({', '.join(places)}) = ", call, node)

    def _wanted(self, value: Value | None) -> Value | None:
        wanted = value is not None and (
            value.name in self.last_reader or value.name in self.leaving
        )
        return value if wanted else None

    def _alias_lines(self, node: Node) -> Iterator[str]:
        source, value = node.arguments[0], self._wanted(node.outputs[0])
        if isinstance(source, Ref) and value is not None:
            yield f"    auto {self.names[value.name]} = {self.names[source.name]};"

    def _list_lines(self, node: Node, call: _Call) -> Iterator[str]:
        """Parts of a tensor; the list must not keep parts alive that nothing reads."""
        parts = self.free_names.free(f"{node.name}_parts")
        yield from _statement(f"auto {parts} = ", call, node)
        for index, value in enumerate(node.outputs):
            if value is not None:
                yield f"    auto {self.names[value.name]} = {parts}.at({index});"
        yield f"    {parts}.clear();"

    def _call(self, node: Node) -> tuple[Operator, _Call]:
        try:
            operator = find_operator(node.op)
            arguments = call_text(node, operator, self.names)
            self._check(node, operator)
        except NotEmitted as error:
            raise Unsupported("libtorch", str(error), node.name, node.module) from error
        self.operators[node.op] = operator
        return operator, _Call(f"ops::{operator.symbol}::call(", arguments)

    def _check(self, node: Node, operator: Operator) -> None:
        if operator.returns != ("Tensor[]",) and not set(operator.returns) <= {"Tensor"}:
            raise NotEmitted(f"{node.op} returns something other than tensors")
        for name in written_values(node, operator):
            if name in self.inputs and self.inputs[name].kind not in ("buffer", "constant"):
                raise NotEmitted(f"{node.op} overwrites the {self.inputs[name].kind} {name}")

    def _place(self, value: Value | None) -> str:
        return self.names[value.name] if value is not None else "std::ignore"

    def _release_lines(self, node: Node, position: int) -> Iterator[str]:
        """Release the values that this node is the last to read, as early as eager or earlier."""
        kept = {*self.inputs, *self.written, *self.leaving}
        for name in dict.fromkeys(node.references()):
            if name not in kept and self.last_reader[name] == position:
                yield f"    {self.names[name]}.reset();"

    def operation_lines(self) -> Iterator[str]:
        """The table that states which operation of which layer each mark follows."""
        yield f"std::vector<Operation> {self.struct}::operations() const {{"
        yield "  return {"
        for position, node in enumerate(self.nodes):
            texts = (node.module, node.phase, operation_name(node))
            yield f"      {{{', '.join(map(string_text, texts))}}},  // {position}"
        yield "  };"
        yield "}"
        yield ""

    # ------------------------------------------------------------ results

    def result_lines(self) -> Iterator[str]:
        """The last lines of ``step``: what it returns, and the buffers' new content. It comes after
        the calls, which say whose results may share memory."""
        yield from self._returned_lines()
        yield from self._buffer_lines()

    def _returned_lines(self) -> Iterator[str]:
        outputs = [item for item in self.graph.outputs if item.kind == "output"]
        ordered = sorted(outputs, key=lambda item: int(item.target))
        names = ", ".join(self.names[item.name] for item in ordered)
        yield f"    result.outputs = {{{names}}};"
        for item in self.graph.outputs:
            if item.kind == "loss":
                yield f"    result.loss = {self.names[item.name]};"
        for item in self.graph.outputs:
            if item.kind == "gradient":
                parameter = self._member(("parameter",), item.target)
                yield f"    {parameter}.gradient = {self.names[item.name]};"

    def _buffer_lines(self) -> Iterator[str]:
        """The new content of the buffers that no operator writes in place."""
        assignments = []
        for item in self.graph.outputs:
            if item.kind != "buffer" or item.name in self.written:
                continue
            buffer = self._member(("buffer", "constant"), item.target)
            text = self.names[item.name]
            if self._may_share_memory(item.name):
                # All copies are taken before the first buffer changes.
                text = self.free_names.free(f"{buffer}_new")
                yield f"    auto {text} = {self.names[item.name]}.clone();"
            assignments.append(f"    {buffer} = {text};")
        yield from assignments

    def _may_share_memory(self, name: str) -> bool:
        """True if the value may share memory with another tensor."""
        node = self.producers.get(name)
        if node is None or node.op in ALIASES:
            return True
        return self.operators[node.op].aliases


# ---------------------------------------------------------------- text


def operation_name(node: Node) -> str:
    """The operation without namespace and overload: ``aten.conv2d.default`` is a ``conv2d``."""
    return node.op.split(".")[1]


def _place_text(node: Node) -> str:
    place = _comment(node.module) or "(top)"
    return place if node.phase == "forward" else f"{place}, backward"


def _comment(text: str) -> str:
    """The text made safe for a comment: no line breaks, and no backslash to join lines."""
    return "".join(c if c.isprintable() and c != "\\" else "?" for c in text)


def _statement(left: str, call: _Call, node: Node) -> Iterator[str]:
    """One statement in as many lines as it needs, followed by the shapes of its results."""
    *lines, last = _wrap(f"    {left}", call)
    shapes = ", ".join(str(value) for value in node.outputs if value is not None)
    yield from lines
    yield f"{last}  // {shapes}" if shapes else last


def _wrap(left: str, call: _Call) -> list[str]:
    """Lines within the limit if possible: broken after the bracket, then between arguments."""
    opening, closing = f"{left}{call.opening}", f"{call.closing};"
    whole = f"{opening}{', '.join(call.arguments)}{closing}"
    if len(whole) <= LINE_LENGTH:
        return [whole]
    lines = [opening]
    if len(opening) > LINE_LENGTH:
        lines = [left.rstrip(), f"        {call.opening}"]
    lines.append(" " * 8)
    for position, argument in enumerate(call.arguments):
        piece = argument + (", " if position + 1 < len(call.arguments) else closing)
        if lines[-1].strip() and len(lines[-1]) + len(piece.rstrip()) > LINE_LENGTH:
            lines.append(" " * 8)
        lines[-1] += piece
    return [line.rstrip() for line in lines]
