"""Convolutions, of images with their channels last."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.traced.jax.operators.activation import activated
from golow.levels.traced.jax.writer import Writer
from golow.lower.operators.convolution import Convolution, ConvolutionBackward

NUMBERS = '("NHWC", "HWIO", "NHWC")'


def build(writer: Writer, given: Convolution) -> None:
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
    if given.activation is not None:
        result = activated(writer.line("sum", result), given.activation)
    writer.put(result, image=True)


def transposed(writer: Writer, given: ConvolutionBackward) -> None:
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


def refuse(given: ConvolutionBackward, question: Question) -> str:
    """Refuse the gradient of a weight, which no forward pass needs."""
    further = any(question.output(index) is not None for index in (1, 2))
    return "the gradient of a convolution's weight in a forward pass" if further else ""


IMPLEMENTATIONS = (
    Implementation(Convolution, build),
    Implementation(ConvolutionBackward, transposed, refuse),
)
