"""Races by the device's clock: workers with a queue of known cost, and a GPU's state in blocks."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import pytest

from golow.check.checked_level import CheckedLevel
from golow.check.reference import Standard
from golow.levels.ladder import ChosenLevel, Launch, Level, Probe
from golow.levels.starter import Starter
from golow.measure import two_clocks
from golow.measure.block import MOST_ATTEMPTS, Attempt, Retries, Setting, clean_block, enqueue
from golow.measure.energy import spent
from golow.measure.gpu.nvml import Card
from golow.measure.race import run_race
from golow.measure.rounds import Race
from golow.programs.comparison.entrant import Entrant
from golow.records.comparison import GpuState, Sample
from golow.records.errors import WorkerFailure
from golow.worker.client import Worker
from golow.worker.protocol import Challenge
from golow.workload.bundle import Bundle
from support.places import WORKERS
from support.workers.bundles import product_bundle

pytestmark = pytest.mark.usefixtures("forked")

QUEUED = str(WORKERS / "queued.py")
PLANT = ("-m", "golow.worker.plant", "--products", "1")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return product_bundle(tmp_path_factory.mktemp("queued") / "bundle")


@pytest.fixture
def card() -> Iterator[Card]:
    with Card() as card:
        yield card


def queued(host_us: int, device_us: int) -> tuple[str, ...]:
    return QUEUED, str(host_us), str(device_us)


def race_of(bundle: Bundle, card: Card, cold: bool = False, **levels: tuple[str, ...]) -> Race:
    """A short race of real workers, eager among them."""
    with ExitStack() as stack:
        workers = []
        for name, options in levels.items():
            command = (sys.executable, *options)
            workers.append(stack.enter_context(Worker(name, command, threads=1)))
            workers[-1].load(bundle.folder)
        return run_race(
            workers,
            baseline="eager",
            seed=0,
            time_limit=2.0,
            block_seconds=0.05,
            card=card,
            cold=cold,
        )


# ---------------------------------------------------------------- real workers


@pytest.mark.slow
def test_the_devices_time_is_the_time_and_the_hosts_is_to_enqueue(
    bundle: Bundle, card: Card
) -> None:
    """The hosts alone would say that the second is the slower one."""
    levels = {"eager": queued(50, 4000), "level": queued(200, 2000)}
    race = race_of(bundle, card, **levels)
    assert not race.failures
    times, ratio, difference = race.time("level"), race.ratio("level"), race.difference("level")
    assert times is not None and ratio is not None and difference is not None
    print(times, ratio)
    assert times.value == pytest.approx(2e-3)  # what was planted, by the device's own clock
    assert ratio.value == pytest.approx(0.5)
    assert difference.value == pytest.approx(-2e-3)
    assert len(race.blocks["level"][0].device_ns) == 25  # 0.05 s of the device's time


@pytest.mark.slow
def test_a_device_that_waits_for_its_host_is_timed_with_the_gaps(
    bundle: Bundle, card: Card
) -> None:
    race = race_of(bundle, card, eager=queued(1000, 100))
    times = race.time("eager")
    assert times is not None
    assert times.value >= 1e-3  # of which the device worked for a tenth


@pytest.mark.slow
def test_a_full_launch_queue_is_not_the_hosts_time(bundle: Bundle) -> None:
    """As CUDA's, this queue has room for some iterations; a block fills it."""
    with Worker("eager", (sys.executable, *queued(200, 4000)), threads=1) as worker:
        worker.load(bundle.folder)
        block, found = worker.time(12, 12), enqueue(worker)
    assert median(block.host_ns) > 2e6
    assert 2e-4 <= found.value < 2e-3
    assert (found.name, found.unit) == ("enqueue", "s")


@pytest.mark.slow
def test_cold_is_handed_to_the_worker(bundle: Bundle, card: Card) -> None:
    warm, cold = (
        race_of(bundle, card, cold, eager=queued(50, 2000)).time("eager") for cold in (False, True)
    )
    assert warm is not None and cold is not None
    assert cold.value / warm.value == pytest.approx(1.5)


@pytest.mark.slow
def test_a_worker_without_device_times_cannot_race_on_a_gpu(bundle: Bundle, card: Card) -> None:
    """Its time beside the others' would be two clocks."""
    race = race_of(bundle, card, eager=queued(50, 2000), level=PLANT)
    assert race.failures.keys() == {"level"}
    assert "the answer has no device_ns" in race.failures["level"].message
    assert race.time("eager") is not None


