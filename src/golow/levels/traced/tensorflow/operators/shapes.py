"""What moves or repeats elements along axes."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.tensorflow.writer import DTYPES, Writer
from golow.levels.traced.writer import CHANNELS_SECOND, image_axis, number
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
    writer.put(f"tf.concat([{', '.join(parts)}], axis={axis})", image)


def copy(writer: Writer, given: Copy) -> None:
    """x."""
    [x], image = writer.together(given.x)
    writer.put(x, image)


def expand(writer: Writer, given: Expand) -> None:
    """x repeated along axes of size one and new ones."""
    writer.put(f"tf.broadcast_to({writer.plain(given.x)}, {given.shape})")


def flip(writer: Writer, given: Flip) -> None:
    """x with axes reversed."""
    [x], image = writer.together(given.x)
    axes = map(image_axis, given.axes) if image else given.axes
    writer.put(f"tf.reverse({x}, {list(axes)})", image)


def pad(writer: Writer, given: Pad) -> None:
    """x with elements added at the ends of its axes, or taken away."""
    [x], image = writer.together(given.x)
    sides = list(zip(given.before, given.after, strict=True))
    shape, dtype = writer.value(given.x).shape, writer.value(given.x).dtype
    cut = [slice(max(0, -b), n - max(0, -a)) for (b, a), n in zip(sides, shape, strict=True)]
    if image:
        sides = [sides[0], sides[2], sides[3], sides[1]]
        cut = [cut[0], cut[2], cut[3], cut[1]]
    if any(min(each) < 0 for each in sides):
        x = f"{x}[{', '.join(f'{part.start}:{part.stop}' for part in cut)}]"
    added = tuple((max(0, before), max(0, after)) for before, after in sides)
    value = given.value if dtype == "float32" else int(given.value)
    constant = f"tf.constant({number(value)}, {DTYPES[dtype]})" if dtype != "bool" else f"{value!r}"
    writer.put(f"tf.pad({x}, {added}, constant_values={constant})", image)


def permute(writer: Writer, given: Permute) -> None:
    """x with its axes in another order. From and to an image with channels last, this may be no
    change at all."""
    if writer.is_image(given.x):
        order = tuple(map(image_axis, given.order))
        x = writer.image(given.x)
        writer.put(x if order == (0, 1, 2, 3) else f"tf.transpose({x}, {order})")
    elif tuple(given.order) == CHANNELS_SECOND:
        writer.put(writer.plain(given.x), image=True)
    else:
        writer.put(f"tf.transpose({writer.plain(given.x)}, {tuple(given.order)})")


def reshape(writer: Writer, given: Reshape) -> None:
    """x in another shape."""
    writer.put(writer.reshaped(writer.plain(given.x), given.shape))


def sliced(writer: Writer, given: Slice) -> None:
    """``x[start:stop:step]`` along an axis."""
    [x], image = writer.together(given.x)
    axis = image_axis(given.axis) if image else given.axis
    step = f":{given.step}" if given.step != 1 else ""
    writer.put(f"{x}[{':, ' * axis}{given.start}:{given.stop}{step}]", image)


def unshuffle(writer: Writer, given: PixelUnshuffle) -> None:
    """Blocks of pixels as channels."""
    n, c, h, w = writer.value(given.x).shape
    f = given.factor
    split = writer.reshaped(writer.plain(given.x), (n, c, h // f, f, w // f, f))
    shape = (n, c * f * f, h // f, w // f)
    writer.put(writer.reshaped(f"tf.transpose({split}, (0, 1, 3, 5, 2, 4))", shape))


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
