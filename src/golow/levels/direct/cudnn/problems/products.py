"""Convolutions and attention, each in one direction, as engines take them."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.formulas.activation_formulas import NO_CLIP, Clip
from golow.lower.ir.graph import Activation
from golow.records.record import Record

Arithmetic = Literal["ieee", "tf32", "half", "quarter"]
Direction = Literal["forward", "backward_data", "backward_weight"]


class Convolution(Record, frozen=True, kw_only=True):
    """A convolution of NHWC images, or of volumes, with KRSC weights.

    image: N, C, H, W of the layer's input; output: N, K, P, Q of its result; kernel: R, S; padding:
    top, left, bottom, right; those of volumes have a third axis, the depth first. dtype: of what is
    read; result: of what is written. bias (dtype), residual (like the output) and clip, the limits
    of the result, are for the forward direction only, as are activation, what follows the clip, and
    frozen and cold: the weight is the same in every iteration, and it is not in the GPU's cache.
    image_pitch, output_pitch: elements from one pixel to the next where image or output is a range
    of a wider one, for golow's own depthwise kernels; otherwise 0.

    Operands, in this order. forward: image, weight[, bias][, residual] -> output. backward_data:
    gradient of the output, weight -> gradient of the image. backward_weight: image, gradient of
    the output -> gradient of the weight.
    """

    direction: Direction
    image: tuple[int, ...]
    output: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    dtype: str
    result: str
    arithmetic: Arithmetic
    bias: bool = False
    residual: bool = False
    clip: Clip = NO_CLIP
    activation: Activation | None = None
    frozen: bool = False
    cold: bool = False
    image_pitch: int = 0
    output_pitch: int = 0

    @property
    def weight(self) -> tuple[int, ...]:
        """K, C / groups, R, S."""
        return (self.output[1], self.image[1] // self.groups, *self.kernel)

    @property
    def of_volumes(self) -> bool:
        """True if it has three axes."""
        return len(self.kernel) == 3

    @property
    def pointwise(self) -> bool:
        """True if it is a product over the pixels: one tap, stride 1, no padding, no groups."""
        return (
            self.kernel == (1, 1)
            and self.stride == (1, 1)
            and not any(self.padding)
            and self.groups == 1
        )

    @property
    def depthwise(self) -> bool:
        """True if every channel has its own filters."""
        return self.groups > 1 and self.groups == self.image[1]

    @property
    def of_ranges(self) -> bool:
        """True if image or output is a range of a wider one."""
        return bool(self.image_pitch or self.output_pitch)

    @property
    def flops(self) -> int:
        """Its arithmetic, two a multiplication with addition."""
        return 2 * math.prod(self.output) * math.prod(self.weight[1:])

    @property
    def operand_bytes(self) -> tuple[int, ...]:
        """Sizes of the operands in their order, in bytes."""
        read, written = ITEM_BYTES[self.dtype], ITEM_BYTES[self.result]
        image = math.prod(self.image) // self.image[1] * (self.image_pitch or self.image[1])
        output = math.prod(self.output) // self.output[1] * (self.output_pitch or self.output[1])
        weight = math.prod(self.weight)
        if self.direction == "forward":
            sizes = [image * read, weight * read]
            sizes += [self.output[1] * read] if self.bias else []
            sizes += [output * written] if self.residual else []
            return (*sizes, output * written)
        if self.direction == "backward_data":
            return output * read, weight * read, image * written
        return image * read, output * read, weight * written


class FirstConvolution(Record, frozen=True, kw_only=True):
    """The convolution of a model's input, forward, or the gradient of its weight, by a kernel that
    reads the batches where they are stored.

    convolution: of an image with the input's own channels; source: dtype of the batches.

    Operands, in this order. Forward: all batches, weight[, bias in float32], position of the
    current batch -> output. Backward: all batches, gradient of the output, position -> gradient of
    the weight.
    """

    convolution: Convolution
    source: str

    @property
    def flops(self) -> int:
        """As those of `Convolution`."""
        return self.convolution.flops

    @property
    def operand_bytes(self) -> tuple[int, ...]:
        """Sizes of the operands in their order, in bytes, for one batch; the position, which is 0
        then, counts as none."""
        image, *others, written = self.convolution.operand_bytes
        read = image // ITEM_BYTES[self.convolution.dtype] * ITEM_BYTES[self.source]
        if self.convolution.bias:
            others[1] = ITEM_BYTES["float32"] * self.convolution.output[1]
        return (read, *others, 0, written)


class Placed(NamedTuple):
    """Shape [B, H, L, E] of a tensor in memory, and its strides in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def extent(self) -> int:
        """Elements from its first to its last one, with what is between."""
        steps = zip(self.shape, self.strides, strict=True)
        return 1 + sum((size - 1) * stride for size, stride in steps)


class AttentionProblem(Record, frozen=True, kw_only=True):
    """Attention in one direction; dtype: of all tensors but the logarithms.

    scale: of the scores; added: to them, of the dtype added_dtype if it has its own. By truth
    values scores are seen or not, and a row that sees nothing is zero. kept: with dropout of the
    weights, by truth values [B, H, L, S], and a probability. keeps: whether the forward direction
    also writes the logarithms of the rows' sums, float32 [B, H, L]. The gradients are stored like
    query, key and value; gradient: where the output's is stored.

    Operands, in this order. Forward: query, key, value[, added][, kept, probability] -> output[,
    logarithms]. Backward: query, key, value[, added][, kept, probability], output, gradient,
    logarithms -> gradients of query, key and value.
    """

    query: Placed
    key: Placed
    value: Placed
    output: Placed
    dtype: str
    causal: bool
    scale: float
    keeps: bool = False
    added: Placed | None = None
    added_dtype: str = ""
    kept: bool = False
    gradient: Placed | None = None
    of_query: Placed | None = None
    of_key: Placed | None = None
    of_value: Placed | None = None

    @property
    def by_library(self) -> bool:
        """True if cuDNN computes it."""
        return self.dtype != "float32" and not self.added_dtype and not self.kept

    @property
    def rows(self) -> Placed:
        """The logarithms as cuDNN takes them: [B, H, L, 1]."""
        images, heads, length, _ = self.query.shape
        return Placed((images, heads, length, 1), (heads * length, length, 1, 1))

    @property
    def operand_bytes(self) -> tuple[int, ...]:
        """Sizes of the operands in their order, in bytes, including gaps."""
        rows = 4 * self.rows.extent
        inputs = list(self._bytes(self.query, self.key, self.value, self.added))
        if self.added is not None and self.added_dtype:
            inputs[-1] = ITEM_BYTES[self.added_dtype] * self.added.extent
        if self.kept:
            inputs += [math.prod(self.query.shape[:3]) * self.key.shape[2], ITEM_BYTES["float32"]]
        output = self._bytes(self.output)
        if self.gradient is not None:
            gradients = self._bytes(self.of_query, self.of_key, self.of_value)
            return (*inputs, *output, *self._bytes(self.gradient), rows, *gradients)
        return (*inputs, *output, *((rows,) if self.keeps else ()))

    @property
    def flops(self) -> int:
        """Arithmetic of its matrix products, two a multiplication with addition."""
        images, heads, length, size = self.query.shape
        products = 2 if self.gradient is None else 5
        return 2 * products * images * heads * length * self.key.shape[2] * size

    def _bytes(self, *places: Placed | None) -> tuple[int, ...]:
        return tuple(ITEM_BYTES[self.dtype] * place.extent for place in places if place)
