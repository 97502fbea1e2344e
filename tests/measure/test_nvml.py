"""NVML's answers in words and numbers, and that a machine without it costs and raises nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from golow.levels.choices import cuda_driver
from golow.measure.gpu import nvml
from golow.measure.gpu.nvml import (
    Card,
    Mark,
    counters_of,
    first_visible,
    held_since,
    is_slowed,
    reasons_of,
)
from golow.records.comparison import GpuState

UUIDS = ("GPU-376d2cc3-aaaa", "GPU-376e0000-bbbb", "GPU-9f000000-cccc")

WITHOUT = """
import sys
from golow.measure.gpu import nvml
from golow.measure.environment import environment
assert "pynvml" not in sys.modules, "importing golow's part loaded the package"
sys.modules["pynvml"] = None  # as where it is not installed
with nvml.Card() as card:
    before = card.mark()
    assert before.counters == {}
    assert card.state(before) is card.state() is None
    assert card.energy_joules() is card.utilization_since(0.0) is None
    assert card.used_bytes() is card.free_bytes() is card.process_bytes(1) is None
    assert card.other_processes() == 0
assert nvml.cuda_version() == ""
assert not nvml.is_slowed(None)
environment()
assert not {"torch", "scipy"} & sys.modules.keys()
"""


def test_without_the_package_nothing_is_loaded_and_nothing_told() -> None:
    subprocess.run(
        [sys.executable, "-c", WITHOUT], check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )


def test_a_card_that_was_not_entered_tells_nothing() -> None:
    card = Card()
    assert (card.state(), card.used_bytes(), card.other_processes()) == (None, None, 0)


# ---------------------------------------------------------------- numbers into words


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0, ()),
        (0x1, ("GpuIdle",)),
        (0x4 | 0x20, ("SwPowerCap", "SwThermalSlowdown")),
        (0x8 | 0x40 | 0x80, ("HwSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown")),
        (0x2 | 0x10 | 0x100, ("ApplicationsClocksSetting", "SyncBoost", "DisplayClockSetting")),
        (1 << 40, ()),  # one that a later driver has
    ],
)
def test_reasons(bits: int, names: tuple[str, ...]) -> None:
    assert reasons_of(pytest.importorskip("pynvml"), bits) == names


def test_the_counters_are_those_of_the_package() -> None:
    pynvml = pytest.importorskip("pynvml")
    assert tuple(counters_of(pynvml).values()) == tuple(nvml.COUNTERS.values())
    assert counters_of(pynvml)[pynvml.NVML_FI_DEV_PERF_POLICY_POWER] == "SwPowerCap"
    assert counters_of(SimpleNamespace(NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP=7)) == {
        7: "SwPowerCap"
    }  # an old package
    assert counters_of(None) == {}


@pytest.mark.parametrize(
    ("reasons", "slowed"),
    [
        ((), False),
        (("GpuIdle",), False),
        (("ApplicationsClocksSetting", "SyncBoost", "DisplayClockSetting"), False),
        (("GpuIdle", "SwPowerCap"), True),
        *(((reason,), True) for reason in nvml.SLOWING),
    ],
)
def test_only_heat_and_power_slow_down(reasons: tuple[str, ...], slowed: bool) -> None:
    state = GpuState(
        clock_mhz=1,
        memory_clock_mhz=1,
        temperature_c=1,
        power_w=1.0,
        utilization_percent=1,
        reasons=reasons,
    )
    assert is_slowed(state) == slowed
    assert set(nvml.SLOWING) <= set(nvml.REASONS)
    assert set(nvml.COUNTERS.values()) <= set(nvml.SLOWING)


def test_a_reason_counts_that_held_long_enough() -> None:
    before = Mark({"SwPowerCap": 5_000_000, "HwThermalSlowdown": 7}, at=1_000_000_000)
    after = Mark({"SwPowerCap": 9_000_000, "HwThermalSlowdown": 8}, at=1_200_000_000)
    assert held_since(before, after) == ("SwPowerCap",)
    assert held_since(before, Mark(after.counters, at=1_800_000_000)) == ()
    assert held_since(Mark({}, 0), after) == ()  # a counter without a beginning says nothing
    assert held_since(before, Mark({}, 2_000_000_000)) == ()


@pytest.mark.parametrize(
    ("visible", "place"),
    [
        (None, 0),
        ("0", 0),
        ("2,0", 2),
        (" 1 , 2", 1),
        ("3", None),
        ("", None),
        ("-1", None),
        ("GPU-9f", 2),
        ("GPU-376e0000-bbbb,0", 1),
        ("GPU-376", None),  # CUDA takes no beginning that two GPUs share
        ("GPU-77", None),
    ],
)
def test_the_first_visible_card(visible: str | None, place: int | None) -> None:
    assert first_visible(visible, UUIDS) == place
    assert first_visible(visible, ()) is None


def test_a_process_is_known_by_its_line() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert {child.pid, os.getpid(), os.getppid()} <= nvml._line_of(child.pid)
        child.communicate(b"\n")
    assert nvml._line_of(2**22 + 1) == {2**22 + 1}  # no such process


# ---------------------------------------------------------------- units and missing answers


class Refused(Exception):
    """What NVML raises where a GPU does not tell."""


def field(number: int, value: int, status: int = 0) -> SimpleNamespace:
    return SimpleNamespace(fieldId=number, nvmlReturn=status, value=SimpleNamespace(ullVal=value))


def program(process: int, size: int | None) -> SimpleNamespace:
    return SimpleNamespace(pid=process, usedGpuMemory=size)


ANSWERS: dict[str, Any] = {
    "GetClockInfo": lambda kind: {"sm": 1980, "memory": 3201}[kind],
    "GetTemperature": lambda kind: 61,
    "GetPowerUsage": lambda: 431_500,
    "GetUtilizationRates": lambda: SimpleNamespace(gpu=97, memory=40),
    "GetCurrentClocksEventReasons": lambda: 0x1,
    "GetFieldValues": lambda numbers: [field(n, 10 * n, n == 270) for n in numbers],
    "GetTotalEnergyConsumption": lambda: 12_345,
    "GetMemoryInfo": lambda: SimpleNamespace(used=3 * 2**30, free=5 * 2**30),
    "GetSamples": lambda kind, since: (
        1,
        [SimpleNamespace(sampleValue=SimpleNamespace(uiVal=share)) for share in (50, 100)],
    ),
    "GetComputeRunningProcesses": lambda: [program(os.getpid(), 2**20), program(2**22 + 1, 7)],
}


FIELDS = "NVML_FI_DEV_CLOCKS_EVENT_REASON_"
CONSTANTS = {
    "NVML_CLOCK_SM": "sm",
    "NVML_CLOCK_MEM": "memory",
    "NVML_TEMPERATURE_GPU": 0,
    "NVML_GPU_UTILIZATION_SAMPLES": 1,
    "nvmlClocksEventReasonGpuIdle": 0x1,
    f"{FIELDS}SW_POWER_CAP": 74,
    f"{FIELDS}SW_THERM_SLOWDOWN": 269,
    f"{FIELDS}HW_THERM_SLOWDOWN": 270,
    f"{FIELDS}HW_POWER_BRAKE_SLOWDOWN": 271,
}


def told(**changes: Any) -> Card:
    """A card whose NVML gives these raw answers; one that is None is refused."""

    def answer(name: str) -> Any:
        def ask(handle: object, *arguments: object) -> Any:
            given = (ANSWERS | changes)[name]
            if given is None:
                raise Refused
            return given(*arguments)

        return ask

    card = Card()
    functions = {f"nvmlDevice{name}": answer(name) for name in ANSWERS}
    card._nvml = SimpleNamespace(NVMLError=Refused, **functions, **CONSTANTS)
    card._handle = object()
    return card


def test_raw_answers_become_figures_in_their_units() -> None:
    card = told()
    state = card.state()
    assert state is not None
    assert (state.clock_mhz, state.memory_clock_mhz, state.temperature_c) == (1980, 3201, 61)
    assert (state.power_w, state.utilization_percent) == (431.5, 97)
    assert (state.reasons, state.other_processes) == (("GpuIdle",), 1)
    assert card.mark().counters == {
        "SwPowerCap": 740,
        "SwThermalSlowdown": 2690,
        "HwPowerBrakeSlowdown": 2710,
    }
    assert (card.energy_joules(), card.utilization_since(0.0)) == (12.345, 0.75)
    assert (card.used_bytes(), card.free_bytes()) == (3 * 2**30, 5 * 2**30)
    assert (card.process_bytes(os.getpid()), card.process_bytes(2**22 + 9)) == (2**20, None)


def test_a_reason_that_held_in_the_block_is_named_after_it() -> None:
    card, before = told(), Mark({"SwPowerCap": -(10**15), "SwThermalSlowdown": 2690}, at=0)
    state = card.state(before)
    assert state is not None
    assert state.reasons == ("GpuIdle", "SwPowerCap")
    assert is_slowed(state)


@pytest.mark.parametrize("missing", ["GetClockInfo", "GetTemperature", "GetPowerUsage"])
def test_a_state_is_whole_or_not_there(missing: str) -> None:
    assert told(**{missing: None}).state() is None


def test_what_a_card_refuses_is_missing_alone() -> None:
    card = told(GetFieldValues=None, GetCurrentClocksEventReasons=None, GetSamples=None)
    state = card.state(card.mark())
    assert state is not None
    assert state.reasons == ()
    assert card.utilization_since(0.0) == 0.97  # the driver's own figure for the last second
    assert told(GetSamples=None, GetUtilizationRates=None).utilization_since(0.0) is None
    assert told(GetTotalEnergyConsumption=None).energy_joules() is None
    assert told(GetMemoryInfo=None).used_bytes() is None
    assert told(GetComputeRunningProcesses=None).process_bytes(os.getpid()) is None


def test_a_list_of_another_namespace_is_not_believed() -> None:
    """It names none of ours, who are on the GPU all the same."""
    card = told(GetComputeRunningProcesses=lambda: [program(2**22 + 1, 7), program(2**22 + 2, 7)])
    assert card.other_processes() == 0
    unsized = told(GetComputeRunningProcesses=lambda: [program(os.getpid(), None)])
    assert unsized.process_bytes(os.getpid()) is None


def test_a_package_too_old_to_ask_tells_nothing() -> None:
    card = told()
    del card._nvml.nvmlDeviceGetSamples
    assert card.utilization_since(0.0) == 0.97


def test_the_package_has_what_is_asked() -> None:
    pynvml = pytest.importorskip("pynvml")
    for name in ANSWERS:
        assert callable(getattr(pynvml, f"nvmlDevice{name}"))
    assert set(CONSTANTS) <= set(vars(pynvml))
    # A worker asks the driver without the package, by numbers of its own.
    clocks = (cuda_driver.SM_CLOCK, cuda_driver.MEMORY_CLOCK)
    assert clocks == (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)
    for name in nvml.REASONS:
        assert getattr(pynvml, f"nvmlClocksEventReason{name}") > 0


# ---------------------------------------------------------------- a real card

HOLD = """
import torch, sys
held = torch.ones(256 * 2**20, dtype=torch.uint8, device="cuda")
product = torch.ones(4096, 4096, device="cuda")
torch.cuda.synchronize()
print("held", flush=True)
sys.stdin.readline()
for _ in range(2000):
    product @ product
