"""A network's first convolution by golow's own kernels, which read the current batch where all
batches are stored: no step copies it, and no tensor core multiplies channels that only fill up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from golow.levels.direct.cudnn.engines.few_pixel_convolution import FIRST_WITH_TF32
from golow.levels.direct.cudnn.engines.golow_convolution import geometry_of
from golow.levels.direct.cudnn.engines.own_engine import Address, OwnEngine
from golow.levels.direct.cudnn.problems.products import Convolution, FirstConvolution
from golow.levels.direct.cudnn.shared_kernels import Kernel, first_layer
from golow.levels.direct.cudnn.shared_kernels.blocks import Launches
from golow.levels.direct.formulas.activation_formulas import value

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.bindings.device import Gpu


class FirstEngine(OwnEngine):
    """One such convolution, forward, or the gradient of its weight; tiling: forward. The bias is
    float32."""

    kind = "first"

    def __init__(
        self, operation: FirstConvolution, gpu: Gpu, tiling: first_layer.Tiling | None = None
    ) -> None:
        self._operation, self._gpu, self._tiling = operation, gpu, tiling
        self.name = f"first {tiling}" if tiling else "first"
        self._launches = self._make_launches()
        self.workspace = 4 * self._launches.scratch

    def launches(
        self, addresses: Sequence[Address], workspace: Address
    ) -> Iterable[tuple[Kernel, Sequence[Any]]]:
        """Launches on operands in the order of `FirstConvolution`."""
        batches, read, *bias, position, written = list[Any](addresses)
        if self._operation.convolution.direction == "backward_weight":
            pointers = [batches, position, read, written, workspace]
        else:
            pointers = [batches, position, read, *(bias or [0]), written]
        return [(kernel, pointers) for kernel in self._launches.kernels]

    def encode(self) -> bytes:
        """Return the tiling; making it again takes almost no time."""
        return msgspec.msgpack.encode(self._tiling)

    def _make_launches(self) -> Launches:
        done, source = self._operation.convolution, self._operation.source
        geometry = geometry_of(done)
        if self._tiling is None:
            return first_layer.backward_weight(source, done.dtype, done.result, geometry)
        formula = value(done.activation, "value") if done.activation else ""
        kernel = first_layer.forward(
            source, done.dtype, geometry, self._tiling, clip=done.clip, formula=formula
        )
        return Launches((kernel,))


def first_engines(operation: FirstConvolution, gpu: Gpu, most: int) -> Iterator[FirstEngine]:
    """Yield the engines that may be fastest, the likeliest first; none if the GPU has no tensor
    cores for them."""
    done = operation.convolution
    if int(gpu.architecture.removeprefix("sm_")) < FIRST_WITH_TF32:
        return
    if done.direction == "backward_weight":
        yield FirstEngine(operation, gpu)
        return
    for tiling in first_layer.tilings(done.dtype, geometry_of(done))[:most]:
        yield FirstEngine(operation, gpu, tiling)


def restore(operation: FirstConvolution, gpu: Gpu, data: bytes) -> FirstEngine:
    """Return the engine whose `encode` returned these bytes."""
    return FirstEngine(operation, gpu, msgspec.msgpack.decode(data, type=first_layer.Tiling | None))


def as_first(convolution: Convolution, image: tuple[int, ...], source: str) -> FirstConvolution:
    """Return the convolution of an input of this shape and type."""
    done = msgspec.structs.replace(convolution, image=image)
    return FirstConvolution(convolution=done, source=source)


def takes_first(operation: FirstConvolution) -> bool:
    """True if there is a kernel for it: not without tensor cores, with a residual, for images of
    other types or for many shapes."""
    done = operation.convolution
    if done.arithmetic == "ieee" or done.residual or done.result != done.dtype:
        return False
    taken = first_layer.takes_gradient if done.direction == "backward_weight" else first_layer.takes
    return operation.source == "float32" and taken(done.dtype, geometry_of(done))
