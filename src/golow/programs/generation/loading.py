"""Workers that load at the same time, as many as the machine has room for."""

from __future__ import annotations

import os
import selectors
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import psutil

from golow.measure.gpu.nvml import Card
from golow.observer import Observer
from golow.records.text import TextWorkload
from golow.worker.text_client import TextWorker

CORES = 4  # that a worker keeps busy while it loads: imports take one, compilers several
ON_HOST, ON_CARD = 3 << 30, 1 << 30  # bytes of a worker besides weights: imports, and a GPU context
COPIES = 5  # of the weights that are on the GPU while a level builds; the reference's are wider


class Loading(NamedTuple):
    """A worker that was asked to load. finish: waits for its answer and takes it."""

    name: str
    worker: TextWorker
    finish: Callable[[], object]


Start = Callable[[], Loading | None]
"""Starts a worker, and asks it to load; None if it cannot."""


def load_together(starts: Iterable[Start], most: int, observer: Observer) -> None:
    """Start these workers in their order, and let at most so many load at one time. They start in
    this thread, because Linux ends a worker with the thread that started it."""
    waiting, loading = deque(starts), list[Loading]()
    while waiting or loading:
        if waiting and len(loading) < most:
            if (begun := waiting.popleft()()) is not None:
                loading.append(begun)
                observer.stage(f"{', '.join(one.name for one in loading)}: loading")
            continue
        done = _first_answered(loading)
        loading.remove(done)
        done.finish()


def _first_answered(loading: Sequence[Loading]) -> Loading:
    """The worker that answers first, or has had its time: finishing tells."""
    with selectors.DefaultSelector() as selector:
        for one in loading:
            selector.register(one.worker.lines, selectors.EVENT_READ, one)
        ready = selector.select(loading[0].worker.limits.load)
    first: Loading = ready[0][0].data if ready else loading[0]
    return first


def most_together(work: TextWorkload, weights: int, card: Card | None) -> int:
    """How many workers may load at one time. weights: bytes of their file. On a CPU it is one: a
    level uses all cores, and some choose their layouts by timing."""
    free = None if card is None else card.free_bytes()
    if work.device == "cpu" or free is None:
        return 1
    return room(
        weights,
        cores=len(os.sched_getaffinity(0)),
        host=psutil.virtual_memory().available,
        device=free,
    )


def room(weights: int, *, cores: int, host: int, device: int) -> int:
    """How many workers load side by side with so many cores, and so many bytes free on the
    host and on the GPU."""
    fit = (
        cores // CORES,
        host // (ON_HOST + weights),
        device // (ON_CARD + COPIES * weights),
    )
    return max(1, min(fit))
