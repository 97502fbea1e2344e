"""Convolutions, of images with their channels last."""

from __future__ import annotations

from collections.abc import Sequence

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.operators.activation import activated
from golow.levels.traced.refusals import refuse_gradient_of_weight
from golow.levels.traced.writer import Writer
from golow.lower.operators.convolution import Convolution, ConvolutionBackward


def build(writer: Writer, given: Convolution) -> None:
    """``activation(convolution(x, weight) + bias + residual)``."""
    channels = writer.value(given.x).shape[1]
    depthwise = given.groups == channels > 1
    call = _depthwise(writer, given, channels) if depthwise else _plain(writer, given)
    if given.bias is not None:
        call = f"tf.nn.bias_add({call}, {writer.plain(given.bias)})"
    if given.residual is not None:
        call += f" + {writer.image(given.residual)}"
    writer.put(activated(writer, call, given.activation), image=True)


def _plain(writer: Writer, given: Convolution) -> str:
    """Groups are those into which the filter's channels divide the image's."""
    x, weight = writer.image(given.x), writer.filter(given.weight)
    dilated = f", dilations={given.dilation}" if given.dilation != (1, 1) else ""
    return f"tf.nn.conv2d({x}, {weight}, {given.stride}, {_padding(given.padding)}{dilated})"


def _depthwise(writer: Writer, given: Convolution, channels: int) -> str:
    """Each channel alone; its filter has an axis of channels, then one of those made of each."""
    filters, _, rows, columns = writer.value(given.weight).shape
    shape = (rows, columns, channels, filters // channels)
    weight = f"tf.reshape({writer.filter(given.weight)}, {shape})"
    x = writer.image(given.x)
    if any(given.padding):  # TensorFlow 2.21 fuses bias and convolution, and aborts if that pads
        x = f"tf.pad({x}, {_padding(given.padding)})"
    if given.dilation == (1, 1):
        strides = (1, *given.stride, 1)
        return f'tf.nn.depthwise_conv2d({x}, {weight}, {strides}, "VALID")'
    # With gaps in the kernel it has no strides.
    call = (
        f'tf.nn.depthwise_conv2d({x}, {weight}, (1, 1, 1, 1), "VALID", dilations={given.dilation})'
    )
    if given.stride == (1, 1):
        return call
    return f"{call}[:, ::{given.stride[0]}, ::{given.stride[1]}]"


def transposed(writer: Writer, given: ConvolutionBackward) -> None:
    """The gradient of x alone: what a transposed convolution is. TensorFlow has none in groups."""
    output = writer.output()
    if output is None:
        return
    images, channels, height, width = output.shape
    shape = (images, height, width, channels // given.groups)
    gradient, weight = writer.image(given.gradient), writer.filter(given.weight)
    dilated = f", dilations={given.dilation}" if given.dilation != (1, 1) else ""
    further = f"{shape}, {given.stride}, {_padding(given.padding)}{dilated}"
    if given.groups == 1:
        writer.put(f"tf.nn.conv2d_transpose({gradient}, {weight}, {further})", image=True)
        return
    parts = writer.line("parts", f"tf.split({gradient}, {given.groups}, axis=3)")
    weights = writer.line("weights", f"tf.split({weight}, {given.groups}, axis=3)")
    each = f"tf.nn.conv2d_transpose(part, weight, {further})"
    found = f"[{each} for part, weight in zip({parts}, {weights}, strict=True)]"
    writer.put(f"tf.concat({found}, axis=3)", image=True)


def _padding(given: Sequence[int]) -> str:
    top, left, bottom, right = given
    if not any(given):
        return '"VALID"'
    return f"((0, 0), ({top}, {bottom}), ({left}, {right}), (0, 0))"


IMPLEMENTATIONS = (
    Implementation(Convolution, build),
    Implementation(ConvolutionBackward, transposed, refuse_gradient_of_weight),
)
