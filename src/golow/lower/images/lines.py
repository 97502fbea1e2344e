"""Lines as images. A layer of one dimension computes on images of one row; between two of them
stand functions of elements of [N, C, L], which no convolution can absorb, and a copy wherever the
images are in blocks."""

from __future__ import annotations

import msgspec

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref, Scalar, Value
from golow.lower.ir.operator import Operator, record_of, written
from golow.lower.ir.rewriting import Links, Names, result, rewritten
from golow.lower.operators.activation import Activate, ActivateBackward
from golow.lower.operators.batch_norm import BatchNormInference
from golow.lower.operators.binary import Binary
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.pad import Pad
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.slice import Slice

Shape = tuple[int, ...]


def keep_lines_images(graph: Graph) -> Graph:
    """Compute functions of elements, padding, slices and concatenations of lines [N, C, L] on the
    images [N, C, 1, L] of which they are views."""
    lines = _Lines(graph)
    replaced = {
        position: nodes
        for position, node in enumerate(graph.nodes)
        if (nodes := lines.replaced(node)) is not None
    }
    return eliminate_dead_code(rewritten(graph, replaced, lines.renamed))


class _Lines:
    """The lines of a graph, and the images of which they are views. renamed: values that are such
    an image again, and that image."""

    def __init__(self, graph: Graph) -> None:
        self.renamed: dict[str, str] = {}
        self._links = Links(graph)
        self._values = self._links.values
        self._names = Names(graph)
        self._images: dict[str, Value] = {}

    def replaced(self, node: Node) -> tuple[Node, ...] | None:
        """Nodes that replace the node; None if it stays."""
        record = record_of(node)
        if not isinstance(record, Reshape):
            return self._as_image(node, record)
        source, target = self._values[record.x.name], result(node)
        if record.shape and _image(record.shape) == source.shape:
            self._images[target] = source
        image = self._images.get(record.x.name)
        if image is None or image.shape != record.shape or not target:
            return None
        self.renamed[target] = image.name
        return ()

    def _as_image(self, node: Node, record: Operator | None) -> tuple[Node, ...] | None:
        output = node.outputs[0]
        if record is None or output is None or len(output.shape) != 3:
            return None
        reads_images = any(name in self._images for name in node.references())
        if not reads_images and not (isinstance(record, Pad) and self._becomes_image(output)):
            return None
        before: list[Node] = []
        operator = self._operator(node, record, before)
        if operator is None:
            return None
        name = self._names.free(f"{output.name}.image")
        image = msgspec.structs.replace(output, name=name, shape=_image(output.shape))
        self._images[output.name] = image
        made = written(node, operator, name=name, outputs=(image,))
        line = written(node, Reshape(x=Ref(name=name), shape=output.shape))
        return (*before, made, msgspec.structs.replace(line, absorbed=()))

    def _becomes_image(self, line: Value) -> bool:
        """True if only layers of one dimension read it."""
        readers = self._links.readers[line.name]
        views = [Reshape.of(self._links.nodes[reader]) for reader in readers]
        shape = _image(line.shape)
        only = bool(views) and line.name not in self._links.returned
        return only and all(view is not None and view.shape == shape for view in views)

    def _operator(self, node: Node, record: Operator, before: list[Node]) -> Operator | None:
        """The operator on images; None if it is none of those that can be. before: gets the nodes
        that make images of its other operands."""

        def wide(item: Scalar) -> Scalar:
            return self._wide(node, item, before) if isinstance(item, Ref) else item

        replace = msgspec.structs.replace
        match record:
            case Activate() | BatchNormInference():
                return replace(record, x=wide(record.x))
            case ActivateBackward():
                return replace(record, gradient=wide(record.gradient), value=wide(record.value))
            case Binary():
                return replace(record, a=wide(record.a), b=wide(record.b))
            case Pointwise():
                return replace(record, operands=tuple(map(wide, record.operands)))
            case Pad():
                sides = (_with_row(record.before), _with_row(record.after))
                return replace(record, x=wide(record.x), before=sides[0], after=sides[1])
            case Slice():
                return replace(record, x=wide(record.x), axis=_axis(record.axis))
            case Concatenate():
                parts = tuple(map(wide, record.parts))
                return replace(record, parts=parts, axis=_axis(record.axis))
        return None

    def _wide(self, node: Node, ref: Ref, before: list[Node]) -> Ref:
        """An operand beside images: what has rows and columns gets an axis between them."""
        image = self._images.get(ref.name)
        if image is not None:
            return Ref(name=image.name)
        value = self._values[ref.name]
        if len(value.shape) < 2:
            return ref
        shape = _image(value.shape)
        made = msgspec.structs.replace(
            value, name=self._names.free(f"{ref.name}.image"), shape=shape
        )
        view = written(node, Reshape(x=ref, shape=shape), name=made.name, outputs=(made,))
        before.append(msgspec.structs.replace(view, absorbed=()))
        return Ref(name=made.name)


def _image(shape: Shape) -> Shape:
    """[..., C, 1, L] for [..., C, L]."""
    return (*shape[:-1], 1, shape[-1])


def _with_row(sides: Shape) -> Shape:
    return (*sides[:2], 0, sides[2])


def _axis(axis: int) -> int:
    return axis if axis < 2 else axis + 1
