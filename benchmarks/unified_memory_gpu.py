"""The card's part of `unified_memory.py`: the ways from the host's memory to a kernel, through
NVIDIA's own Python bindings, and the driver's counters of unified memory, by CUPTI."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_uint8
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver

from golow.levels.direct.cudnn.bindings.device import Gpu
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.nvidia.memory import Pinned, Region, checked
from golow.records.errors import GolowError
from unified_memory_report import BASELINE, Traffic

SOURCE = Path(__file__).with_name("unified_memory.cu")
THREADS, BLOCKS_OF_PROCESSOR, VECTOR = 256, 8, 16

Words = np.ndarray  # of uint32
Timed = tuple[float, float, int]
ADVICE = driver.CUmem_advise


def read_kernel(size: int, passes: int, blocks: int) -> Kernel:
    """Read that many bytes so often; pointers: the data, the 32-bit sum."""
    count = np.uint64(size // VECTOR)
    return Kernel(SOURCE, "read", (blocks, 1, 1), (THREADS, 1, 1), (count, np.uint32(passes)))


class Card:
    """The first visible card. cache: folder for the compiled kernel. Raises `GolowError` where
    pages of managed memory cannot move while a kernel runs."""

    def __init__(self, cache: Path) -> None:
        self.gpu = Gpu(cache)
        attribute = driver.CUdevice_attribute
        if not self._attribute(attribute.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS):
            raise GolowError(
                f"{self.gpu.name} here has no managed memory that host and card use at once",
                "run it on Linux on the machine itself, not on a virtual card.",
            )
        processors = self._attribute(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        self.blocks = BLOCKS_OF_PROCESSOR * processors
        self.sum, self.answer = Region(4), Pinned(4)
        self.events = self.gpu.event(), self.gpu.event()

    def _attribute(self, wanted: Any) -> int:
        return int(checked(driver.cuDeviceGetAttribute(wanted, 0), "cuDeviceGetAttribute"))

    def driver_version(self) -> str:
        """The CUDA version of the driver, ``13.0``."""
        number = int(checked(driver.cuDriverGetVersion(), "cuDriverGetVersion"))
        return f"CUDA {number // 1000}.{number % 1000 // 10}"

    def free_bytes(self) -> int:
        """What the card has free."""
        return int(checked(driver.cuMemGetInfo(), "cuMemGetInfo")[0])

    def ways(self, size: int) -> dict[str, Way]:
        """Every way, by its name, with memory of that size of its own."""
        return {
            BASELINE: Copies(self, size, pinned=True),
            "copy, pageable": Copies(self, size, pinned=False),
            "managed": Managed(self, size),
            "prefetch": Managed(self, size, prefetch=True),
            "read mostly": Managed(self, size, read_mostly=True),
            "read mostly, prefetch": Managed(self, size, prefetch=True, read_mostly=True),
            "stays on host": Managed(self, size, stays=True),
        }


class Way:
    """One way: memory of the host, and how a kernel comes to its content."""

    def __init__(self, card: Card, size: int) -> None:
        self.card, self.size = card, size
        self.words: Words = np.empty(0, np.uint32)
        self.place = 0  # the address that the kernel reads

    def gather(self) -> None:
        """Let the host hold the data alone, before it writes."""

    def hand_over(self) -> None:
        """What follows the host's writing; this is not timed."""

    def prepare(self) -> None:
        """Enqueue what precedes the kernel; this is timed."""

    def run(self, passes: int) -> Timed:
        """Run the kernel on what the host has written; return the seconds from there to the result
        on the host, those of the kernel alone, and the result."""
        gpu, card = self.card.gpu, self.card
        kernel = read_kernel(self.size, passes, card.blocks)
        gpu.fill(card.sum.address, 4)
        gpu.synchronize()
        start = time.perf_counter_ns()
        self.prepare()
        gpu.record(card.events[0])
        gpu.launch(kernel, [self.place, card.sum.address])
        gpu.record(card.events[1])
        answer = driver.cuMemcpyDtoHAsync(card.answer.address, card.sum.address, 4, gpu.stream)
        checked(answer, "cuMemcpyDtoHAsync")
        gpu.synchronize()
        seconds = (time.perf_counter_ns() - start) * 1e-9
        result = int(card.answer.bytes.view(np.uint32)[0])
        return seconds, gpu.elapsed_ns(*card.events) * 1e-9, result


class Copies(Way):
    """Explicit copies from pinned or ordinary memory into memory of the card."""

    def __init__(self, card: Card, size: int, *, pinned: bool) -> None:
        super().__init__(card, size)
        self._pinned = Pinned(size) if pinned else None
        held = self._pinned.bytes if self._pinned else np.empty(size, np.uint8)
        self.words = held.view(np.uint32)
        self._region = Region(size)
        self.place = self._region.address

    def prepare(self) -> None:
        """Enqueue the copy, which the host stages itself if the memory is pageable."""
        source = self.words.ctypes.data
        answer = driver.cuMemcpyHtoDAsync(self.place, source, self.size, self.card.gpu.stream)
        checked(answer, "cuMemcpyHtoDAsync")


