"""Convolutions, of images with their channels last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.operators.activation import activated
from golow.levels.traced.refusals import refuse_gradient_of_weight
from golow.lower.operators.convolution import Convolution, ConvolutionBackward

if TYPE_CHECKING:
    from golow.levels.traced.jax.writer import JaxWriter

NUMBERS = '("NHWC", "HWIO", "NHWC")'


def build(writer: JaxWriter, given: Convolution) -> None:
    """``activation(convolution(x, weight) + bias + residual)``."""
    top, left, bottom, right = given.padding
    arguments = [
        writer.image(given.x),
        writer.filter(given.weight),
        f"{given.stride}",
        f"(({top}, {bottom}), ({left}, {right}))",
    ]
    if given.dilation != (1, 1):
        arguments.append(f"rhs_dilation={given.dilation}")
    arguments.append(f"dimension_numbers={NUMBERS}")
    if given.groups != 1:
        arguments.append(f"feature_group_count={given.groups}")
    if writer.convolutions:
        arguments.append(f"precision={writer.convolutions!r}")
    result = f"lax.conv_general_dilated({', '.join(arguments)})"
    if given.bias is not None:
        result += f" + {writer.plain(given.bias)}"
    if given.residual is not None:
        result += f" + {writer.image(given.residual)}"
    writer.put(activated(writer, result, given.activation), image=True)


def transposed(writer: JaxWriter, given: ConvolutionBackward) -> None:
    """The gradient of x alone: what a transposed convolution is."""
    output = writer.output()
    if output is None:
        return
    top, left, bottom, right = given.padding
    forward = (
        f"lambda x: lax.conv_general_dilated(x, {writer.filter(given.weight)}, {given.stride}, "
        f"(({top}, {bottom}), ({left}, {right})), rhs_dilation={given.dilation}, "
        f"dimension_numbers={NUMBERS}, feature_group_count={given.groups}, "
        f"precision={writer.convolutions or None!r})"
    )
    images, channels, height, width = output.shape
    gradient = writer.image(given.gradient)
    zeros = f"jnp.zeros({(images, height, width, channels)}, {gradient}.dtype)"
    writer.put(f"jax.vjp({forward}, {zeros})[1]({gradient})[0]", image=True)


IMPLEMENTATIONS = (
    Implementation(Convolution, build),
    Implementation(ConvolutionBackward, transposed, refuse_gradient_of_weight),
)