def test_without_a_card_the_hosts_time_is_no_enqueueing(bundle: Bundle) -> None:
    command = (sys.executable, *PLANT)
    with Worker("eager", command, threads=1) as worker:
        worker.load(bundle.folder)
        race = run_race([worker], baseline="eager", seed=0, time_limit=0.0, block_seconds=0.01)
    assert race.time("eager") is not None
    assert race.blocks["eager"][0].gpu is None


@pytest.mark.slow
def test_an_entrant_on_a_device(bundle: Bundle, tmp_path: Path, card: Card) -> None:
    """From its start to its figures; what no driver tells here is missing, not wrong."""
    command = (sys.executable, *queued(50, 3000))
    choice = ChosenLevel(
        Level("eager", "", "", lambda: Probe(True), lambda *_: Launch(command)), ""
    )
    with CheckedLevel(choice, bundle, tmp_path, Starter(), card=card) as level:
        entrant = Entrant(level)
        standard = Standard(bundle, tmp_path, Starter())
        worker = level.start(standard, False, "1 of 1")
        assert worker is not None, level.check.reason
        race = run_race(
            [worker],
            baseline="eager",
            seed=0,
            time_limit=0.5,
            block_seconds=0.05,
            card=card,
        )
        entrant.keep(race, ["eager"])
        entrant.finish(race)
        assert level.check.verdict == "match", level.check.reason
        assert (level.device_bytes() > 0) == (card.used_bytes() is not None)
    assert level.device_bytes() == 0
    assert entrant.device[0].name == "enqueue"
    memory = {quantity.name for quantity in entrant.memory}
    assert {"resident", "allocated_peak"} <= memory
    if card.used_bytes() is None:
        assert {quantity.name for quantity in entrant.device} == {"enqueue"}
        assert memory == {"resident", "resident_peak", "allocated_peak"}
    life = {quantity.name: quantity.value for quantity in entrant.life()}
    assert life["first_iteration"] >= 3e-3  # the device's time, not what the host took


# ---------------------------------------------------------------- blocks


def state(*reasons: str) -> GpuState:
    return GpuState(
        clock_mhz=1980,
        memory_clock_mhz=3201,
        temperature_c=50,
        power_w=300.0,
        utilization_percent=100,
        reasons=reasons,
    )


def attempt(host: int = 10, device: int = 100, wait: float | None = 0.0, *reasons: str) -> Attempt:
    sample = Sample(host_ns=(host,) * 3, device_ns=(device,) * 3, wait_share=wait)
    return Attempt(sample, state(*reasons))


@pytest.mark.parametrize(
    ("tried", "contended"),
    [
        (attempt(10, 100, 0.5), False),  # the host waited, and was far ahead all the same
        (attempt(90, 100, 0.5), True),
        (attempt(300, 100, 0.5), True),
        (attempt(90, 100, 0.001), False),
        (attempt(90, 100, None), False),
        (Attempt(Sample(host_ns=(10,), wait_share=0.5)), True),
        # It waits for room in the launch queue, but for its first iteration.
        (Attempt(Sample(host_ns=(10, 99, 99), device_ns=(100,) * 3, wait_share=0.5)), False),
    ],
)
def test_waiting_for_a_core_counts_where_the_device_waits_for_the_host(
    tried: Attempt, contended: bool
) -> None:
    assert tried.contended == contended


def test_the_least_disturbed_attempt_is_kept() -> None:
    calm, slowed = attempt(), attempt(10, 100, 0.0, "SwPowerCap")
    contended = attempt(90, 100, 0.5)
    attempts = [contended, slowed, calm]
    assert sorted(attempts, key=lambda tried: tried.disturbance) == [calm, slowed, contended]


class Hot(Card):
    """A card that says what it is told to: how its words are taken, not what a GPU does."""

    def __init__(self, *answers: tuple[str, ...]) -> None:
        super().__init__()
        self.answers = list(answers)

    def state(self, since: object = None) -> GpuState:  # type: ignore[override]
        return state(*(self.answers.pop(0) if self.answers else ()))


class Instant:
    """A worker of no time at all, for blocks whose time is not looked at."""

    name = "eager"

    def time(
        self,
        iterations: int,
        warmup: int,
        cold: bool = False,
        challenge: Challenge | None = None,
        within: float | None = None,
    ) -> Sample:
        return Sample(host_ns=(10,) * iterations, device_ns=(100,) * iterations, wait_share=0.0)


