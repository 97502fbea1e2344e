"""Where an iteration gets its batch: from the memory where it is used, from the host's memory, or
from a data loader (`loading`).

A source takes part in the proof of what is timed: what is marked in a batch reaches the iteration
by the way that the batch itself goes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch
from torch import Tensor

from golow.levels.choices.batch_source import FromHost, FromLoader
from golow.levels.torch.batches import Batch, Row, Source, Write, marked_part
from golow.levels.torch.loading import Loaded
from golow.records.errors import Unsupported
from golow.worker.protocol import Marks

LARGEST_BYTE = 255


def source(
    kind: FromHost | FromLoader | None, batches: Sequence[Batch], device: torch.device
) -> Source:
    """The source of that kind; batches: on the device. Raises `Unsupported` for batches that cannot
    go that way."""
    if kind is None:
        return Resident(batches)
    host = [Batch(*(tuple(t.cpu() for t in tensors) for tensors in batch)) for batch in batches]
    if isinstance(kind, FromLoader):
        return Loaded(host, device, kind)
    return Sent(host, device, kind)


class Resident:
    """Batches that are stored where they are used."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches

    def __str__(self) -> str:
        return "where it is used"

    def take(self, index: int) -> Batch:
        """Return the batch without a copy."""
        return self._batches[index]

    def seek(self, index: int) -> None:
        """Every batch is ready."""

    @contextmanager
    def marked(self, marks: Marks) -> Iterator[Write]:
        """Write into the batches themselves."""
        parts = [marked_part(batch.inputs[marks.input], marks) for batch in self._batches]
        saved = [part.clone() for part in parts]
        row = Row.of(marks, len(parts[0])).like(parts[0])

        def write(index: int, start: int) -> None:
            parts[index].copy_(row.window(start))

        try:
            yield write
        finally:
            for part, values in zip(parts, saved, strict=True):
                part.copy_(values)


# ---------------------------------------------------------------- from the host's memory


class Parcel:
    """A tensor in the host's memory that is sent to the device and arrives there in its own dtype.

    sent: the dtype on the way, which holds every number of the tensor.
    """

    def __init__(
        self, tensor: Tensor, device: torch.device, kind: FromHost, sent: torch.dtype
    ) -> None:
        self.dtype, self._device, self._waits = tensor.dtype, device, kind.waits
        packed = tensor.to(sent, copy=True)
        self.packed = packed.pin_memory() if kind.pinned else packed
        on_gpu = device.type == "cuda"
        self._copied = torch.cuda.Event() if on_gpu and not kind.waits else None  # type: ignore[no-untyped-call]

    def __str__(self) -> str:
        memory = "pinned" if self.packed.is_pinned() else "pageable"
        dtype = str(self.packed.dtype).removeprefix("torch.")
        changed = "" if self.packed.dtype == self.dtype else f", as {dtype}"
        return f"{memory}{changed}, the host {'waits' if self._waits else 'does not wait'}"

    def arrive(self) -> Tensor:
        """Send it; returns the tensor on the device."""
        return self._send().to(self.dtype)

    def _send(self) -> Tensor:
        arrived = self.packed.to(self._device, non_blocking=not self._waits)
        if self._copied is not None:
            self._copied.record()
        return arrived

    @contextmanager
    def marked(self, marks: Marks, row: Row) -> Iterator[Callable[[int], None]]:
        """A function that writes a window of the row where the next copy reads it."""
        part = marked_part(self.packed, marks)
        saved, row = part.clone(), row.like(part)

        def write(start: int) -> None:
            self._wait()
            part.copy_(row.window(start))

        try:
            yield write
        finally:
            self._wait()
            part.copy_(saved)

    def _wait(self) -> None:
        """Until the device has read what was sent last: it may not read the next marks instead."""
        if self._copied is not None:
            self._copied.synchronize()


