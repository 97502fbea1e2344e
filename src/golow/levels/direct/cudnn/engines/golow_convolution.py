"""Convolutions by golow's own kernels: depthwise ones, which are slow in the libraries, and those
that no library supports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from golow.levels.direct.cudnn.engines.own_engine import Address, OwnEngine
from golow.levels.direct.cudnn.problems.products import Convolution
from golow.levels.direct.cudnn.shared_kernels import Kernel, depthwise, direct_convolution
from golow.levels.direct.cudnn.shared_kernels.blocks import Launches
from golow.levels.direct.formulas.activation_formulas import value

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.bindings.device import Gpu


class OwnConvolution(OwnEngine):
    """One convolution by golow's own kernels. Bias and gradients of weights are float32."""

    kind = "own"

    def __init__(
        self, operation: Convolution, gpu: Gpu, tiling: depthwise.Tiling | None = None
    ) -> None:
        self._operation, self._gpu, self._tiling = operation, gpu, tiling
        self._depthwise = is_depthwise(operation)
        self.name = "depthwise" if self._depthwise else "direct"
        if tiling is not None:
            self.name += f" {tiling}"
        self._launches = self._make_launches()
        self.workspace = 4 * self._launches.scratch

    def launches(
        self, addresses: Sequence[Address], workspace: Address
    ) -> Iterable[tuple[Kernel, Sequence[Any]]]:
        """Launches on operands in the order of `Convolution`."""
        pointers = self._pointers(addresses, workspace)
        return [(kernel, pointers) for kernel in self._launches.kernels]

    def encode(self) -> bytes:
        """Return the tiling; making it again takes almost no time."""
        return msgspec.msgpack.encode(self._tiling)

    def _make_launches(self) -> Launches:
        operation, dtype = self._operation, self._operation.dtype
        module: Any = depthwise if self._depthwise else direct_convolution
        geometry = geometry_of(operation)
        made: Launches
        if operation.direction == "forward":
            made = self._forward(geometry)
        elif operation.direction == "backward_data":
            made = module.backward_data(dtype, dtype, geometry)
        else:
            made = module.backward_weight(dtype, geometry)
        return made

    def _forward(self, geometry: direct_convolution.Convolution) -> Launches:
        operation, dtype = self._operation, self._operation.dtype
        if not self._depthwise:
            return direct_convolution.forward(dtype, dtype, geometry, clip=operation.clip)
        formula = value(operation.activation, "value") if operation.activation else ""
        return depthwise.forward(
            dtype, dtype, geometry, clip=operation.clip, formula=formula, tiling=self._tiling
        )

    def _pointers(self, addresses: Sequence[Any], workspace: Any) -> list[Any]:
        """Return the addresses in the kernels' order; 0 is absent."""
        operation = self._operation
        if operation.direction == "backward_weight":
            image, gradient, weight = addresses
            return [gradient, image, weight, workspace]
        if operation.direction == "backward_data":
            gradient, weight, image = addresses
            return [gradient, weight, image]
        image, weight, *others, output = addresses
        rest = iter(others)
        bias = next(rest) if operation.bias else 0
        residual = next(rest) if operation.residual else 0
        if self._depthwise:
            return [image, weight, bias, output]
        return [image, weight, bias, residual, output]


def takes(operation: Convolution) -> bool:
    """True if golow has a kernel for it."""
    if operation.of_volumes:
        return False
    if operation.activation is not None and not is_depthwise(operation):
        return False
    return not (operation.residual and operation.depthwise)


def own_engines(operation: Convolution, gpu: Gpu, most: int) -> Iterator[OwnConvolution]:
    """Yield golow's depthwise kernels for the operation, the likeliest tilings first."""
    if not operation.depthwise or not takes(operation):
        return
    if operation.direction != "forward" or not is_depthwise(operation):
        yield OwnConvolution(operation, gpu)
        return
    for tiling in depthwise.tilings(operation.dtype, geometry_of(operation))[:most]:
        yield OwnConvolution(operation, gpu, tiling)


def restore(operation: Convolution, gpu: Gpu, data: bytes) -> OwnConvolution:
    """Return the engine that an earlier process stored."""
    tiling = msgspec.msgpack.decode(data, type=depthwise.Tiling | None)
    return OwnConvolution(operation, gpu, tiling)


def is_depthwise(operation: Convolution) -> bool:
    """True if golow has a kernel for depthwise convolutions with such a window."""
    return operation.depthwise and max(operation.kernel) <= depthwise.LARGEST_KERNEL


def geometry_of(operation: Convolution) -> direct_convolution.Convolution:
    """Raises ValueError for volumes."""
    images, channels, height, width = operation.image
    _, filters, rows, columns = operation.output
    return direct_convolution.Convolution(
        images=images,
        height=height,
        width=width,
        channels=channels,
        filters=filters,
        out_height=rows,
        out_width=columns,
        kernel=(operation.kernel[0], operation.kernel[1]),
        stride=operation.stride,
        padding=(operation.padding[0], operation.padding[1]),
        dilation=operation.dilation,
        groups=operation.groups,
        image_pitch=operation.image_pitch,
        output_pitch=operation.output_pitch,
    )
