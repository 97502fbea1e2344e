"""Convolutions by golow's own kernels: depthwise ones, which are slow in the libraries, and those
that no library supports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from golow.levels.vendor.cudnn.kernels import depthwise, direct
from golow.levels.vendor.cudnn.kernels.blocks import Launches
from golow.levels.vendor.cudnn.products import Convolution

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.device import Gpu


class OwnConvolution:
    """One convolution by golow's own kernels. Bias and gradients of weights are float32."""

    kind = "own"

    def __init__(self, operation: Convolution, gpu: Gpu) -> None:
        self._operation, self._gpu = operation, gpu
        self._depthwise = operation.depthwise and max(operation.kernel) <= depthwise.LARGEST_KERNEL
        self.name = "depthwise" if self._depthwise else "direct"
        self._launches = self._make_launches()
        self.workspace = 4 * self._launches.scratch

    def run(self, addresses: Sequence[int], workspace: int, side: bool = False) -> None:
        """Enqueue it on the operands, in the order of `Convolution`."""
        pointers = self._pointers(addresses, workspace)
        for kernel in self._launches.kernels:
            self._gpu.launch(kernel, pointers, side)

    def encode(self) -> bytes:
        """Return no bytes: making it again takes almost no time."""
        return b""

    def _make_launches(self) -> Launches:
        operation, dtype = self._operation, self._operation.dtype
        module: Any = depthwise if self._depthwise else direct
        geometry = geometry_of(operation)
        made: Launches
        if operation.direction == "forward":
            made = module.forward(dtype, dtype, geometry, clip=operation.clip)
        elif operation.direction == "backward_data":
            made = module.backward_data(dtype, dtype, geometry)
        else:
            made = module.backward_weight(dtype, geometry)
        return made

    def _pointers(self, addresses: Sequence[int], workspace: int) -> list[int]:
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
    """Whether golow has a kernel for it."""
    return not (operation.residual and operation.depthwise)


def geometry_of(operation: Convolution) -> direct.Convolution:
    images, channels, height, width = operation.image
    _, filters, rows, columns = operation.output
    return direct.Convolution(
        images=images,
        height=height,
        width=width,
        channels=channels,
        filters=filters,
        out_height=rows,
        out_width=columns,
        kernel=operation.kernel,
        stride=operation.stride,
        padding=(operation.padding[0], operation.padding[1]),
        dilation=operation.dilation,
        groups=operation.groups,
    )
