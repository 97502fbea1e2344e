"""Alias analysis: which values of a graph share memory, and how a tensor looks after a view of it
was written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef

from golow.lower.ir.graph import Argument, Graph, Node, Ref, Value
from golow.lower.ir.rewriting import changes_in_place
from golow.lower.ir.verify import run_node


class View(NamedTuple):
    """A value that shares memory with an argument of the node that makes it.

    position: which of the node's values it is. source: the argument. of_whole: whether the source
    is all of its memory, in the order of its elements.
    """

    node: Node
    position: int
    source: Value
    of_whole: bool

    @property
    def value(self) -> Value:
        """The value itself."""
        value = self.node.outputs[self.position]
        assert value is not None  # noqa: S101
        return value


class SharedMemory:
    """Runs nodes on tensors without elements, so that PyTorch shows which share memory:
    ``reshape`` may be a view or a copy.

    tensors, values: by name, of the inputs and of all nodes that were run. views: the views among
    them.
    """

    def __init__(self, graph: Graph) -> None:
        self.values, self.views = graph.values(), dict[str, View]()
        self._mode = FakeTensorMode()
        with self._mode:
            self.tensors = {
                item.value.name: torch.empty(
                    item.value.shape, dtype=getattr(torch, item.value.dtype)
                )
                for item in graph.inputs
            }

    def run(self, node: Node) -> None:
        """Run the next node."""
        with self._mode:
            found = run_node(node, self.tensors)
        memory = {_storage(self.tensors[name]): name for name in node.references()}
        for index, (value, tensor) in enumerate(zip(node.outputs, found, strict=True)):
            if value is None:
                continue
            source = memory.get(_storage(tensor))
            if source is not None:
                whole = is_whole(self.tensors[source])
                self.views[value.name] = View(node, index, self.values[source], whole)
            self.tensors[value.name] = tensor

    def first(self, name: str) -> str:
        """The first tensor in the memory of this one."""
        while name in self.views:
            name = self.views[name].source.name
        return name


def _storage(tensor: Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def is_whole(tensor: Tensor) -> bool:
    """True if the tensor is all of its memory, in the order of its elements."""
    size = tensor.numel() * tensor.dtype.itemsize
    return tensor.is_contiguous() and tensor.untyped_storage().nbytes() == size


class Rewrite(NamedTuple):
    """An operation on the changed view that gives the whole. takes_whole: whether the old whole is
    its first argument, before the view."""

    op: str
    arguments: tuple[Argument, ...]
    takes_whole: bool


def whole_after(view: View) -> Rewrite | None:
    """How to compute a view's source after the view was overwritten; None if nothing is known."""
    arguments = view.node.arguments[1:]
    if view.node.op in PARTS:
        op, rest = PARTS[view.node.op](view, arguments)
        return Rewrite(op, rest, takes_whole=True)
    if view.node.op in REORDERED:
        op, rest = REORDERED[view.node.op](view, arguments)
        return Rewrite(op, rest, takes_whole=False)
    if view.node.op == "aten.as_strided.default" and view.of_whole:
        return Rewrite("aten.as_strided_scatter.default", arguments, takes_whole=True)
    same_elements = _elements(view.value.shape) == _elements(view.source.shape)
    if view.node.op in RESHAPED and same_elements and view.value.dtype == view.source.dtype:
        return Rewrite("aten.reshape.default", (view.source.shape,), takes_whole=False)
    return None


def _elements(shape: Sequence[int]) -> int:
    return torch.Size(shape).numel()


Written = tuple[str, tuple[Argument, ...]]
Rule = Callable[[View, tuple[Argument, ...]], Written]


def _same_arguments(op: str) -> Rule:
    return lambda _, arguments: (op, arguments)


def _slice(dim: Argument, start: int, end: int) -> Written:
    return "aten.slice_scatter.default", (dim, start, end)


def _narrow(view: View, arguments: tuple[Argument, ...]) -> Written:
    dim, start, length = (int(item) for item in arguments)  # type: ignore[arg-type]
    start %= max(view.source.shape[dim], 1)
    return _slice(dim, start, start + length)


