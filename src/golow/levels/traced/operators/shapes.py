"""Operators that move or repeat elements along axes."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.layouts import CHANNELS_LAST, CHANNELS_SECOND, image_axis
from golow.levels.traced.writer import Writer
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.copy import Copy
from golow.lower.operators.expand import Expand
from golow.lower.operators.flip import Flip
from golow.lower.operators.pad import Pad
from golow.lower.operators.permute import Permute
from golow.lower.operators.pixel_unshuffle import PixelUnshuffle
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.slice import Slice


def concatenate(writer: Writer, given: Concatenate) -> None:
    """The parts after one another."""
    parts, image = writer.together(*given.parts)
    axis = image_axis(given.axis) if image else given.axis
    writer.put(writer.dialect.concatenated(parts, axis), image)


def copy(writer: Writer, given: Copy) -> None:
    """x."""
    [x], image = writer.together(given.x)
    writer.put(x, image)


def expand(writer: Writer, given: Expand) -> None:
    """x repeated along axes of size one and new ones."""
    writer.put(f"{writer.dialect.module}.broadcast_to({writer.plain(given.x)}, {given.shape})")


def flip(writer: Writer, given: Flip) -> None:
    """x with axes reversed."""
    [x], image = writer.together(given.x)
    axes = tuple(map(image_axis, given.axes)) if image else given.axes
    writer.put(writer.dialect.flipped(x, axes), image)


def pad(writer: Writer, given: Pad) -> None:
    """x with elements added at the ends of its axes, or taken away."""
    [x], image = writer.together(given.x)
    value = writer.value(given.x)
    sides = list(zip(value.shape, given.before, given.after, strict=True))
    if image:
        sides = [sides[axis] for axis in CHANNELS_LAST]
    writer.put(writer.dialect.padded(x, value.dtype, sides, given.value), image)


def permute(writer: Writer, given: Permute) -> None:
    """x with its axes in another order. From and to an image with channels last, this may be no
    change at all."""
    dialect = writer.dialect
    if writer.is_image(given.x):
        order = tuple(map(image_axis, given.order))
        x = writer.image(given.x)
        writer.put(x if order == (0, 1, 2, 3) else dialect.transposed(x, order))
    elif dialect.channels_last and tuple(given.order) == CHANNELS_SECOND:
        writer.put(writer.plain(given.x), image=True)
    else:
        writer.put(dialect.transposed(writer.plain(given.x), given.order))


def reshape(writer: Writer, given: Reshape) -> None:
    """x in another shape."""
    writer.put(writer.dialect.reshaped(writer.plain(given.x), given.shape))


def sliced(writer: Writer, given: Slice) -> None:
    """``x[start:stop:step]`` along an axis."""
    [x], image = writer.together(given.x)
    axis = image_axis(given.axis) if image else given.axis
    writer.put(writer.dialect.sliced(x, axis, given.start, given.stop, given.step), image)


def unshuffle(writer: Writer, given: PixelUnshuffle) -> None:
    """Blocks of pixels as channels."""
    dialect = writer.dialect
    n, c, h, w = writer.value(given.x).shape
    f = given.factor
    split = dialect.reshaped(writer.plain(given.x), (n, c, h // f, f, w // f, f))
    blocks = dialect.transposed(split, (0, 1, 3, 5, 2, 4))
    writer.put(dialect.reshaped(blocks, (n, c * f * f, h // f, w // f)))


IMPLEMENTATIONS = (
    Implementation(Concatenate, concatenate),
    Implementation(Copy, copy),
    Implementation(Expand, expand),
    Implementation(Flip, flip),
    Implementation(Pad, pad),
    Implementation(Permute, permute),
    Implementation(Reshape, reshape),
    Implementation(Slice, sliced),
    Implementation(PixelUnshuffle, unshuffle),
)
