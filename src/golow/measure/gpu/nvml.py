"""Reports of NVIDIA's driver on the GPU that the workers use, through NVML.

The package ``nvidia-ml-py`` is optional. Without it, without a driver, or if a GPU does not report
a value (virtual and partitioned GPUs often do not), the answer is None or empty, never an error.
Nothing is loaded before a `Card` is entered.

The clocks may be throttled for a moment in the middle of a block, which a reading after the block
would miss. So the driver's counters are read before and after it: the nanoseconds for which each
reason has applied.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Self

import psutil

from golow.records.comparison import GpuState

SLOWING = (
    "SwPowerCap",
    "HwSlowdown",
    "SwThermalSlowdown",
    "HwThermalSlowdown",
    "HwPowerBrakeSlowdown",
)
"""The reasons that mean throttled by heat or power. The others are settings, or an idle GPU."""

REASONS = (
    "GpuIdle",
    "ApplicationsClocksSetting",
    "SwPowerCap",
    "HwSlowdown",
    "SyncBoost",
    "SwThermalSlowdown",
    "HwThermalSlowdown",
    "HwPowerBrakeSlowdown",
    "DisplayClockSetting",
)
"""NVML's constants ``nvmlClocksEventReason...``, each a bit."""

COUNTERS = {
    "SW_POWER_CAP": "SwPowerCap",
    "SW_THERM_SLOWDOWN": "SwThermalSlowdown",
    "HW_THERM_SLOWDOWN": "HwThermalSlowdown",
    "HW_POWER_BRAKE_SLOWDOWN": "HwPowerBrakeSlowdown",
}
"""NVML's fields ``NVML_FI_DEV_CLOCKS_EVENT_REASON_...`` that count nanoseconds."""

SLOWED_SHARE = 0.01
"""A reason that applied for more than this share of a block has slowed it down. Contention has the
same limit (`block.CONTENDED_SHARE`): smaller distortions are lost in other noise."""


class Mark(NamedTuple):
    """A moment: the counters of the slowing reasons in nanoseconds, and a monotonic time in
    nanoseconds."""

    counters: Mapping[str, int]
    at: int


class Reading(NamedTuple):
    """How busy the GPU is: the share of the time in which a kernel ran, over about the last sixth
    of a second or more, and the clock of its cores."""

    utilization: float
    clock_mhz: int


