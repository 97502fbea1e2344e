"""Convolutions, of images with their channels last."""

from __future__ import annotations

from golow.levels.jax.operators.activation import activated
from golow.levels.jax.writer import Writer
from golow.levels.vendor.implementation import Implementation
from golow.lower.operators.convolution import Convolution

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
    result = f"lax.conv_general_dilated({', '.join(arguments)})"
    if given.bias is not None:
        result += f" + {writer.plain(given.bias)}"
    if given.residual is not None:
        result += f" + {writer.image(given.residual)}"
    if given.activation is not None:
        result = activated(writer.line("sum", result), given.activation)
    writer.put(result, image=True)


IMPLEMENTATIONS = (Implementation(Convolution, build),)
