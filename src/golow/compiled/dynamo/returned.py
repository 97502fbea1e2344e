"""Kinds of a graph's outputs: made by the plan, a view of an input or of another output, or a
number that is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.multiprocessing.reductions import StorageWeakRef

from golow.records.errors import Unsupported


class View(NamedTuple):
    """The memory of an input, or of a made output, seen in another way. source: its number among
    them. offset: from its first element, in elements; where ``whole``, it is the source itself."""

    source: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    whole: bool

    def of(self, tensor: Tensor) -> Tensor:
        """Return it of this tensor."""
        if self.whole:
            return tensor
        start = tensor.storage_offset() + self.offset
        return tensor.as_strided(self.shape, self.stride, start)


class Made(NamedTuple):
    """An output that the plan writes. number: among those."""

    number: int


class OfInput(NamedTuple):
    """A view of an input."""

    view: View


class OfMade(NamedTuple):
    """A view of an output that the plan writes."""

    view: View


class Empty(NamedTuple):
    """A tensor without elements, as PyTorch saves some for a backward pass. form: like it."""

    form: Tensor


class Known(NamedTuple):
    """None, or a number that follows from the sizes."""

    value: Any


Output = Made | OfInput | OfMade | Empty | Known


class Returned(NamedTuple):
    """made: the nodes whose values the plan writes. outputs: what each output is. forms: like those
    that the plan writes, without content."""

    made: Sequence[fx.Node]
    outputs: Sequence[Output]
    forms: Sequence[Tensor]


def returned(traced: fx.GraphModule, inputs: Mapping[fx.Node, int]) -> Returned:
    """Say what each output is. inputs: the place of each placeholder. Raises `Unsupported` for
    outputs that share memory in a way that is not followed."""
    listed = _outputs(traced)
    memory = {_storage(node.meta["val"]): node for node in inputs}
    nodes = [
        node for node in dict.fromkeys(listed) if isinstance(node, fx.Node) and _value(node).numel()
    ]
    fresh = [node for node in nodes if _storage(_value(node)) not in memory]
    asked = {_storage(_value(node)) for node in fresh}
    made: dict[StorageWeakRef, fx.Node] = {}
    for node in _filling(traced):
        place = _storage(_value(node))
        if place in asked and (place not in made or node in fresh):
            made[place] = node
    numbers = {node: number for number, node in enumerate(made.values())}

    def output(item: Any) -> Output:
        if not isinstance(item, fx.Node):
            return Known(item)
        if not _value(item).numel():
            return Empty(_value(item))
        if item in numbers:
            return Made(numbers[item])
        place = _storage(_value(item))
        if place in memory:
            return OfInput(_view(item, memory[place], inputs[memory[place]]))
        return OfMade(_view(item, made[place], numbers[made[place]]))

    if asked - set(made):
        raise Unsupported("onednn", "an output contains memory that is never written")
    outputs = [output(item) for item in listed]
    return Returned(list(numbers), outputs, [_value(node) for node in numbers])


def as_recorded(found: Returned, call: fx.GraphModule) -> Returned:
    """Return the outputs with the strides that AOTAutograd recorded for those the plan writes.
    PyTorch's order on a GPU may be another one than on the CPU, where the graph was traced again.
    Strides that depend on open sizes stay the CPU's, and so do those of bases of other outputs."""
    forms = list(found.forms)
    seen = {item.view.source for item in found.outputs if type(item) is OfMade}
    for item, node in zip(found.outputs, _outputs(call), strict=True):
        if type(item) is not Made or item.number in seen:
            continue
        form, recorded = forms[item.number], node.meta.get("val")
        stride = recorded.stride() if isinstance(recorded, Tensor) else form.stride()
        if all(type(step) is int for step in stride):
            forms[item.number] = torch.empty_strided(
                form.shape, stride, dtype=form.dtype, device="meta"
            )
    return found._replace(forms=forms)


def _outputs(traced: fx.GraphModule) -> list[Any]:
    (results,) = traced.graph.output_node().args
    return list(results) if isinstance(results, list | tuple) else [results]


def _value(node: fx.Node) -> Tensor:
    found = node.meta["val"]
    if not isinstance(found, Tensor):
        raise Unsupported("onednn", f"an output is {type(found).__name__}, not a tensor")
    return found


def _storage(tensor: Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def _filling(traced: fx.GraphModule) -> Iterator[fx.Node]:
    """Yield the nodes whose values are all of their memory, each element once."""
    for node in traced.graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, Tensor) or node.op == "placeholder":
            continue
        size = value.numel() * value.dtype.itemsize
        if value.untyped_storage().nbytes() == size and value.storage_offset() == 0:
            yield node


def _view(node: fx.Node, source: fx.Node, number: int) -> View:
    value, whole = _value(node), _value(source)
    if value.dtype != whole.dtype:
        raise Unsupported("onednn", f"an output is a view of {whole.dtype} as {value.dtype}")
    offset = int(value.storage_offset() - whole.storage_offset())
    shape, stride = tuple(value.shape), tuple(value.stride())
    same = offset == 0 and shape == tuple(whole.shape) and stride == tuple(whole.stride())
    return View(number, shape, stride, offset, same)
