"""The records of a quantisation: which network it is, how far it is from the original, and what it
costs in the task. Whether a level computes it rightly is a comparison's record."""

from __future__ import annotations

from typing import Literal

from golow.records.quantization import QuantizedNetwork
from golow.records.record import Record
from golow.records.workload import Workload

Gate = Literal["passes", "misses", "unclear"]


class Share(Record, frozen=True, kw_only=True):
    """This many of a number of cases, and the 95% interval of the share (Clopper and Pearson
    1934)."""

    count: int
    cases: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The share itself."""
        return self.count / self.cases if self.cases else 0.0


class OutputDistance(Record, frozen=True, kw_only=True):
    """How far one output moved. error: the root mean square of the difference over that of the
    original. divergence: the mean Kullback-Leibler divergence of the distributions over classes, in
    nats, original first; flipped: how often the class with the largest score is another one. Both
    are None for an output that is not scores of classes along its last axis."""

    error: float
    divergence: float | None = None
    flipped: Share | None = None


class Movement(Record, frozen=True, kw_only=True):
    """How far the network moved, over samples that the calibration has not seen. data: what they
    are."""

    data: str
    samples: int
    outputs: tuple[OutputDistance, ...]


class TaskAccuracy(Record, frozen=True, kw_only=True):
    """Cost of the quantisation in the task: the share of right classes before and after.

    data: the part of the data set. gate: the share of the original accuracy that must be kept, as
    MLPerf asks for 99% or 99.9%. lost and gained: cases that only one of both gets right. low and
    high: a 95% interval of the accuracy minus the gate's share of the original's; it is for the
    same cases at both. perplexity: before and after, of a text.
    """

    data: str
    original: Share
    quantized: Share
    lost: int
    gained: int
    gate: float
    low: float
    high: float
    perplexity: tuple[float, float] | None = None

    @property
    def verdict(self) -> Gate:
        """``passes`` or ``misses`` if the whole interval is on that side."""
        if self.low >= 0:
            return "passes"
        return "misses" if self.high < 0 else "unclear"


class LayerGain(Record, frozen=True, kw_only=True):
    """Gain of keeping one layer in float32. left: the distance that is left then.
    multiplications: of the layer, for a sample."""

    path: str
    left: float
    multiplications: int


class Mixture(Record, frozen=True, kw_only=True):
    """Layers to keep in float32, and the right answers of the network then."""

    keep: tuple[str, ...]
    right: int


class Ranking(Record, frozen=True, kw_only=True):
    """The quantised layers, the one first that keeping brings back most, over samples of the
    calibration.

    measure: of distances to the original, of the first output, ``divergence`` or ``error`` as in
    `OutputDistance`. distance: with all layers quantised. original_right and quantized_right: right
    answers; None, and no proposal, without classes.
    """

    data: str
    samples: int
    measure: Literal["divergence", "error"]
    distance: float
    layers: tuple[LayerGain, ...]
    original_right: int | None = None
    quantized_right: int | None = None
    proposal: Mixture | None = None


class OtherQuantization(Record, frozen=True, kw_only=True):
    """The network by somebody else's quantiser, which makes another network of it. reason:
    why there is none."""

    name: str
    movement: Movement | None = None
    accuracy: TaskAccuracy | None = None
    reason: str = ""


class Quantization(Record, frozen=True, kw_only=True):
    """A quantised network beside its original. file: where it was written; empty if it was not.
    original_bytes and quantized_bytes: of the state dicts."""

    id: str
    created: str
    workload: Workload
    network: QuantizedNetwork
    movement: Movement
    accuracy: TaskAccuracy | None
    original_bytes: int
    quantized_bytes: int
    ranking: Ranking | None = None
    others: tuple[OtherQuantization, ...] = ()
    file: str = ""
