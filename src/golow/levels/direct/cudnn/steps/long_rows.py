"""Matrices whose rows begin at multiples of 16 bytes, with gaps between rows that would not. The
libraries load and store 16 bytes at a time, and are several times slower where long rows begin
anywhere, as with a vocabulary of 50,257."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.gemm import Matrix, Problem
from golow.levels.direct.cudnn.problems.layouts import Layout, layout_of, pitch_of, with_pitch
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.lower.fuse.products import read_through_views
from golow.lower.ir.operator import Operator, record_of

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

LONG = 1024  # elements
EACH = 8  # sizes of a product are multiples of it where they can be


def pitch_for(build: Builder, dtype: str, *readers: type[Operator]) -> int:
    """Elements from one row of the current node's value to the next. Where only these operators
    read it, which take gaps, rows begin at multiples of 16 bytes; in training only long ones, whose
    gaps are so small that an output of the graph may have them, too. The gaps are at most a fifth.
    """
    columns = build.current.output().shape[-1]
    pitch = pitch_of(columns, dtype)
    long = columns >= LONG
    known = _is_read_by(build, readers, returned=long)
    wanted = known and (long or not build.current.trains) and 5 * pitch <= 6 * columns
    return pitch if wanted and build.training.place() is None else columns


def _is_read_by(build: Builder, kinds: tuple[type[Operator], ...], returned: bool) -> bool:
    """True if only these operators read the current node's value, through views. returned: it may
    be an output of the model, too."""
    graph = build.current.graph
    names, readers = read_through_views(build.current.links, build.current.output().name)
    ends = {item.kind for item in graph.outputs if item.name in names}
    known = all(isinstance(record_of(graph.nodes[reader]), kinds) for reader in readers)
    return bool(readers) and known and ends <= ({"output"} if returned else set())


def rows_with_pitch(build: Builder, dtype: str, pitch: int) -> Tensor:
    """Memory for the current node's value in PyTorch's order, with this many elements from one row
    to the next."""
    value = build.current.output()
    if pitch == value.shape[-1]:
        return build.values.result(0, Layout(dtype))
    whole = build.memory.new(value.name, (*value.shape[:-1], pitch), Layout(dtype))
    return whole._replace(shape=value.shape, layout=with_pitch(dtype, value.shape, pitch))


def rows_for(build: Builder, dtype: str, *readers: type[Operator]) -> Tensor:
    """Memory for the current node's value in PyTorch's order, with the gaps that these readers
    take."""
    return rows_with_pitch(build, dtype, pitch_for(build, dtype, *readers))


class Product(NamedTuple):
    """A product with what it reads and writes, in the order of `Problem`'s operands."""

    problem: Problem
    reads: list[Tensor]
    result: Tensor


def in_parts(whole: Product) -> list[Product]:
    """The product in two parts, if a matrix with gaps has long rows whose length is not a multiple
    of 8: tensor cores handle the larger part at any size. If the sum is divided (along K), the
    remainder runs first and the main GEMM accumulates into it, so that nothing large is rounded
    twice."""
    problem = whole.problem
    if problem.batch > 1:
        return [whole]
    matrices = problem.matrices
    a, b, d = (matrices[name] for name in "abd")
    if _is_ragged(d) and problem.transpose_b and not problem.residual:
        return _by_outputs(whole, d.columns // EACH * EACH, b)
    if _is_ragged(a) and problem.transpose_a and _is_plain(problem):
        return _by_rows(whole, a.columns // EACH * EACH, d)
    if _is_ragged(a) and not problem.transpose_b and _is_plain(problem):
        return _by_sum(whole, a.columns // EACH * EACH, b)
    return [whole]


def _is_ragged(matrix: Matrix) -> bool:
    gaps = matrix.row > matrix.columns
    return gaps and matrix.columns >= LONG and matrix.columns % EACH != 0


def _is_plain(problem: Problem) -> bool:
    return not (problem.bias or problem.residual or problem.relu or problem.gelu)


def _by_outputs(whole: Product, first: int, b: Matrix) -> list[Product]:
    problem, (x, weight, *bias) = whole.problem, whole.reads
    others = [_beyond(weight, first, b.row), *(_beyond(item, first) for item in bias)]
    last = replace(problem, n=problem.n - first, alignment=_alignment(problem))
    return [
        whole._replace(problem=replace(problem, n=first)),
        Product(last, [x, *others], _beyond(whole.result, first)),
    ]


def _by_rows(whole: Product, first: int, d: Matrix) -> list[Product]:
    problem, (a, b) = whole.problem, whole.reads
    last = replace(problem, m=problem.m - first, alignment=_alignment(problem))
    return [
        whole._replace(problem=replace(problem, m=first)),
        Product(last, [_beyond(a, first), b], _beyond(whole.result, first, d.row)),
    ]


def _by_sum(whole: Product, first: int, b: Matrix) -> list[Product]:
    problem, (one, other) = whole.problem, whole.reads
    last = replace(problem, k=problem.k - first, alignment=_alignment(problem))
    added = replace(problem, k=first, residual=True, c=problem.d)
    return [
        Product(last, [_beyond(one, first), _beyond(other, first, b.row)], whole.result),
        Product(added, [one, other, whole.result], whole.result),
    ]


def _beyond(tensor: Tensor, first: int, step: int = 1) -> Tensor:
    """Rest from an index on along the axis that has this step in elements."""
    steps = tensor.layout.strides(tensor.shape)
    axes = zip(tensor.shape, steps, strict=True)
    axis = next(i for i, (size, own) in enumerate(axes) if own == step and size > first)
    shape = (*tensor.shape[:axis], tensor.shape[axis] - first, *tensor.shape[axis + 1 :])
    offset = tensor.offset + first * step * ITEM_BYTES[tensor.dtype]
    return Tensor(tensor.buffer, shape, layout_of(tensor.dtype, shape, steps), offset)


def _alignment(problem: Problem) -> int:
    """Alignment of an address at a multiple of eight elements, or of eight rows."""
    return min(problem.alignment, EACH * ITEM_BYTES[problem.dtype])
