"""Facts about a model of the zoo, without building it. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Size = int | Literal["sequence"]


@dataclass(frozen=True)
class Field:
    """One input of a model that does not take images.

    kind: ``ids`` are int64 and below ``below``, ``mask`` is bool, ``numbers`` are float32. shape:
    of one sample. below: how many different ids there are, one number for each column or one for
    all; empty for tokens, of which the vocabulary states it.
    """

    name: str
    kind: Literal["ids", "mask", "numbers"] = "ids"
    shape: tuple[Size, ...] = ("sequence",)
    below: tuple[int, ...] = ()


@dataclass(frozen=True)
class Entry:
    """One model of the zoo. It takes images, or what `fields` say.

    build: the function that makes it, as ``module:function``; see `golow.models.build` for a call
    by name. parameters: the number of trainable scalars at the defaults. summary: a one-line
    description.
    classes: scores per sample, or of a language model, per token: the size of its vocabulary; 0 if
    it is not free to choose.
    in_channels, resolution: the images' defaults (resolution is the side of the square image).
    minimum_resolution: the smallest resolution at which every layer still has a pixel. All are 0
    for other models. resolution_step: every valid resolution is a multiple of this. per_pixel: the
    output has a class for each pixel.
    fields: the inputs of a model that does not take images, in order. sequence: the default length
    of a sequence, 0 if it takes none. longest: the longest one, 0 for any.
    loss: in training, unless the user names another. initialisation: likewise.
    """

    name: str
    build: str
    parameters: int
    summary: str
    classes: int = 0
    in_channels: int = 0
    resolution: int = 0
    minimum_resolution: int = 0
    resolution_step: int = 1
    per_pixel: bool = False
    fields: tuple[Field, ...] = ()
    sequence: int = 0
    longest: int = 0
    loss: str = "cross_entropy"
    initialisation: str = "default"

    @property
    def takes_images(self) -> bool:
        """True if its input is one image per sample."""
        return not self.fields

    @property
    def arguments(self) -> dict[str, int]:
        """The arguments of its builder, with their defaults."""
        free = ("in_channels", "classes", "resolution")
        return {name: getattr(self, name) for name in free if getattr(self, name)}

    def resolution_fault(self, resolution: int) -> str:
        """Why the model cannot be built for images of this side; empty if it can."""
        if resolution < self.minimum_resolution:
            needed = f"of at least {self.minimum_resolution}"
        elif resolution % self.resolution_step:
            needed = f"that is a multiple of {self.resolution_step}"
        else:
            return ""
        return f"{self.name} needs a resolution {needed}, got {resolution}"

    def require(self, arguments: dict[str, int]) -> None:
        """Raise ValueError for an argument that its builder does not take."""
        for argument in arguments:
            if argument not in self.arguments:
                raise ValueError(
                    f"{self.name} takes no {argument}; it takes {', '.join(self.inputs())}"
                )

    def inputs(self) -> tuple[str, ...]:
        """A few words for each input."""
        if self.takes_images:
            return ("square images",)
        return tuple(_words(field) for field in self.fields)

    def require_sequence(self, length: int) -> None:
        """Raise ValueError unless the model takes sequences of that length."""
        if not self.sequence:
            raise ValueError(f"{self.name} takes no sequences")
        if length < 1:
            raise ValueError(f"a sequence of {length} has no token in it")
        if self.longest and length > self.longest:
            raise ValueError(f"{self.name} takes at most {self.longest} tokens, not {length}")


def _words(field: Field) -> str:
    shape = "x".join(str(size) for size in field.shape)
    return f"{field.name} ({field.kind}{f', {shape}' if shape else ''})"