def _unbound(view: View, arguments: tuple[Argument, ...]) -> Written:
    return "aten.select_scatter.default", (arguments[0] if arguments else 0, view.position)


def _part(view: View, arguments: tuple[Argument, ...]) -> Written:
    """Results of ``chunk``, ``split`` and ``split_with_sizes``, safe or not: all share their
    memory."""
    sizes, dim = arguments[0], arguments[1] if len(arguments) > 1 else 0
    assert isinstance(dim, int)  # noqa: S101
    length = view.source.shape[dim]
    if isinstance(sizes, tuple):
        start = sum(int(size) for size in sizes[: view.position])  # type: ignore[arg-type,misc]
    elif "chunk" in view.node.op:
        start = view.position * -(-length // int(sizes))  # type: ignore[arg-type]
    else:
        start = view.position * int(sizes)  # type: ignore[arg-type]
    return _slice(dim, start, start + view.value.shape[dim])


def _permuted(view: View, arguments: tuple[Argument, ...]) -> Written:
    dims, rank = arguments[0], len(view.source.shape)
    assert isinstance(dims, tuple)  # noqa: S101
    order = [int(dim) % rank for dim in dims]  # type: ignore[arg-type]
    return "aten.permute.default", (tuple(order.index(axis) for axis in range(rank)),)


def _moved(view: View, arguments: tuple[Argument, ...]) -> Written:
    return view.node.op, (arguments[1], arguments[0])


def _turned_back(view: View, arguments: tuple[Argument, ...]) -> Written:
    """Inverse of an operation that undoes itself."""
    return view.node.op, arguments


# Views of some elements: the operation that gives the whole with these elements replaced.
PARTS: dict[str, Rule] = {
    "aten.slice.Tensor": _same_arguments("aten.slice_scatter.default"),
    "aten.select.int": _same_arguments("aten.select_scatter.default"),
    "aten.diagonal.default": _same_arguments("aten.diagonal_scatter.default"),
    "aten.narrow.default": _narrow,
    "aten.unbind.int": _unbound,
    "aten.chunk.default": _part,
    "aten.split.Tensor": _part,
    "aten.split.sizes": _part,
    "aten.split_with_sizes.default": _part,
    "aten.unsafe_chunk.default": _part,  # in PyTorch's own definition of an LSTM's cell
    "aten.unsafe_split.Tensor": _part,
    "aten.unsafe_split_with_sizes.default": _part,
}
# Views of all elements in another order or form: the operation that undoes it.
REORDERED: dict[str, Rule] = {
    "aten.permute.default": _permuted,
    "aten.movedim.int": _moved,
    "aten.movedim.intlist": _moved,
    "aten.t.default": _turned_back,
    "aten.mT.default": _turned_back,
    "aten.numpy_T.default": _turned_back,
    "aten.transpose.int": _turned_back,
    "aten.swapaxes.default": _turned_back,
    "aten.swapdims.default": _turned_back,
    "aten.view_as_complex.default": _same_arguments("aten.view_as_real.default"),
    "aten.view_as_real.default": _same_arguments("aten.view_as_complex.default"),
}
# Views of all elements in their order, if there are as many of them.
RESHAPED = frozenset(
    f"aten.{name}"
    for name in "view.default reshape.default flatten.using_ints unflatten.int unsqueeze.default "
    "squeeze.default squeeze.dim squeeze.dims _unsafe_view.default view_as.default ravel.default "
    "reshape_as.default expand.default expand_as.default detach.default alias.default "
    "contiguous.default dropout.default feature_dropout.default to.dtype to.dtype_layout "
    "to.device to.other type_as.default".split()
)


def overwritten(node: Node) -> str | None:
    """Name of the value that the operation overwrites."""
    if not changes_in_place(node):
        return None
    changed = node.keywords.get("out", node.arguments[0] if node.arguments else None)
    return changed.name if isinstance(changed, Ref) else None
