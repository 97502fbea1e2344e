"""A level in a race, and the figures measured for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from golow.check.checked_level import CheckedLevel
from golow.measure import stats
from golow.measure.block import CONTENDED_SHARE, MOST_ATTEMPTS, enqueue
from golow.measure.energy import BRIEF_SECONDS, WINDOW_SECONDS, spent
from golow.measure.rounds import Race
from golow.measure.two_clocks import refute_idle, refute_short
from golow.records.comparison import LayerTime, Quantity
from golow.records.errors import Unsupported, WorkerFailure
from golow.worker.client import Worker

# Iterations timed step by step: enough for a median, in about a second if possible.
LAYER_SECONDS, LEAST_BY_LAYER, MOST_BY_LAYER = 1.0, 5, 50

REFUTED = ("differs", "clock")  # kinds of failures after which a worker lives

COPIED_ITERATIONS = 3  # for counting copies to the device; each iteration copies the same bytes


class Entrant:
    """One level of one comparison.

    by_layer: also time the level step by step after the race. brief: shorten or skip measurements
    that take seconds, for one of many comparisons.
    """

    def __init__(self, level: CheckedLevel, *, by_layer: bool = False, brief: bool = False) -> None:
        self.level = level
        self.race: Race | None = None
        self.resident_with: tuple[str, ...] = ()
        self.memory: list[Quantity] = []
        self.device: list[Quantity] = []
        self.layers: tuple[LayerTime, ...] = ()
        self.layers_missing = ""
        self._clock_refuted = ""
        self._by_layer, self._brief = by_layer, brief

    @property
    def name(self) -> str:
        """The level's name."""
        return self.level.name

    def keep(self, race: Race, group: Sequence[str]) -> None:
        """Take the race's figures. group: all levels of the race. The baseline is in every group;
        its first race counts."""
        if self.race is None:
            self.race = race
            self.resident_with = tuple(name for name in group if name != self.name)

    def finish(self, race: Race) -> None:
        """Take the worker's memory and what else is measured after its race."""
        worker, failure = self.level.worker, race.failures.get(self.name)
        if failure is not None:
            self.level.fail(failure)
            if failure.kind in REFUTED:
                self.level.close()
        elif self.race is race and worker is not None and race.stopped_because != "interrupted":
            masked = any(tensor.infinite for tensor in self.level.check.tensors)
            if worker.last is None and not masked:
                self.level.notes.append("its numbers were not finite at the end of the race")
            with self.level.recorded():
                self._take(worker)

    def device_refutes(self, baseline: Entrant) -> str:
        """Why the level's times are not those of its work: the GPU was idle during its iterations,
        or took longer for them. Empty if they may be."""
        if self.race is None or self.name not in self.race.racing:
            return ""
        idle = refute_idle(self._on_device("utilization"), baseline._on_device("utilization"))
        return idle or self._clock_refuted

    def refute(self, refuted: Mapping[str, str]) -> None:
        """Take the times of these levels, by name with the reasons, out of the race: no other
        level's ratio refers to them. Fail this one if it is among them."""
        if self.race is None:
            return
        fails = self.name in refuted and self.name in self.race.racing
        self.race = self.race.without(refuted, "clock")
        if fails:
            self.level.fail(self.race.failures[self.name])
            self.level.close()

    def life(self) -> Iterator[Quantity]:
        """The level's costs over its life cycle, as far as measured; seconds and bytes."""
        yield from self.level.life()
        steady, first = self._time(), self.level.first_iterations
        if first and steady is not None:
            extra = sum(max(0.0, ns / 1e9 - steady) for ns in first)
            yield Quantity(name="warm_up", unit="s", value=extra)

    def payback(self, baseline: Entrant) -> float | None:
        """Iterations until the level's faster iterations pay for its longer build and start."""
        seconds = self.level.seconds
        if self.race is None or self is baseline or "ready" not in seconds:
            return None
        extra = seconds["ready"] - baseline.level.seconds.get("ready", 0.0)
        extra += seconds.get("capture", 0.0) + seconds.get("build", 0.0)
        return stats.payback(extra, self.race.ratio(self.name), self.race.difference(self.name))

    # ------------------------------------------------------------ implementation

    def _time(self) -> float | None:
        """Seconds per iteration in the race."""
        time = self.race.time(self.name) if self.race else None
        return time.value if time else None

    def _on_device(self, name: str) -> float | None:
        """A figure of the GPU, if it was measured."""
        return next((item.value for item in self.device if item.name == name), None)

    def _take(self, worker: Worker) -> None:
        self._take_memory(worker)
        self._take_device(worker)
        # Last, because a failure here may end the worker.
        if self._by_layer:
            self._take_layers(worker)
        if not self._brief and self.level.worker is not None:
            self._take_copies(worker)

    def _take_memory(self, worker: Worker) -> None:
        self.memory += self.level.held_memory()
        peak = worker.allocated_peak()
        if peak is not None:
            self.memory.append(Quantity(name="allocated_peak", unit="B", value=peak))

    def _take_device(self, worker: Worker) -> None:
        """Measure the GPU's energy and utilization, and the host's time to enqueue an iteration."""
        time, card = self._time(), self.level.card
        if card is None or time is None:
            return
        self._clock_refuted = refute_short(worker, time)
        self.device.append(enqueue(worker))
        window = BRIEF_SECONDS if self._brief else WINDOW_SECONDS
        self.device += spent(worker, card, time, window)

    def _take_layers(self, worker: Worker) -> None:
        """Time the steps. A failure here loses only these figures and the copies."""
        time = self._time()
        fitting = round(LAYER_SECONDS / time) if time else 0
        iterations = min(max(fitting, LEAST_BY_LAYER), MOST_BY_LAYER)
        try:
            sample = worker.layers(iterations)
            for _ in range(MOST_ATTEMPTS - 1):
                if sample.wait_share > CONTENDED_SHARE:
                    again = worker.layers(iterations)
                    sample = min(sample, again, key=lambda taken: taken.wait_share)
            self.layers = sample.steps
            if sample.wait_share > CONTENDED_SHARE:
                self.level.notes.append(
                    f"it waited for a core {sample.wait_share:.0%} of the time while its layers "
                    "were timed"
                )
        except Unsupported as error:
            self.layers_missing = error.reason
        except WorkerFailure as error:
            self.layers_missing, self.level.log = error.message, error.log
            self.level.close()

    def _take_copies(self, worker: Worker) -> None:
        """Measure what a plain loop copies to the device. A failure loses only these figures."""
        if self.level.card is None:
            return
        try:
            copies = worker.copies(COPIED_ITERATIONS)
        except WorkerFailure as error:
            self.level.notes.append(f"its copies to the device were not measured: {error.message}")
            return
        if copies is not None:
            self.device.append(Quantity(name="copied", unit="B", value=copies.bytes))
            seconds = copies.nanoseconds / 1e9
            self.device.append(Quantity(name="copy_time", unit="s", value=seconds))
