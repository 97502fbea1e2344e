"""State of a GPU over seconds and minutes, sampled in the background while a worker runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from statistics import mean, median
from typing import Self

from golow.measure.gpu.nvml import Card, Reading
from golow.records.comparison import Quantity

RATE = 10.0
"""Samples per second. The driver's own value changes less often, and each sample costs the host a
fraction of a millisecond."""


LEAST_SECONDS = 1.0
"""Shorter blocks are not measured: the driver's share covers some time before, and its energy
counter moves about ten times a second."""


class Sampling:
    """A block during which a GPU is sampled; without a GPU nothing happens."""

    def __init__(self, card: Card | None) -> None:
        self._card = card
        self._readings: list[Reading] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, args=(card,), daemon=True)
        self._joules: float | None = None
        self._seconds = 0.0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if self._card is not None:
            self._joules_before = self._card.energy_joules()
            self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._seconds = time.monotonic() - self._began
        if self._card is not None:
            self._done.set()
            self._thread.join()
            after = self._card.energy_joules()
            if after is not None and self._joules_before is not None:
                self._joules = after - self._joules_before

    def quantities(self) -> Iterator[Quantity]:
        """``utilization`` (mean share), ``clock`` (median MHz), ``energy`` (J, of the whole GPU)
        and ``power`` (mean W) of the block, as far as the GPU reports them."""
        if self._seconds < LEAST_SECONDS:
            return
        if self._readings:
            share = mean(reading.utilization for reading in self._readings)
            yield Quantity(name="utilization", unit="", value=share)
            clock = median(reading.clock_mhz for reading in self._readings)
            yield Quantity(name="clock", unit="MHz", value=clock)
        if self._joules is not None:
            yield Quantity(name="energy", unit="J", value=self._joules)
            yield Quantity(name="power", unit="W", value=self._joules / self._seconds)

    def _look(self, card: Card) -> None:
        while not self._done.wait(1 / RATE):
            reading = card.reading()
            if reading is not None:
                self._readings.append(reading)
