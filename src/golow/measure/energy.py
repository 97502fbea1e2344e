"""Energy, power and utilization of a GPU over a window of a level's iterations.

The driver counts the GPU's energy and updates the counter about ten times a second, so a block of a
race is far too short for it. The window is one request of untimed iterations that lasts seconds,
with every other worker asleep.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from golow.measure.block import Worker
from golow.measure.gpu.nvml import Card
from golow.records.comparison import Quantity

WINDOW_SECONDS = 2.0
"""Length of the window in seconds: about twenty counter updates, an error of a few percent."""

BRIEF_SECONDS = 0.8
"""Window for one of many comparisons, with an error of about ten percent."""

_SHORT = 0.7  # of its length; a window that was shorter is repeated


def spent(worker: Worker, card: Card, iteration: float, window: float) -> Iterator[Quantity]:
    """``energy`` (J per iteration), ``power`` (mean W) and ``utilization`` (mean share of the time
    in which a kernel ran), as far as the GPU reports them.

    iteration: its approximate seconds. window: in seconds. The GPU's whole draw counts, idle draw
    included. Raises WorkerFailure as ``worker.time`` does.
    """
    if card.energy_joules() is None and card.utilization_since(time.time()) is None:
        return
    count = max(1, math.ceil(window / iteration))
    while True:
        joules, began = card.energy_joules(), time.time()
        worker.time(1, count)  # untimed iterations need no events, of which there could be 100,000
        seconds, after = time.time() - began, card.energy_joules()
        if seconds >= _SHORT * window:
            break
        count = math.ceil(count * window / max(seconds, 0.1 * window))
    if joules is not None and after is not None:
        yield Quantity(name="energy", unit="J", value=(after - joules) / (count + 1))
        yield Quantity(name="power", unit="W", value=(after - joules) / seconds)
    # A sample may be of up to a second before its time, when another worker ran.
    utilization = card.utilization_since(began + seconds / 2)
    if utilization is not None:
        yield Quantity(name="utilization", unit="", value=utilization)
