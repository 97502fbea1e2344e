"""Convolutions, of images with their channels second, as PyTorch has them."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.operators.activation import activated
from golow.levels.traced.refusals import refuse_gradient_of_weight
from golow.levels.traced.writer import Writer
from golow.lower.operators.convolution import Convolution, ConvolutionBackward


def build(writer: Writer, given: Convolution) -> None:
    """``activation(convolution(x, weight) + bias + residual)``."""
    bias = "None" if given.bias is None else writer.plain(given.bias)
    call = f"F.conv2d({writer.image(given.x)}, {writer.filter(given.weight)}, {bias}, "
    call += f"{given.stride}, {_padding(given)}, {given.dilation}, {given.groups})"
    if given.residual is not None:
        call += f" + {writer.image(given.residual)}"
    writer.put(activated(writer, call, given.activation), image=True)


def transposed(writer: Writer, given: ConvolutionBackward) -> None:
    """The gradient of x alone: what a transposed convolution is."""
    output = writer.output()
    if output is None:
        return
    gradient, weight = writer.image(given.gradient), writer.filter(given.weight)
    call = (
        f"F.conv2d_transpose({gradient}, {weight}, None, {given.stride}, {_padding(given)}, "
        f"0, {given.dilation}, {given.groups}, {output.shape[2:]})"
    )
    writer.put(call, image=True)


def _padding(given: Convolution | ConvolutionBackward) -> list[int]:
    """Rows and columns if both ends are alike, else all four ends in Paddle's order."""
    top, left, bottom, right = given.padding
    return [top, left] if (top, left) == (bottom, right) else [top, bottom, left, right]


IMPLEMENTATIONS = (
    Implementation(Convolution, build),
    Implementation(ConvolutionBackward, transposed, refuse_gradient_of_weight),
)
