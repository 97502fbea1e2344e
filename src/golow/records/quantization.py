"""How a network was quantised, as plain data: what a worker needs to build it again, and what a
reader needs to know which network it is."""

from __future__ import annotations

from typing import Literal

from golow.records.record import Record

QuantizationRule = Literal["int8", "int8-weights", "int4-weights", "fp8-weights"]
"""``int8``: weights and activations are whole numbers of 8 bits. ``int8-weights``: weights alone;
the layer computes with their values in float32. ``int4-weights``: weights of linear layers, of 4
bits. ``fp8-weights``: weights of linear layers, in the floating point of 8 bits that is called
e4m3."""
CalibrationMethod = Literal["min-max", "percentile"]


class QuantizedLayer(Record, frozen=True, kw_only=True):
    """The rule of one layer.

    path: in the module (``layer1.0.conv1``). Weights: whole numbers from -127 to 127, a scale for
    each output, symmetric; of ``int4-weights`` from -8 to 7, a scale for each group of so many
    inputs of each output; of ``fp8-weights`` numbers of e4m3, a scale for each group, which is the
    whole row if it is 0. Activations, of ``int8`` alone: one scale for the tensor, no offset;
    signed: from -128 to 127, otherwise from 0 to 255, for what was never negative in the
    calibration. A value is multiplied by the scale, rounded to the nearest whole number, of two
    equally near ones to the even one, and clipped to the range. like: an earlier layer that reads
    the same tensor, and so has the same scale, which both share.

    Only in networks that others have quantised: limits: another range of activations, the first and
    the last whole number. zeros: each group of ``int4-weights`` has a number of its own that stands
    for zero. ordered: the groups are not of neighbouring inputs; the layer has their order.
    """

    path: str
    rule: QuantizationRule
    signed: bool = True
    like: str = ""
    group: int = 0
    limits: tuple[int, int] | None = None
    zeros: bool = False
    ordered: bool = False

    @property
    def lowest(self) -> int:
        """The smallest activation."""
        return self._limits[0]

    @property
    def highest(self) -> int:
        """The largest activation."""
        return self._limits[1]

    @property
    def _limits(self) -> tuple[int, int]:
        return self.limits or ((-128, 127) if self.signed else (0, 255))


class KeptLayer(Record, frozen=True, kw_only=True):
    """A layer with weights that is not quantised, and why."""

    path: str
    reason: str


class Calibration(Record, frozen=True, kw_only=True):
    """Source of the scales of activations: the data set, or what else the samples are; their
    number; and the share of the values that must be within the range, 1 for ``min-max``."""

    method: CalibrationMethod
    data: str
    samples: int
    share: float = 1.0


class QuantizedNetwork(Record, frozen=True, kw_only=True):
    """A network's quantisation as a whole. model: the name of the network that was quantised."""

    model: str
    rule: QuantizationRule
    calibration: Calibration | None
    layers: tuple[QuantizedLayer, ...]
    kept: tuple[KeptLayer, ...] = ()
