"""Writes a lowered graph as the source of functions of another framework: ``forward``, and for
training ``step``.

Where users of a framework choose channels last, images stay so from the first convolution to the
first operator that needs another order: the writer knows in which of the two each value is held,
and converts a value once, where an operator asks for the other one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from golow.levels.direct.implementation import Implementation, refusals
from golow.levels.direct.weight_arithmetic import ARITHMETIC
from golow.levels.traced.dialect import Dialect
from golow.levels.traced.layouts import CHANNELS_LAST, CHANNELS_SECOND, FILTER
from golow.levels.traced.widening import HALF_TYPES, computes_wide, is_cast
from golow.lower.ir.graph import Graph, GraphInput, Node, Ref, Value
from golow.lower.ir.operator import record_of, references
from golow.lower.operators.convolution import Convolution
from golow.records.errors import Unsupported
from golow.records.workload import Workload

# Names that every source uses itself; a layer may have the same.
TAKEN = frozenset("math weights parameters buffers batch key active".split())

HELD = """
# The order of axes in which a tensor is held, where it is not PyTorch's.
HELD = {held}
"""


def trained_parameters(graph: Graph) -> list[str]:
    """The names of the parameters that a step changes, in the graph's order."""
    return [item.target for item in graph.outputs if item.kind == "parameter"]


def derived_nodes(graph: Graph) -> list[Node]:
    """The nodes that compute weights from weights, which a worker runs once: in inference also
    their casts."""
    trains = any(item.kind == "loss" for item in graph.outputs)
    known = {i.value.name for i in graph.inputs if i.kind not in ("input", "target") and not trains}
    found = []
    for node in graph.nodes:
        if node.op in ARITHMETIC or (is_cast(node) and known.issuperset(node.references())):
            found.append(node)
            known.update(value.name for value in node.outputs if value is not None)
    return found


def refused_nodes(
    graph: Graph, dialect: Dialect, operators: Mapping[str, Implementation]
) -> Iterator[Unsupported]:
    """Yield every node that the level cannot run; it has no complex numbers."""
    plain = _without_derived(graph)
    return refusals(dialect.level, plain, operators, dialect.dtypes, pairs=False)