class PackedPicture(Parcel):
    """An image that travels as uint8.

    Its numbers are not 8-bit ones. What a byte cannot report stays on the device, and the two are
    added there: with steps of a power of two the sum is exact. It is one pass over the image, as
    the scaling of pixels is in a user's program, which also reads its bytes and writes float32.
    """

    def __init__(self, tensor: Tensor, device: torch.device, kind: FromHost) -> None:
        largest = float(tensor.abs().max()) if tensor.numel() else 0.0
        self._step = 2.0 ** math.ceil(math.log2(largest / LARGEST_BYTE)) if largest else 1.0
        levels = (tensor / self._step).round().clamp(0, LARGEST_BYTE)
        super().__init__(levels, device, kind, torch.uint8)
        self._rest = (tensor - levels * self._step).to(device)

    def arrive(self) -> Tensor:
        """Send the bytes, and add them to what is there."""
        return torch.add(self._rest, self._send(), alpha=self._step)

    @contextmanager
    def marked(self, marks: Marks, row: Row) -> Iterator[Callable[[int], None]]:
        """The mark is in both parts: neither alone has it."""
        part = marked_part(self._rest, marks)
        levels = (row.values / self._step).round().clamp(0, LARGEST_BYTE)
        exact = row.values.to(part.dtype).to(levels.dtype)
        saved, rest = part.clone(), row._replace(values=exact - levels * self._step).like(part)
        with super().marked(marks, row._replace(values=levels)) as write_bytes:

            def write(start: int) -> None:
                write_bytes(start)
                part.copy_(rest.window(start))

            try:
                yield write
            finally:
                part.copy_(saved)


class Sent:
    """Batches in the host's memory, which each iteration sends to the device."""

    def __init__(self, batches: Sequence[Batch], device: torch.device, kind: FromHost) -> None:
        self._inputs = [[_input(t, device, kind) for t in batch.inputs] for batch in batches]
        pictures = [p for p in self._inputs[0] if p.packed.dtype != p.dtype]
        if kind.images != "float32" and not pictures:
            raise Unsupported("", f"no input is an image that could be sent as {kind.images}")
        self._shown = (pictures or self._inputs[0])[0]
        self._targets = [[_target(t, device, kind) for t in batch.targets] for batch in batches]

    def __str__(self) -> str:
        return f"the host's memory, {self._shown}"

    def take(self, index: int) -> Batch:
        """Send its tensors."""
        return Batch(
            tuple(parcel.arrive() for parcel in self._inputs[index]),
            tuple(parcel.arrive() for parcel in self._targets[index]),
        )

    def seek(self, index: int) -> None:
        """Every batch is ready."""

    @contextmanager
    def marked(self, marks: Marks) -> Iterator[Write]:
        """Write into the host's memory, once the device has read what was there."""
        parcels = [inputs[marks.input] for inputs in self._inputs]
        row = Row.of(marks, len(parcels[0].packed))
        with _all([parcel.marked(marks, row) for parcel in parcels]) as writes:
            yield lambda index, start: writes[index](start)


def _input(tensor: Tensor, device: torch.device, kind: FromHost) -> Parcel:
    if kind.images == "float32" or not tensor.is_floating_point() or tensor.dim() != 4:
        return Parcel(tensor, device, kind, tensor.dtype)
    if kind.images == "float64":
        return Parcel(tensor, device, kind, torch.float64)
    return PackedPicture(tensor, device, kind)


def _target(tensor: Tensor, device: torch.device, kind: FromHost) -> Parcel:
    """Classes travel with small images in a small type."""
    sent = tensor.dtype
    if kind.images == "uint8" and sent == torch.int64 and tensor.numel():
        least, most = int(tensor.min()), int(tensor.max())
        for small in (torch.uint8, torch.int32):
            if torch.iinfo(small).min <= least and most <= torch.iinfo(small).max:
                sent = small
                break
    return Parcel(tensor, device, kind, sent)


@contextmanager
def _all(
    contexts: Sequence[AbstractContextManager[Callable[[int], None]]],
) -> Iterator[list[Callable[[int], None]]]:
    with ExitStack() as stack:
        yield [stack.enter_context(context) for context in contexts]
