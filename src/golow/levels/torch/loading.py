"""Batches from a data loader, whose samples are golow's batches in the host's memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from golow.levels.choices.batch_source import FromLoader
from golow.levels.torch.batches import Batch, Row, Write, marked_part
from golow.records.errors import Unsupported
from golow.worker.protocol import Marks
from golow.worker.serve import end_with_parent


class Order:
    """Which samples the loader takes: the batches in turn, without end. `issued` has the indices of
    the batches that it has begun and not yet given."""

    def __init__(self, batches: int, rows: int) -> None:
        self.next, self.issued = 0, deque[int]()
        self._batches, self._rows = batches, rows

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            index = self.next
            self.issued.append(index)
            self.next = (index + 1) % self._batches
            yield list(range(index * self._rows, (index + 1) * self._rows))


class Loaded:
    """A `torch.utils.data.DataLoader` over the samples of all batches, in the host's memory.

    Its stream of batches has no end, so its workers start once: what it costs to start them again
    for each epoch (``persistent_workers``) is not part of an iteration.
    """

    def __init__(self, batches: Sequence[Batch], device: torch.device, kind: FromLoader) -> None:
        self._device, self._inputs = device, len(batches[0].inputs)
        sizes = {tuple(t.shape[:1]) for t in (*batches[0].inputs, *batches[0].targets)}
        if len(sizes) > 1:  # a draw of the model may have no row for each sample
            raise Unsupported("", "a data loader needs a row for each sample in every input")
        columns = zip(*((*batch.inputs, *batch.targets) for batch in batches), strict=True)
        self._samples = len(batches[0].inputs[0])
        self._order = Order(len(batches), self._samples)
        self._loader = DataLoader(
            TensorDataset(*(torch.cat(column) for column in columns)),
            batch_sampler=self._order,
            num_workers=kind.workers,
            prefetch_factor=kind.prefetch if kind.workers else None,
            pin_memory=kind.pinned,
            worker_init_fn=_end_with_parent,
        )
        self._stream = iter(self._loader)
        self._mark: tuple[Marks, Tensor] | None = None  # and the values

    def __str__(self) -> str:
        loader = self._loader
        ahead = f", {loader.prefetch_factor} batches ahead" if loader.num_workers else ""
        pinned = ", pinned" if loader.pin_memory else ""
        return f"a data loader, {loader.num_workers} workers{ahead}{pinned}"

    def take(self, index: int) -> Batch:
        """The loader's next batch, which is the one with that index unless batches are skipped."""
        self.seek(index)
        tensors = self._fetch()
        if self._mark is not None:
            marks, values = self._mark
            marked_part(tensors[marks.input], marks).copy_(values)
        pinned = self._loader.pin_memory
        arrived = tuple(tensor.to(self._device, non_blocking=pinned) for tensor in tensors)
        return Batch(arrived[: self._inputs], arrived[self._inputs :])

    def seek(self, index: int) -> None:
        """Throw away what the loader has prepared, unless that index is next."""
        order = self._order
        if (order.issued[0] if order.issued else order.next) == index:
            return
        order.next = index
        for _ in range(len(order.issued)):
            self._fetch()

    @contextmanager
    def marked(self, marks: Marks) -> Iterator[Write]:
        """The mark is written into the batch that the loader gives, before it is sent: a loader
        prepares batches before their marks are known. This takes a part of the iteration's time,
        a few microseconds."""

        row = Row.of(marks, self._samples)

        def write(index: int, start: int) -> None:
            self._mark = marks, row.window(start)

        try:
            yield write
        finally:
            self._mark = None

    def _fetch(self) -> list[Tensor]:
        tensors: list[Tensor] = next(self._stream)
        self._order.issued.popleft()
        return tensors


def _end_with_parent(worker: int) -> None:
    end_with_parent()
