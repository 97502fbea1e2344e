"""Averages of pixels before functions that scale and shift whole channels.

A mean of a * x + b is a times the mean of x, plus b, if a and b are the same for all pixels that it
takes, and if it takes nothing else, such as padding. What norms make of an image then needs no
memory where it is only averaged, and combined with other images, as by PoolFormer (Yu et al. 2022,
arXiv:2111.11418): average(norm(x)) - norm(x).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from golow.lower.fuse.pointwise_fusion import KINDS
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref
from golow.lower.ir.operator import record_of, written
from golow.lower.ir.rewriting import Links, Names, rewritten
from golow.lower.operators.adaptive_average_pool import AdaptiveAveragePool
from golow.lower.operators.average_pool import AveragePool, AveragePoolBackward
from golow.lower.operators.binary import Binary

Average = AveragePool | AdaptiveAveragePool


class _Step(NamedTuple):
    """A function of an image and of numbers of its channels. first: the image is the operand a."""

    function: Binary
    first: bool

    @property
    def image(self) -> Ref:
        operand = self.function.a if self.first else self.function.b
        assert isinstance(operand, Ref)  # noqa: S101 - as _step states
        return operand

    def of(self, image: Ref) -> Binary:
        """The function of another image."""
        return msgspec.structs.replace(self.function, **{"a" if self.first else "b": image})


def average_before_scaling(graph: Graph) -> Graph:
    """Average an image that is in memory, then scale and shift its channels, where what was
    averaged so far was made for that and for functions of elements alone."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        record = record_of(node)
        if isinstance(record, AveragePoolBackward):  # reads nothing of it but its shape
            found = _scaling(links, record.x)
            if found and _in_memory(links, found[0].image):
                new = msgspec.structs.replace(record, x=found[0].image)
                replaced[position] = (written(node, new),)
        elif isinstance(record, Average) and _takes_pixels_alone(record):
            found = _scaling(links, record.x)
            if found and _in_memory(links, found[0].image):
                replaced[position] = _averaged(node, record, found, names)
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


def _takes_pixels_alone(record: Average) -> bool:
    if isinstance(record, AdaptiveAveragePool):
        return True
    return record.divisor is None and not (record.with_padding and any(record.padding))


def _scaling(links: Links, image: Ref) -> list[_Step]:
    """Functions of whole channels, in order, on the way to this image: none if it or what is
    between is read by more than averages and functions of elements."""
    found: list[_Step] = []
    while (step := _step(links, image)) is not None and _is_passing(links, image.name):
        found.insert(0, step)
        image = step.image
    return found


def _step(links: Links, image: Ref) -> _Step | None:
    maker = links.maker.get(image.name)
    record = record_of(links.nodes[maker]) if maker is not None else None
    shape = links.values[image.name].shape
    if not isinstance(record, Binary) or record.activation is not None or len(shape) != 4:
        return None

    def of_channels(operand: object) -> bool:
        sizes = links.values[operand.name].shape if isinstance(operand, Ref) else ()
        return all(size == 1 for size in sizes[-2:])

    def whole(operand: object) -> bool:
        return isinstance(operand, Ref) and links.values[operand.name].shape == shape

    if whole(record.a) and of_channels(record.b):
        return _Step(record, first=True)
    if record.function in ("add", "multiply") and of_channels(record.a) and whole(record.b):
        return _Step(record, first=False)
    return None


def _is_passing(links: Links, name: str) -> bool:
    """True if all readers are averages and functions of elements."""
    readers = [links.nodes[position] for position in links.readers[name]]
    averages = (AveragePool.op(), AdaptiveAveragePool.op(), AveragePoolBackward.op())
    return name not in links.returned and all(n.op in KINDS or n.op in averages for n in readers)


def _in_memory(links: Links, image: Ref) -> bool:
    """True if the image is written in any case: no function of elements makes it, or others read
    it."""
    maker = links.maker.get(image.name)
    by_function = maker is not None and links.nodes[maker].op in KINDS
    return not by_function or not _is_passing(links, image.name)


def _averaged(node: Node, record: Average, steps: list[_Step], names: Names) -> tuple[Node, ...]:
    """The average of the first step's image, then the steps of that."""
    (output,) = node.outputs
    assert output is not None  # noqa: S101 - dead code is gone
    inner = msgspec.structs.replace(node, absorbed=())
    made: list[Node] = []
    image = steps[0].image
    for operator in (lambda x: msgspec.structs.replace(record, x=x), *(step.of for step in steps)):
        value = msgspec.structs.replace(output, name=names.free(f"{output.name}_average"))
        made.append(written(inner, operator(image), name=value.name, outputs=(value,)))
        image = Ref(name=value.name)
    return (*made[:-1], written(node, steps[-1].of(Ref(name=made[-2].name))))