class Managed(Way):
    """Managed memory, with or without a prefetch before the kernel and one advice.

    https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__UNIFIED.html
    """

    def __init__(
        self,
        card: Card,
        size: int,
        *,
        prefetch: bool = False,
        read_mostly: bool = False,
        stays: bool = False,
    ) -> None:
        super().__init__(card, size)
        self._prefetch, self._read_mostly = prefetch, read_mostly
        attach = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
        self.place = int(checked(driver.cuMemAllocManaged(size, attach), "cuMemAllocManaged"))
        held = np.ctypeslib.as_array((c_uint8 * size).from_address(self.place))
        self.words = held.view(np.uint32)
        if stays:
            self._advise(ADVICE.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host())
            self._advise(ADVICE.CU_MEM_ADVISE_SET_ACCESSED_BY, device())

    def _advise(self, kind: Any, where: Any) -> None:
        checked(driver.cuMemAdvise(self.place, self.size, kind, where), "cuMemAdvise")

    def gather(self) -> None:
        """Move all pages to the host. Copies on both sides are first made one again: otherwise
        every page that the host writes costs a fault."""
        if self._read_mostly:
            self._advise(ADVICE.CU_MEM_ADVISE_UNSET_READ_MOSTLY, device())
        self._move(host())
        self.card.gpu.synchronize()

    def hand_over(self) -> None:
        """Give the advice that the host's writing would have undone."""
        if self._read_mostly:
            self._advise(ADVICE.CU_MEM_ADVISE_SET_READ_MOSTLY, device())

    def prepare(self) -> None:
        """Enqueue the prefetch, if there is one."""
        if self._prefetch:
            self._move(device())

    def _move(self, where: Any) -> None:
        answer = driver.cuMemPrefetchAsync(self.place, self.size, where, 0, self.card.gpu.stream)
        checked(answer, "cuMemPrefetchAsync")

    def __del__(self) -> None:
        if address := getattr(self, "place", 0):
            driver.cuMemFree(address)


def device() -> Any:
    """The first visible card as a place of memory."""
    return _location(driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE)


def host() -> Any:
    """The host as a place of memory."""
    return _location(driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST)


def _location(kind: Any) -> Any:
    location = driver.CUmemLocation()
    location.type, location.id = kind, 0
    return location


# ---------------------------------------------------------------- counters


class Counters:
    """The driver's counters of unified memory, one record for each event. They cost time, so that
    nothing is timed while they count. Raises `GolowError` where they cannot be read."""

    def __init__(self) -> None:
        try:
            from cupti import cupti
        except ImportError as error:
            raise GolowError("cupti-python is not installed", "pip install cupti-python") from error
        self._cupti, kinds = cupti, cupti.ActivityUnifiedMemoryCounterKind
        self._fields = {
            kinds.GPU_PAGE_FAULT: ("gpu_faults", lambda record: int(record.value)),
            kinds.CPU_PAGE_FAULT_COUNT: ("cpu_faults", lambda record: 1),
            kinds.BYTES_TRANSFER_HTOD: ("to_device", lambda record: int(record.value)),
            kinds.BYTES_TRANSFER_DTOH: ("to_host", lambda record: int(record.value)),
        }
        self._sums: dict[str, int] = {}
        try:
            cupti.activity_register_callbacks(lambda: (8 << 20, 0), self._take)
            self._configure()
        except Exception as error:  # cupti's errors have no common class
            raise GolowError(f"CUPTI refuses its counters of unified memory: {error}") from error

    def _configure(self) -> None:
        scope = self._cupti.ActivityUnifiedMemoryCounterScope.PROCESS_SINGLE_DEVICE
        wanted = self._cupti.ActivityUnifiedMemoryCounterConfig(len(self._fields))
        wanted.scope, wanted.device_id, wanted.enable = int(scope), 0, 1
        for position, kind in enumerate(self._fields):
            wanted[position].kind = int(kind)
        self._cupti.activity_configure_unified_memory_counter(wanted.ptr, len(self._fields))

    @contextmanager
    def counting(self) -> Iterator[Callable[[], Traffic]]:
        """Count what happens within; the function returns it afterwards."""
        kind = self._cupti.ActivityKind.UNIFIED_MEMORY_COUNTER
        self._sums = {name: 0 for name, _ in self._fields.values()}
        self._cupti.activity_enable(kind)
        try:
            yield lambda: Traffic(**self._sums)
        finally:
            self._cupti.activity_flush_all(1)
            self._cupti.activity_disable(kind)

    def _take(self, records: list[Any]) -> None:
        """CUPTI's callback with a full buffer."""
        for record in records:
            if record.kind != self._cupti.ActivityKind.UNIFIED_MEMORY_COUNTER:
                continue
            field = self._fields.get(record.counter_kind)
            if field is not None:
                name, amount = field
                self._sums[name] += amount(record)