class Card:
    """The GPU that the workers use: the first that ``CUDA_VISIBLE_DEVICES`` allows.

    with Card() as card:
        before = card.mark()
        ...  # a block
        state = card.state(before)

    If CUDA orders GPUs of several models itself (``CUDA_DEVICE_ORDER`` is not ``PCI_BUS_ID``), an
    index may mean different GPUs to CUDA and here; use its UUID.
    """

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handle: Any = None

    def __enter__(self) -> Self:
        self._nvml = start_nvml()
        if self._nvml is not None:
            self._handle = self._first_visible()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._nvml is not None:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
        self._nvml = self._handle = None

    # ------------------------------------------------------------ speed

    def mark(self) -> Mark:
        """The current counters, for a later `state`."""
        return Mark(self._counters(), time.monotonic_ns())

    def state(self, since: Mark | None = None) -> GpuState | None:
        """Clocks (MHz), temperature (Celsius), power (W), utilization (%) and other programs now.

        reasons are the current ones, and the slowing ones that applied for more than
        `SLOWED_SHARE` of the time since the mark. None unless the GPU reports all of these.
        """
        clock = self._ask("GetClockInfo", "NVML_CLOCK_SM")
        memory_clock = self._ask("GetClockInfo", "NVML_CLOCK_MEM")
        temperature = self._ask("GetTemperature", "NVML_TEMPERATURE_GPU")
        power, rates = self._ask("GetPowerUsage"), self._ask("GetUtilizationRates")
        if None in (clock, memory_clock, temperature, power) or rates is None:
            return None
        return GpuState(
            clock_mhz=clock,
            memory_clock_mhz=memory_clock,
            temperature_c=temperature,
            power_w=power / 1000,
            utilization_percent=rates.gpu,
            reasons=self._reasons(since),
            other_processes=self.other_processes(),
        )

    def reading(self) -> Reading | None:
        """The values that change fast, in a fraction of a millisecond; None if not reported."""
        clock = self._ask("GetClockInfo", "NVML_CLOCK_SM")
        rates = self._ask("GetUtilizationRates")
        return None if clock is None or rates is None else Reading(rates.gpu / 100, clock)

    def _reasons(self, since: Mark | None) -> tuple[str, ...]:
        now = reasons_of(self._nvml, self._ask("GetCurrentClocksEventReasons") or 0)
        held = held_since(since, self.mark()) if since is not None else ()
        return tuple(dict.fromkeys((*now, *held)))

    def _counters(self) -> dict[str, int]:
        """Nanoseconds for which each slowing reason has applied since the driver was loaded."""
        names = counters_of(self._nvml)
        fields = self._ask("GetFieldValues", list(names)) or ()
        return {names[f.fieldId]: f.value.ullVal for f in fields if f.nvmlReturn == 0}

    # ------------------------------------------------------------ energy

    def energy_joules(self) -> float | None:
        """Joules that the GPU has used since the driver was loaded."""
        millijoules = self._ask("GetTotalEnergyConsumption")
        return None if millijoules is None else float(millijoules) / 1000

    def utilization_since(self, seconds: float) -> float | None:
        """Share of the time since then (seconds of `time.time`) in which a kernel ran, 0 to 1.

        The mean of the driver's own samples, several per second; if it keeps none, its value for
        about the last second.
        """
        answer = self._ask("GetSamples", "NVML_GPU_UTILIZATION_SAMPLES", int(seconds * 1e6))
        shares = [sample.sampleValue.uiVal / 100 for sample in answer[1]] if answer else []
        if shares:
            return float(sum(shares) / len(shares))
        rates = self._ask("GetUtilizationRates")
        return None if rates is None else float(rates.gpu) / 100

    # ------------------------------------------------------------ memory and programs

    def used_bytes(self) -> int | None:
        """Bytes of device memory in use by all programs."""
        memory = self._ask("GetMemoryInfo")
        return None if memory is None else int(memory.used)

    def free_bytes(self) -> int | None:
        """Bytes of device memory that are free."""
        memory = self._ask("GetMemoryInfo")
        return None if memory is None else int(memory.free)

    def process_bytes(self, process: int) -> int | None:
        """Bytes of device memory of the process and its children.

        None if the driver's list does not contain them: in many containers and virtual machines it
        is empty, or has the process ids of another namespace.
        """
        sizes = [size for number, size in self._programs() if process in _line_of(number)]
        return sum(size or 0 for size in sizes) if any(sizes) else None

    def other_processes(self) -> int:
        """How many programs use the GPU other than this process and its descendants.

        0 if the list lacks our running processes: it then belongs to another namespace and cannot
        distinguish ours from others.
        """
        ours = [os.getpid() in _line_of(number) for number, _ in self._programs()]
        return ours.count(False) if any(ours) else 0

    def _programs(self) -> list[tuple[int, int | None]]:
        """Process id and bytes of the processes that compute on the GPU."""
        listed = self._ask("GetComputeRunningProcesses") or ()
        return [(program.pid, program.usedGpuMemory) for program in listed]

    # ------------------------------------------------------------ how it is asked

    def _ask(self, question: str, *arguments: Any) -> Any:
        """The answer of ``nvmlDevice`` + question for this GPU; None if it is not reported, or if
        the package is too old. An argument that is a text is the name of a constant of NVML."""
        ask = getattr(self._nvml, f"nvmlDevice{question}", None)
        if self._handle is None or ask is None:
            return None
        given = [getattr(self._nvml, a) if isinstance(a, str) else a for a in arguments]
        try:
            return ask(self._handle, *given)
        except self._nvml.NVMLError:
            return None

    def _first_visible(self) -> Any:
        nvml = self._nvml
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
            names = [str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            if visible is not None and visible.startswith("MIG-"):
                return nvml.nvmlDeviceGetHandleByUUID(visible.partition(",")[0])
            place = first_visible(visible, names)
            return None if place is None else handles[place]
        except nvml.NVMLError:
            return None


def is_slowed(state: GpuState | None) -> bool:
    """True if heat or power lowered the clocks; false if the GPU does not report it."""
    return state is not None and any(reason in SLOWING for reason in state.reasons)


def cuda_version() -> str:
    """The newest CUDA version that the driver supports, e.g. ``13.0``; empty without a driver."""
    nvml = start_nvml()
    if nvml is None:
        return ""
    try:
        number = nvml.nvmlSystemGetCudaDriverVersion_v2()
        return f"{number // 1000}.{number % 1000 // 10}"
    except nvml.NVMLError:
        return ""
    finally:
        nvml.nvmlShutdown()


def start_nvml() -> Any:
    """NVML, initialised; None if the package or the driver is missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


# ---------------------------------------------------------------- what the answers mean


def reasons_of(nvml: Any, bits: int) -> tuple[str, ...]:
    """The reasons of `REASONS` that are set. nvml: the package, which has the bits."""
    known = {name: getattr(nvml, f"nvmlClocksEventReason{name}", 0) for name in REASONS}
    return tuple(name for name, bit in known.items() if bits & bit)


def counters_of(nvml: Any) -> dict[int, str]:
    """The names of `COUNTERS`, by NVML's numbers; without those that the package does not know.
    nvml: the package, None where there is none."""
    fields = {name: f"NVML_FI_DEV_CLOCKS_EVENT_REASON_{field}" for field, name in COUNTERS.items()}
    return {getattr(nvml, f): name for name, f in fields.items() if hasattr(nvml, f)}


def held_since(before: Mark, after: Mark) -> tuple[str, ...]:
    """The reasons that applied for more than `SLOWED_SHARE` of the time between the marks."""
    least = SLOWED_SHARE * (after.at - before.at)
    return tuple(
        name
        for name, held in after.counters.items()
        if held - before.counters.get(name, held) > least
    )


def first_visible(visible: str | None, uuids: Iterable[str]) -> int | None:
    """The index of the first GPU in ``CUDA_VISIBLE_DEVICES``; None if it has none.

    GPUs appear by index or by the beginning of their UUID; without the variable all are visible.
    """
    names = list(uuids)
    first = "0" if visible is None else visible.partition(",")[0].strip()
    if first.isdecimal():
        return int(first) if int(first) < len(names) else None
    places = [place for place, name in enumerate(names) if first and name.startswith(first)]
    return places[0] if len(places) == 1 else None


def _line_of(process: int) -> set[int]:
    """The process and its ancestors, as far as they are visible."""
    try:
        return {process, *(parent.pid for parent in psutil.Process(process).parents())}
    except psutil.Error:
        return {process}
