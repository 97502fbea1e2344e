"""One level on its way through a comparison: built, loaded, checked, raced, closed. A training
starts it in the same way, for all of its runs.

Whatever goes wrong on that way becomes the entrant's verdict with a reason; nothing is raised but
Ctrl-C, so that one level's failure never costs another its figures.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Protocol, Self

import msgspec

from golow.check.standard import Outputs, Standard
from golow.files import write_whole
from golow.levels.ladder import Choice, Launch
from golow.levels.starter import Starter
from golow.measure import stats
from golow.measure.block import CONTENDED_SHARE, MOST_ATTEMPTS, enqueue
from golow.measure.energy import BRIEF_SECONDS, WINDOW_SECONDS, spent
from golow.measure.nvml import Card
from golow.measure.race import Race
from golow.record import Check, GolowError, LayerTime, Quantity, Record, Unsupported, WorkerFailure
from golow.worker.client import Worker
from golow.worker.process import reset_resident_peak
from golow.workload.bundle import Bundle

FIRST_ITERATIONS = 5

# Step by step, iterations enough for a median, in about a second where that is possible.
LAYER_SECONDS, LEAST_BY_LAYER, MOST_BY_LAYER = 1.0, 5, 50

COPIED_ITERATIONS = 3  # whose copies to the device are looked at: each copies the same bytes


class Observer(Protocol):
    """Hears how far a comparison is; the command line draws it."""

    def stage(self, text: str) -> None:
        """Something begins that may take seconds."""

    def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
        """A round of the race is done; widest is the widest relative interval so far."""


class Silent:
    """An observer that says nothing."""

    def stage(self, text: str) -> None:
        """Say nothing."""

    def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
        """Say nothing."""


class _Built(Record, frozen=True, kw_only=True):
    """The seconds of a build that happens in a loading worker, beside its cache."""

    seconds: float


class Entrant:
    """One level of one comparison, and all that is learnt of it.

    brief: as one of many, with what takes seconds cut short or left out. card: on which card its
    worker runs, None on a CPU. known: a verdict of an earlier check, which is then not made again.
    """

    def __init__(
        self,
        choice: Choice,
        bundle: Bundle,
        folder: Path,
        cache: Path,
        starter: Starter,
        *,
        by_layer: bool = False,
        brief: bool = False,
        card: Card | None = None,
        known: Check | None = None,
    ) -> None:
        self.choice, self.bundle, self.folder, self.cache = choice, bundle, folder, cache
        self.name = choice.name
        self.starter, self.by_layer, self.brief, self.card = starter, by_layer, brief, card
        self.check = known or Check(verdict="failed", reason="it was not reached")
        self.launch: Launch | None = None
        self.worker: Worker | None = None
        self.race: Race | None = None
        self.resident_with: tuple[str, ...] = ()
        self.memory: list[Quantity] = []
        self.device: list[Quantity] = []
        self.notes: list[str] = []
        self.layers: tuple[LayerTime, ...] = ()
        self.layers_missing = ""
        self.log = ""
        self._seconds: dict[str, float] = {}
        self._first: tuple[int, ...] = ()
        self._checked = known is not None
        self._refused = False
        self._used_before: int | None = None
        self._device_added = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def outputs(self, observer: Observer, place: str) -> Outputs:
        """What the level puts out, for the check; it is loaded when that is first wanted. To be
        asked for before anything runs on the card: what the check itself holds there is not the
        level's."""
        self._look()

        def written(batches: list[int], learning_rate: float, file: Path) -> None:
            self._ensure_loaded(observer, place)
            assert self.worker is not None  # noqa: S101
            self.worker.outputs(batches, learning_rate, file)

        return written

    def start(
        self, standard: Standard | None, allow_differs: bool, observer: Observer, place: str
    ) -> bool:
        """Build, load, check; says whether it may run. What was done before is not done again, nor
        tried again; without a check to make there need be no standard."""
        if self._refused:
            return False
        with self._recorded():
            self._ensure_loaded(observer, place)
            if not self._checked:
                assert standard is not None  # noqa: S101
                observer.stage(f"{self.name} ({place}): checking")
                self.check = self._judged(standard)
                self._checked = True
            if self.check.verdict == "match" or (allow_differs and self.check.verdict == "differs"):
                assert self.worker is not None  # noqa: S101
                reset_resident_peak(self.worker.pid)  # the check's own memory is not the level's
                self._note_device_memory()
                return True
        self.close()
        self._refused = True
        return False

    def finish(self, race: Race, group: list[str]) -> None:
        """Take the race's figures and what the worker holds now."""
        first = self.race is None  # the baseline is in every group; its first race counts
        if first:
            self.race = race
            self.resident_with = tuple(name for name in group if name != self.name)
        failure = race.failures.get(self.name)
        if failure is not None:
            self._failed(failure)
        elif first and race.stopped_because != "interrupted":
            if self.worker is not None and self.worker.last is None:
                self.notes.append("the numbers were no longer finite when the race ended")
            with self._recorded():
                self._take_memory()
                self._take_device()
                if self.by_layer:
                    self._take_layers()
                if not self.brief:
                    self._take_copies()

    def dismiss(self) -> None:
        """Ask the worker to end, if there is one, without waiting for it."""
        if self.worker is not None:
            self.worker.dismiss()

    def close(self) -> None:
        """End the worker, if there is one."""
        if self.worker is not None:
            self.worker.close()
            self.worker = self._used_before = None

    def resident_bytes(self) -> int:
        """Resident set of the worker now, 0 where there is none."""
        return self.worker.resident_bytes().get("resident", 0) if self.worker else 0

    def device_bytes(self) -> int:
        """Device memory of the worker now, 0 where there is none or nobody tells."""
        return self._device_memory()[1]

    def held_memory(self) -> Iterator[Quantity]:
        """Bytes that the worker holds, seen from outside: ``resident`` and ``resident_peak``; on a
        GPU ``device_used``, or ``device_added`` where the driver does not tell programs apart."""
        assert self.worker is not None  # noqa: S101
        for name, size in self.worker.resident_bytes().items():
            yield Quantity(name=name, unit="B", value=size)
        rule, used = self._device_memory()
        if used:
            yield Quantity(name=rule, unit="B", value=used)

    def life(self) -> Iterator[Quantity]:
        """The costs over the level's life, as far as they were had; seconds and bytes."""
        for name, seconds in self._seconds.items():
            yield Quantity(name=name, unit="s", value=seconds)
        if self.launch is not None and self.launch.artifact_bytes is not None:
            yield Quantity(name="artifact", unit="B", value=self.launch.artifact_bytes)
        steady = self.race.time(self.name) if self.race else None
        if self._first:
            yield Quantity(name="first_iteration", unit="s", value=self._first[0] / 1e9)
        if self._first and steady is not None:
            extra = sum(max(0.0, ns / 1e9 - steady.value) for ns in self._first)
            yield Quantity(name="warm_up", unit="s", value=extra)

    def payback(self, baseline: Entrant) -> float | None:
        """Iterations until the level has earned back what it takes longer to build and start."""
        if self.race is None or self is baseline or "ready" not in self._seconds:
            return None
        extra = self._seconds["ready"] - baseline._seconds.get("ready", 0.0)
        extra += self._seconds.get("capture", 0.0) + self._seconds.get("build", 0.0)
        return stats.payback(extra, self.race.ratio(self.name), self.race.difference(self.name))

    # ------------------------------------------------------------ how it is done

    def _look(self) -> None:
        """See how full the card is: for drivers that do not tell which process has what."""
        self._used_before = self.card.used_bytes() if self.card else None

    def _ensure_loaded(self, observer: Observer, place: str) -> None:
        """Build and load, unless that has been done; raises what goes wrong there."""
        if self.launch is None:
            self._build(observer, place)
        if self.worker is None:
            self._load(observer, place)

    def _build(self, observer: Observer, place: str) -> None:
        level, variant = self.choice
        probe = level.probe()
        if not probe.available:
            raise Unsupported(self.name, f"{probe.missing}; {probe.fix}")
        observer.stage(f"{self.name} ({place}): building")
        graph = self.bundle.graph if level.from_graph else None
        if graph is not None:
            self._seconds["capture"] = sum(done.seconds for done in graph.history)
        self.launch = launch = level.prepare(self.bundle, variant, self.cache)
        if launch.built_by_loading is not None:
            self.launch = launch = self._built_by_loading(launch, launch.built_by_loading)
        self._seconds["build"] = launch.build_seconds

    def _built_by_loading(self, launch: Launch, built: Path) -> Launch:
        """Load once for the build alone, so that what is measured afterwards is a warm start."""
        cached = built.exists()
        if not cached:
            turn = self.starter.turn
            alone = turn.alone() if launch.build_measures else nullcontext()
            with alone, self.starter.worker(self.name, launch, self.bundle) as builder:
                seconds = builder.build(self.bundle.folder).phases.get("build", 0.0)
            built.parent.mkdir(parents=True, exist_ok=True)
            write_whole(built, msgspec.json.encode(_Built(seconds=seconds)))
        seconds = msgspec.json.decode(built.read_bytes(), type=_Built).seconds
        size = sum(f.stat().st_size for f in built.parent.rglob("*") if f.is_file())
        return launch._replace(build_seconds=seconds, cached=cached, artifact_bytes=size)

    def _load(self, observer: Observer, place: str) -> None:
        assert self.launch is not None  # noqa: S101
        observer.stage(f"{self.name} ({place}): loading")
        if self._used_before is None:
            self._look()
        self.worker = worker = self.starter.worker(self.name, self.launch, self.bundle)
        report = worker.load(self.bundle.folder)
        ready = time.perf_counter() - worker.started
        building = 0.0 if self.launch.built_by_loading else report.phases.get("build", 0.0)
        self._seconds["build"] = self._seconds["build"] or building
        self._seconds["load"] = report.phases.get("load", 0.0)
        if not self.starter.turn.is_shared:  # else the machine is busy, and it was started ahead
            self._seconds["ready"] = ready - building
        self.notes = list(dict.fromkeys([*self.notes, *report.notes]))
        if self.launch.artifact_bytes is None:
            self.launch = self.launch._replace(artifact_bytes=report.artifact_bytes)
        first = (worker.time(1, 0) for _ in range(FIRST_ITERATIONS))
        # On a device the host's time ends when the iteration is enqueued.
        self._first = tuple((sample.device_ns or sample.host_ns)[0] for sample in first)

    def _judged(self, standard: Standard) -> Check:
        assert self.worker is not None  # noqa: S101
        check, notes = standard.judge(self.worker.outputs)
        self.notes += notes
        return check

    def _note_device_memory(self) -> None:
        """See by how much the card is fuller than before the worker started, as long as no other
        has started since: for drivers that do not tell which process has what."""
        if self.card is None or self.worker is None:
            return
        self.worker.time(1, 0)  # what it gave back after the check, an iteration takes again
        used = self.card.used_bytes()
        if used is not None and self._used_before is not None:
            self._device_added = max(0, used - self._used_before)

    def _device_memory(self) -> tuple[str, int]:
        """Bytes on the device, named by the rule that they were had by; 0 where nobody tells."""
        if self.card is None or self.worker is None:
            return "", 0
        listed = self.card.process_bytes(self.worker.pid)
        return ("device_used", listed) if listed else ("device_added", self._device_added)

    def _take_memory(self) -> None:
        assert self.worker is not None  # noqa: S101
        self.memory += self.held_memory()
        peak = self.worker.allocated_peak()
        if peak is not None:
            self.memory.append(Quantity(name="allocated_peak", unit="B", value=peak))

    def _take_device(self) -> None:
        """What a GPU spends on the level, and the host to keep it busy."""
        time = self.race.time(self.name) if self.race else None
        if self.card is None or self.worker is None or self.race is None or time is None:
            return
        self.device.append(enqueue(self.worker))
        window = BRIEF_SECONDS if self.brief else WINDOW_SECONDS
        self.device += spent(self.worker, self.card, time.value, window)

    def _take_copies(self) -> None:
        """What a plain loop copies to the device. Its failure costs nothing but itself."""
        if self.card is None or self.worker is None:
            return
        try:
            copies = self.worker.copies(COPIED_ITERATIONS)
        except WorkerFailure as error:
            self.notes.append(f"its copies to the device were not seen: {error.message}")
            return
        if copies is not None:
            self.device.append(Quantity(name="copied", unit="B", value=copies.bytes))
            seconds = copies.nanoseconds / 1e9
            self.device.append(Quantity(name="copy_time", unit="s", value=seconds))

    def _take_layers(self) -> None:
        """Nearly the last that is asked of the worker: what fails here costs nothing but itself."""
        assert self.worker is not None and self.race is not None  # noqa: S101
        time = self.race.time(self.name)
        fitting = round(LAYER_SECONDS / time.value) if time else 0
        iterations = min(max(fitting, LEAST_BY_LAYER), MOST_BY_LAYER)
        try:
            sample = self.worker.layers(iterations)
            for _ in range(MOST_ATTEMPTS - 1):
                if sample.wait_share > CONTENDED_SHARE:
                    again = self.worker.layers(iterations)
                    sample = min(sample, again, key=lambda taken: taken.wait_share)
            self.layers = sample.steps
            if sample.wait_share > CONTENDED_SHARE:
                self.notes.append(
                    f"it waited for a core {sample.wait_share:.0%} of the time in which its layers "
                    "were timed"
                )
        except Unsupported as error:
            self.layers_missing = error.reason
        except WorkerFailure as error:
            self.layers_missing, self.log = error.message, error.log
            self.close()

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Turn what goes wrong inside into this entrant's verdict."""
        try:
            yield
        except Unsupported as error:
            where = f" (node {error.node}, layer {error.module})" if error.node else ""
            self.check = Check(verdict="unavailable", reason=f"{error.reason}{where}")
        except GolowError as error:
            self.check = Check(verdict="failed", reason=f"{error.message} {error.hint}".strip())
        except WorkerFailure as error:
            self._failed(error)
        except Exception as error:  # a fault of the level's own code is its result too
            reason = f"{type(error).__name__}: {error}"
            self._failed(WorkerFailure("failed", reason, traceback.format_exc()))

    def _failed(self, failure: WorkerFailure) -> None:
        # A level that matched and then died keeps its figures, and is no level to rely on.
        self.check = msgspec.structs.replace(self.check, verdict="failed", reason=failure.message)
        self.log = failure.log
