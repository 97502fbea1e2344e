"""Description of a quantised network as plain data, from which a worker can build it again."""

from __future__ import annotations

from typing import Literal

from golow.records.record import Record

QuantizationRule = Literal["int8", "fp8", "int8-weights", "int4-weights", "fp8-weights"]
"""``int8``: weights and activations are 8-bit integers. ``fp8``: weights and activations of linear
layers are 8-bit floating-point numbers (e4m3). ``int8-weights``: only weights; the layer computes
with their values in float32. ``int4-weights``: weights of linear layers are 4-bit integers.
``fp8-weights``: weights of linear layers are e4m3 numbers."""
OF_ACTIVATIONS: tuple[QuantizationRule, ...] = ("int8", "fp8")
"""Rules that round activations as well. Their ranges need samples."""
COMPENSATED: tuple[QuantizationRule, ...] = ("int4-weights", "fp8-weights")
"""Rules of weights alone whose rounding errors make up for one another if there are samples."""
LARGEST_E4M3 = 448
CalibrationMethod = Literal["min-max", "percentile", "compensation"]


class QuantizedLayer(Record, frozen=True, kw_only=True):
    """The rule of one layer.

    path: in the module (``layer1.0.conv1``). Weights: whole numbers from -127 to 127, a scale for
    each output, symmetric; of ``int4-weights`` from -8 to 7, a scale for each group of this many
    inputs of each output; of ``fp8`` and ``fp8-weights`` numbers of e4m3, a scale for each group,
    which is the whole row if it is 0. Activations, of ``int8`` and ``fp8`` alone: one scale for the
    tensor, no offset. A value is multiplied by the scale, rounded to the nearest integer or number
    of e4m3, ties to even, and clipped to the range. signed: integers from -128 to 127, otherwise
    from 0 to 255, for values that were never negative in the calibration. like: an earlier layer
    that reads the same tensor and therefore shares the scale.

    Only in networks that others have quantised: limits: another range of activations, its first and
    last integer. zeros: each group of ``int4-weights`` has a separate integer that represents zero.
    ordered: the groups are not of neighbouring inputs; the layer stores their order.
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
    def rounds_activations(self) -> bool:
        """True if activations are rounded as well."""
        return self.rule in OF_ACTIVATIONS

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
        if self.rule == "fp8":
            return -LARGEST_E4M3, LARGEST_E4M3
        return self.limits or ((-128, 127) if self.signed else (0, 255))


class KeptLayer(Record, frozen=True, kw_only=True):
    """A layer with weights that is not quantised, and why."""

    path: str
    reason: str


class Calibration(Record, frozen=True, kw_only=True):
    """Source of the scales of activations: the data set or other samples; their number; and the
    share of the values that must be within the range, 1 for ``min-max``. With ``compensation`` the
    samples are for the rounding of weights, whose errors make up for one another."""

    method: CalibrationMethod
    data: str
    samples: int
    share: float = 1.0


class QuantizedNetwork(Record, frozen=True, kw_only=True):
    """The quantisation of a whole network. model: the name of the original network."""

    model: str
    rule: QuantizationRule
    calibration: Calibration | None
    layers: tuple[QuantizedLayer, ...]
    kept: tuple[KeptLayer, ...] = ()
