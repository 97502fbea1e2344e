"""Gradients of depthwise weights by a generated kernel, where oneDNN has none for them.

Its own is for kernels of at most three columns, without holes, that are no larger than the image.
For others it takes a product for each channel, a convolution of groups, or its reference code,
which take several times as long as the kernel here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.onednn.bindings.constants import CHANNELS_LAST
from golow.levels.direct.onednn.bindings.library import Descriptor, channel_block
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.kernels.depthwise import Images, Taps, Weight, weight_gradient
from golow.lower.operators.convolution import ConvolutionBackward

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder


def is_depthwise(build: Builder, arguments: ConvolutionBackward) -> bool:
    """True if each channel of an image has a single kernel."""
    kernel = build.current.value(arguments.weight).shape
    return len(kernel) == 4 and arguments.groups == kernel[0] and kernel[1] == 1


def is_fast(primitive: Primitive) -> bool:
    """True if the library has a kernel for depthwise convolutions."""
    return primitive.implementation.startswith("jit_dw")


def depthwise_weights(build: Builder, arguments: ConvolutionBackward) -> None:
    """Define the gradients of weight and bias, those that are wanted."""
    x, biased = build.values.tensor(arguments.x), arguments.wanted[2]
    images, channels, *image = x.shape
    result = build.current.value(arguments.gradient).shape
    block = channel_block()
    in_blocks = channels % block.size == 0 and x.layout == Descriptor.tagged(x.shape, block.tag)
    tag, columns = (block.tag, block.size) if in_blocks else (CHANNELS_LAST, channels)
    layout = _weight_layout(build, arguments)
    *_, height, width = layout.shape
    kernel = weight_gradient(
        Images(images, channels // columns, columns),
        (image[0], image[1]),
        (result[2], result[3]),
        Taps(
            (height, width),
            (arguments.stride[0], arguments.stride[1]),
            (arguments.dilation[0], arguments.dilation[1]),
            (arguments.padding[0], arguments.padding[1]),
        ),
        _weight(layout),
        biased,
    )
    made = [build.memory.new(build.current.output_name(1), layout.shape, layout)]
    if biased:
        of_bias = Descriptor.plain((channels,))
        made.append(build.memory.new(build.current.output_name(2), (channels,), of_bias))
    reads = [
        build.values.wanted(arguments.x, Descriptor.tagged(x.shape, tag)),
        build.values.wanted(arguments.gradient, Descriptor.tagged(result, tag)),
    ]
    build.steps.kernel(kernel, reads, made, "convolution_backward_weights")
    for index, tensor in enumerate(made, 1):
        build.values.define(index, tensor)


def _weight_layout(build: Builder, arguments: ConvolutionBackward) -> Descriptor:
    """The parameter's own layout, [G, 1, 1, R, S], if the kernel can write it, else row-major."""
    layout = build.values.tensor(arguments.weight).layout
    channels, _, *kernel = build.current.value(arguments.weight).shape
    shape, blocks = (channels, 1, 1, *kernel), layout.blocks
    fits = not blocks or (len(blocks) == 1 and blocks[0][0] == 0 and not channels % blocks[0][1])
    return layout if layout.shape == shape and fits else Descriptor.plain(shape)


def _weight(layout: Descriptor) -> Weight:
    of_block, _, _, of_row, of_column = layout.strides
    return Weight(layout.blocks[0][1] if layout.blocks else 1, of_block, of_row, of_column)