torch.cuda.synchronize()
print("done", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def card() -> Iterator[Card]:
    pytest.importorskip("pynvml")
    with Card() as card:
        if card.used_bytes() is None:
            pytest.skip("there is no NVIDIA card")
        yield card


@pytest.mark.gpu
def test_a_cards_state(card: Card) -> None:
    before = card.mark()
    state = card.state(before)
    print(before, state, nvml.cuda_version())
    assert state is not None
    assert state.clock_mhz > 0 and state.memory_clock_mhz > 0
    assert 0 < state.temperature_c < 120
    assert 1 < state.power_w < 2000
    assert 0 <= state.utilization_percent <= 100
    assert set(state.reasons) <= set(nvml.REASONS)
    assert all(held >= 0 for held in before.counters.values())
    assert float(nvml.cuda_version()) >= 12


@pytest.mark.gpu
def test_a_cards_memory_energy_and_programs(card: Card) -> None:
    import time

    used, free = card.used_bytes(), card.free_bytes()
    assert used is not None and free is not None
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        now, left, listed = card.used_bytes(), card.free_bytes(), card.process_bytes(process.pid)
        print(f"added {(now or 0) - used}, listed {listed}, others {card.other_processes()}")
        assert now is not None and now - used > 256 * 2**20
        assert left is not None and left < free - 256 * 2**20
        assert listed is None or 256 * 2**20 < listed <= now
        joules, began = card.energy_joules(), time.time()
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        spent, busy = card.energy_joules(), card.utilization_since(began)
        print(f"{joules} to {spent} J in {time.time() - began:.2f} s, busy {busy}")
        assert joules is not None and spent is not None and spent > joules
        assert busy is not None and 0 < busy <= 1
        process.communicate(b"\n")
