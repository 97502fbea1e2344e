"""The records of a quantisation: the network, its distance from the original, and the loss of
accuracy. The record of a comparison states whether a level computes it correctly."""

from __future__ import annotations

from typing import Literal

from golow.records.quantization import QuantizedNetwork
from golow.records.record import Record
from golow.records.workload import Workload

Gate = Literal["passes", "misses", "unclear"]
Width = Literal["float32", "8 bits"]


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
    """Distance of one output from the original's. error: the root mean square of the difference
    over that of the original. divergence: the mean Kullback-Leibler divergence of the distributions
    over classes, in nats, original first; flipped: share of cases in which another class has the
    largest score. Both are None for an output that is not scores of classes along its last axis."""

    error: float
    divergence: float | None = None
    flipped: Share | None = None


class Movement(Record, frozen=True, kw_only=True):
    """Distance of the network from the original, over samples that the calibration did not use.
    data: their source."""

    data: str
    samples: int
    outputs: tuple[OutputDistance, ...]


class TaskAccuracy(Record, frozen=True, kw_only=True):
    """Accuracy before and after the quantisation: the share of correct classes.

    data: the part of the data set. gate: the share of the original accuracy that must be kept, 99%
    or 99.9% in MLPerf. lost and gained: cases that only one of the two classifies correctly. low
    and high: a 95% interval of the accuracy minus the gate's share of the original's; it is for the
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
    """Gain of keeping one layer wider. left: the remaining distance. multiplications: of the
    layer, for a sample."""

    path: str
    left: float
    multiplications: int


class Mixture(Record, frozen=True, kw_only=True):
    """Layers to keep wider, and the network's correct answers with them. accuracy: the third
    statement about this network; None without samples for it."""

    keep: tuple[str, ...]
    right: int
    accuracy: TaskAccuracy | None = None


class Ranking(Record, frozen=True, kw_only=True):
    """The quantised layers, ordered by the gain of keeping them wider, over calibration
    samples.

    measure: of distances to the original, of the first output, ``divergence`` or ``error`` as in
    `OutputDistance`. distance: with all layers quantised. original_right and quantized_right:
    correct answers; None, and no proposal, without classes. kept_in: the numbers of a layer that is
    kept wider.
    """

    data: str
    samples: int
    measure: Literal["divergence", "error"]
    distance: float
    layers: tuple[LayerGain, ...]
    original_right: int | None = None
    quantized_right: int | None = None
    proposal: Mixture | None = None
    kept_in: Width = "float32"


class OtherQuantization(Record, frozen=True, kw_only=True):
    """The network from another tool's quantiser. reason: why there is none."""

    name: str
    movement: Movement | None = None
    accuracy: TaskAccuracy | None = None
    reason: str = ""


class Quantization(Record, frozen=True, kw_only=True):
    """A quantised network compared with its original. file: its path; empty if it was not written.
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