@pytest.mark.parametrize(
    ("answers", "attempts", "throttled"),
    [
        ([()], 1, False),
        ([("GpuIdle", "ApplicationsClocksSetting")], 1, False),
        ([("HwThermalSlowdown",), ()], 2, False),
        ([("SwPowerCap",)] * 9, MOST_ATTEMPTS, True),
    ],
)
def test_a_slowed_block_is_timed_again_and_marked(
    answers: list[tuple[str, ...]], attempts: int, throttled: bool
) -> None:
    now = time.monotonic()
    retries = Retries(time.monotonic, now - 100, now + 100)
    block, _ = clean_block(Instant(), 3, retries, Setting(Hot(*answers)), 0, 0)
    assert (block.attempts, block.throttled, block.contended) == (attempts, throttled, False)
    assert block.gpu is not None
    assert set(block.gpu.reasons) == set(answers[attempts - 1] if throttled or attempts < 2 else ())


def test_no_retry_behind_the_limit() -> None:
    now = time.monotonic()
    retries = Retries(time.monotonic, now - 100, now)
    block, _ = clean_block(Instant(), 3, retries, Setting(Hot(("SwPowerCap",))), 0, 0)
    assert (block.attempts, block.throttled) == (1, True)


def test_slowed_rounds_are_used_only_where_there_are_too_few_others() -> None:
    """Every block of the GPU is slowed, then none."""
    for answers, used, share in (([("SwPowerCap",)] * 10_000, "all", 1.0), ([], "clean", 0.0)):
        race = run_race([Instant()], baseline="eager", seed=0, time_limit=0.2, card=Hot(*answers))
        assert race.rounds_used("eager") == used
        assert race.throttled_share("eager") == share
        assert race.contended_share("eager") == 0


@pytest.mark.slow
@pytest.mark.parametrize(("told", "refuted"), [(1.0, False), (0.5, True)])
def test_short_iterations_are_held_against_golows_own_clock(
    told: float, refuted: bool, bundle: Bundle
) -> None:
    """In a block without marks, which would take as long as they do."""
    command = (sys.executable, *queued(20, 300), str(told))
    with Worker("level", command, threads=1) as worker:
        worker.load(bundle.folder)
        said = two_clocks.refute_short(worker, told * 300e-6)
        assert bool(said) is refuted, said
        assert two_clocks.refute_short(worker, 2e-3) == "", "a race's blocks tell as much"


# ---------------------------------------------------------------- energy


class Counted(Card):
    """Counts 300 J a second, as a GPU does that draws 300 W: for the arithmetic alone."""

    def energy_joules(self) -> float:
        return 300 * time.time()

    def utilization_since(self, seconds: float) -> float:
        return 0.5


class Sleeper:
    """Its iterations take ten milliseconds, whatever was said of them."""

    name, asked = "eager", 0

    def time(
        self,
        iterations: int,
        warmup: int,
        cold: bool = False,
        challenge: Challenge | None = None,
        within: float | None = None,
    ) -> Sample:
        self.asked = iterations + warmup
        time.sleep(0.01 * self.asked)
        return Sample(host_ns=(1,) * iterations)


@pytest.mark.parametrize("iteration", [0.01, 0.1])
def test_energy_of_an_iteration(iteration: float) -> None:
    """Also where the iterations are shorter than the race found, and the window at first too."""
    worker = Sleeper()
    found = {quantity.name: quantity for quantity in spent(worker, Counted(), iteration, 0.2)}
    assert worker.asked * 0.01 >= 0.14, "the window was far too short"
    assert found["power"].value == pytest.approx(300, rel=0.1)
    assert found["energy"].value >= 2.9  # ten milliseconds of it, or what the machine made of them
    assert found["utilization"].value == 0.5
    assert [found[name].unit for name in ("energy", "power", "utilization")] == ["J", "W", ""]


def test_a_card_that_tells_nothing_costs_no_window() -> None:
    worker = Sleeper()
    assert list(spent(worker, Card(), 0.01, 0.2)) == []
    assert worker.asked == 0


def test_a_worker_that_fails_in_the_window() -> None:
    class Fails(Sleeper):
        def time(
            self,
            iterations: int,
            warmup: int,
            cold: bool = False,
            challenge: Challenge | None = None,
            within: float | None = None,
        ) -> Sample:
            raise WorkerFailure("died", "it was killed")

    with pytest.raises(WorkerFailure, match="killed"):
        list(spent(Fails(), Counted(), 0.01, 0.2))