class Writer:
    """Writes one graph. An operator's file asks it for values and puts its results into it.

    dialect: the framework's words. operators: every operator of the level, by its name in nodes.
    held: the order of axes in which a worker holds an input, where it is not PyTorch's.
    """

    def __init__(
        self, graph: Graph, dialect: Dialect, operators: Mapping[str, Implementation]
    ) -> None:
        self.graph, self.dialect, self.operators = graph, dialect, operators
        self.values = graph.values()
        self.trained = set(trained_parameters(graph))
        self.trains = any(item.kind == "loss" for item in graph.outputs)
        self.held: dict[str, tuple[int, ...]] = {}
        self.node: Node
        self._lines: list[str] = []
        # The expressions of a value as PyTorch has it, and as an image with channels last.
        self._plain: dict[str, str] = {}
        self._image: dict[str, str] = {}
        self._filter: dict[str, str] = {}
        self._draws = 0
        self._wide = False
        for item in graph.inputs:
            self._take(item)
        self._derived = {node.name for node in derived_nodes(graph)}
        for node in derived_nodes(graph):
            for value in node.outputs:
                if value is not None:
                    self._hold(value, f"derived/{value.name}", f"weights[{value.name!r}]")

    # ------------------------------------------------------------ the whole

    def source(self, workload: Workload, header: str, step: str, definitions: str = "") -> str:
        """Return the source. header: what it imports. step: the training step around ``forward``.
        definitions: of what operators call. Raises `Unsupported` for the first node that the level
        cannot run."""
        for refusal in refused_nodes(self.graph, self.dialect, self.operators):
            raise refusal
        body = self._body()
        mode = "a training step" if workload.mode == "train" else "inference"
        title = f'"""{workload.model}, {mode}, written by golow from the captured graph."""\n\n'
        held = "".join(f"\n    {name!r}: {order}," for name, order in sorted(self.held.items()))
        first = title + header + HELD.format(held=f"{{{held}\n}}" if held else "{}")
        first += definitions
        if workload.mode == "infer":
            return f"{first}\n\ndef forward(weights, batch):\n{body}"
        arguments = "parameters, buffers, batch, key, active"
        return f"{first}\n\ndef forward({arguments}):\n{body}\n\n{step}"

    def _body(self) -> str:
        """The lines of the forward function, its return last."""
        module = ""
        for node in self.graph.nodes:
            if node.name in self._derived:
                continue
            if node.module != module:
                module = node.module
                self._line(f"# {module}" if module else "#")
            self.node, self._wide = node, self._computes_wide(node)
            self.operators[node.op].build(self, record_of(node))
        self._wide = False
        self._line(f"return {self._returned()}")
        return "\n".join(f"    {line}".rstrip() for line in self._lines) + "\n"

    # ------------------------------------------------------------ what an operator asks

    def value(self, reference: Ref) -> Value:
        """Return name, shape and dtype of an argument."""
        return self.values[reference.name]

    def output(self, index: int = 0) -> Value | None:
        """Return name, shape and dtype of a result; None if nothing reads it."""
        return self.node.outputs[index]

    def plain(self, reference: Ref) -> str:
        """Return the value with its axes in PyTorch's order."""
        name = reference.name
        if name not in self._plain:
            plain = f"{self.identifier(name)}__plain"
            self._line(f"{plain} = {self.dialect.transposed(self._image[name], CHANNELS_SECOND)}")
            self._plain[name] = plain
        return self._argument(self._plain[name], name)

    def image(self, reference: Ref) -> str:
        """Return the value, of four axes, in the framework's order for images."""
        name = reference.name
        if not self.dialect.channels_last:
            return self.plain(reference)
        if name not in self._image:
            image = f"{self.identifier(name)}__image"
            self._line(f"{image} = {self.dialect.transposed(self._plain[name], CHANNELS_LAST)}")
            self._image[name] = image
        return self._argument(self._image[name], name)

    def filter(self, reference: Ref) -> str:
        """Return a convolution's weight in the order of axes `FILTER`, or PyTorch's."""
        name = reference.name
        if not self.dialect.channels_last:
            return self.plain(reference)
        if name not in self._filter:
            return self.dialect.transposed(self.plain(reference), FILTER)
        return self._filter[name]

    def is_image(self, reference: Ref) -> bool:
        """True if the value is held with its channels last, and only so."""
        return reference.name in self._image and reference.name not in self._plain

    def together(self, *given: Ref) -> tuple[list[str], bool]:
        """Values that broadcast with one another, all in one layout, and whether it is that of an
        image: it is if the result has four axes and one of them is an image."""
        output = self.output()
        image = output is not None and len(output.shape) == 4 and any(map(self.is_image, given))
        if not image:
            return [self.plain(item) for item in given], False
        return [self._for_image(item) for item in given], True

    def put(self, expression: str, image: bool = False, index: int = 0) -> None:
        """Name the result of that index; nothing happens if nothing reads it."""
        value = self.output(index)
        if value is None:
            return
        name = self.identifier(value.name)
        if self._wide and value.dtype in HALF_TYPES:
            expression = self.dialect.converted(f"({expression})", value.dtype)
        self._line(f"{name} = {expression}")
        held = self._image if image and self.dialect.channels_last else self._plain
        held[value.name] = name

    def put_cast(self, given: Ref, dtype: str) -> None:
        """Name the result, the argument in another type, in each order in which that is held."""
        [value] = self.node.outputs
        assert value is not None  # noqa: S101
        name, held = self.identifier(value.name), (self._image, self._filter, self._plain)
        found = next(kind for kind in held if given.name in kind)
        self._line(f"{name} = {self.dialect.converted(found[given.name], dtype)}")
        found[value.name] = name

    def line(self, name: str, expression: str) -> str:
        """Write ``name = expression`` for a value that is not a result; return the name, which gets
        the first result's in front. Two underscores: the graph's own names have no two in a row."""
        first = next(value.name for value in self.node.outputs if value is not None)
        full = f"{self.identifier(first)}__{name}"
        self._line(f"{full} = {expression}")
        return full

    def identifier(self, name: str) -> str:
        """The name of a value as Python's: those that decompositions make may have dots."""
        cleaned = re.sub(r"\W", "___", name)
        cleaned = f"v___{cleaned}" if cleaned[0].isdigit() else cleaned
        return f"{cleaned}__" if cleaned in TAKEN | self.dialect.taken else cleaned

    def draw(self) -> str:
        """Key for the next draw, different each time."""
        self._draws += 1
        return self.dialect.key(self._draws)

    # ------------------------------------------------------------ inputs and outputs

    def _take(self, item: GraphInput) -> None:
        value, kind, target = item.value, item.kind, item.target
        if kind in ("input", "target"):
            given = f'batch["{kind}/{target}"]'
            if self.dialect.channels_last and self._is_only(_is_convolved, value):
                self.held[f"{kind}/{target}"] = CHANNELS_LAST
                self._image[value.name] = given
            else:
                self._plain[value.name] = given
            return
        if not self.trains:
            given = f"weights[{target!r}]"
        else:
            given = f"{'parameters' if target in self.trained else 'buffers'}[{target!r}]"
        self._hold(value, f"{kind}/{target}", given)

    def _hold(self, value: Value, key: str, given: str) -> None:
        as_filter = self.dialect.channels_last and len(value.shape) == 4
        if as_filter and self._is_only(_filters, value):
            self.held[key] = FILTER
            self._filter[value.name] = given
        else:
            self._plain[value.name] = given

    def _is_only(self, reads: Callable[[Node, str], bool], value: Value) -> bool:
        """True if all nodes read the value in this way, or convert it to what is read so."""
        readers = [node for node in self.graph.nodes if value.name in node.references()]
        return bool(readers) and all(
            all(self._is_only(reads, cast) for cast in node.outputs if cast is not None)
            if is_cast(node)
            else reads(node, value.name)
            for node in readers
        )

    def _computes_wide(self, node: Node) -> bool:
        outputs = [value for value in node.outputs if value is not None]
        return computes_wide(node, [*(self.values[name] for name in node.references()), *outputs])

    def _argument(self, expression: str, name: str) -> str:
        if self._wide and self.values[name].dtype in HALF_TYPES:
            return self.dialect.converted(expression, "float32")
        return expression

    def _returned(self) -> str:
        outputs = sorted(
            (item for item in self.graph.outputs if item.kind == "output"),
            key=lambda item: int(item.target),
        )
        names = [self.plain(Ref(name=item.name)) for item in outputs]
        found = ", ".join(map(self.dialect.returned, names) if self.trains else names)
        several = f"({found},)" if outputs else "()"
        if not self.trains:
            return several
        [loss] = (item.name for item in self.graph.outputs if item.kind == "loss")
        changed = ", ".join(
            f"{item.target!r}: {self.plain(Ref(name=item.name))}"
            for item in self.graph.outputs
            if item.kind == "buffer"
        )
        return f"{self.plain(Ref(name=loss))}, ({several}, {{**buffers, {changed}}})"

    def _for_image(self, reference: Ref) -> str:
        """The value as something that broadcasts with images."""
        shape = self.value(reference).shape
        if len(shape) == 4:
            return self.image(reference)
        if not shape:
            return self.plain(reference)
        four = (1,) * (4 - len(shape)) + shape
        plain = self.plain(reference)
        if sum(size != 1 for size in four) <= 1:  # its elements keep their order
            return self.dialect.reshaped(plain, [four[axis] for axis in CHANNELS_LAST])
        return self.dialect.transposed(self.dialect.reshaped(plain, four), CHANNELS_LAST)

    def _line(self, text: str) -> None:
        self._lines.append(text)


def _is_convolved(node: Node, name: str) -> bool:
    layer = Convolution.of(node)
    return layer is not None and layer.x.name == name and layer.weight.name != name


def _filters(node: Node, name: str) -> bool:
    """True if the node reads the value as a convolution's weight alone, or makes one of it."""
    layer = Convolution.of(node)
    if layer is None:
        return False
    named = [field for field, item in references(layer).items() if item.name == name]
    return named == ["weight"]


def _without_derived(graph: Graph) -> Graph:
    """The graph without the nodes that NumPy runs; their results become constants."""
    derived = derived_nodes(graph)
    inputs = tuple(
        GraphInput(value=value, kind="constant", target=value.name)
        for node in derived
        for value in node.outputs
        if value is not None
    )
    nodes = tuple(node for node in graph.nodes if node not in derived)
    return msgspec.structs.replace(graph, inputs=(*graph.inputs, *inputs), nodes=nodes)
