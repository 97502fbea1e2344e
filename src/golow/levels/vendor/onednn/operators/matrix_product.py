"""Products of matrices or batches of matrices; either may be a transposed view."""

from __future__ import annotations

from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.constants import DST, SRC, WEIGHTS
from golow.levels.vendor.onednn.library import Descriptor
from golow.levels.vendor.onednn.primitive import Primitive
from golow.levels.vendor.onednn.steps import Tensor
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.graph import Ref
from golow.lower.operators.matrix_product import MatrixProduct


def product(build: Builder, arguments: MatrixProduct) -> None:
    """a b."""
    output = build.output()
    a, b = _matrix(build, arguments.a), _matrix(build, arguments.b)
    target = Descriptor.plain(output.shape)
    primitive = Primitive(build.engine, "matmul", a.layout, b.layout, None, target)
    result = build.new(output.name, output.shape, target)
    build.call(primitive, {SRC: a, WEIGHTS: b}, {DST: result})
    build.define(0, result)


def _matrix(build: Builder, reference: Ref) -> Tensor:
    """Return the value as it is if each of its matrices lies by itself, otherwise row-major. Of
    matrices that lie between one another, such as the heads of attention, the library takes
    another code, which is slower than the copy."""
    tensor = build.tensor(reference)
    return tensor if not tensor.layout.blocks and _lie_apart(tensor) else build.plain(reference)


def _lie_apart(tensor: Tensor) -> bool:
    shape, strides = tensor.layout.shape, tensor.layout.strides
    sizes = [n * s for n, s in zip(shape[-2:], strides[-2:], strict=True)]
    outer = zip(shape[:-2], strides[:-2], strict=True)
    return all(s >= max(sizes) for n, s in outer if n > 1)


IMPLEMENTATIONS = (Implementation(MatrixProduct, product, refuse_integers),)
