"""Convolutions of few pixels and linear layers of few rows by golow's own tensor core kernel, as
candidates for timing. On these the libraries spend most of their time waiting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from golow.levels.direct.cudnn.engines.golow_convolution import geometry_of
from golow.levels.direct.cudnn.engines.own_engine import Address, OwnEngine
from golow.levels.direct.cudnn.problems.products import Convolution
from golow.levels.direct.cudnn.shared_kernels import Kernel, direct_convolution, few_pixels
from golow.levels.direct.formulas.activation_formulas import value

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.bindings.device import Gpu

FIRST_WITH_CLUSTERS, FIRST_WITH_TF32 = 90, 80  # compute capabilities


class SmallConvolution(OwnEngine):
    """One convolution, forward or for the gradient of x, with one tiling. The bias has the type of
    the operands."""

    kind = "small"
    workspace = 0

    def __init__(self, operation: Convolution, tiling: few_pixels.Tiling, gpu: Gpu) -> None:
        self._operation, self._tiling, self._gpu = operation, tiling, gpu
        self.name = f"small {tiling.pixels}x{tiling.filters}/{tiling.split}"
        dtype, geometry = operation.dtype, geometry_of(operation)
        if operation.direction == "forward":
            formula = value(operation.activation, "value") if operation.activation else ""
            self._kernel = few_pixels.forward(
                dtype, geometry, tiling, clip=operation.clip, formula=formula,
                frozen=operation.frozen,
            )  # fmt: skip
        else:
            self._kernel = few_pixels.backward_data(dtype, geometry, tiling)

    def launches(
        self, addresses: Sequence[Address], workspace: Address
    ) -> Iterable[tuple[Kernel, Sequence[Any]]]:
        """Launches on operands in the order of `Convolution`; it needs no workspace."""
        image, weight, *others, output = addresses
        rest = iter(others)
        bias = next(rest) if self._operation.bias else 0
        residual = next(rest) if self._operation.residual else 0
        return [(self._kernel, [image, weight, bias, residual, output])]

    def encode(self) -> bytes:
        """The tiling."""
        return msgspec.msgpack.encode(self._tiling)


def small_engines(operation: Convolution, gpu: Gpu) -> Iterator[SmallConvolution]:
    """Yield the engines that may be fastest; none for large or unsupported problems."""
    capability = int(gpu.architecture.removeprefix("sm_"))
    product = _product(operation)
    if capability < FIRST_WITH_TF32 or product is None:
        return
    clusters = capability >= FIRST_WITH_CLUSTERS
    for tiling in few_pixels.tilings(operation.dtype, product, clusters=clusters):
        yield SmallConvolution(operation, tiling, gpu)


def restore(operation: Convolution, gpu: Gpu, data: bytes) -> SmallConvolution:
    """Return the engine whose `encode` returned these bytes."""
    return SmallConvolution(operation, msgspec.msgpack.decode(data, type=few_pixels.Tiling), gpu)


def _product(operation: Convolution) -> direct_convolution.Convolution | None:
    """Return the convolution that the kernel computes; None if it does not support it."""
    forward = operation.direction == "forward"
    backward = operation.direction == "backward_data" and operation.stride == (1, 1)
    if operation.arithmetic == "ieee" or operation.result != operation.dtype:
        return None
    if operation.of_volumes or not (forward or backward):
        return None
    geometry = geometry_of(operation)
    product = geometry if forward else few_pixels.turned(geometry)
    return product if few_pixels.takes(operation.dtype, product) else None
