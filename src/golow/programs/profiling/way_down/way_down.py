"""The way down: what stands between the call of a layer and the vendor's entry, at every level.

The layer is taken out of the network with the input that it gets there, and lowered alone: so each
level has it as a layer, also those that would fuse it with its neighbours. It is checked and raced
as by `golow compare`. Then each level that matches makes one call under callgrind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from golow.levels.ladder import ChosenLevel
from golow.levels.level import Launch
from golow.levels.level_selection import choices
from golow.levels.starter import Starter
from golow.observer import Observer
from golow.programs.comparison.compare import compare
from golow.programs.comparison.settings import ComparisonSettings
from golow.programs.profiling.in_turn import in_turn
from golow.programs.profiling.profile_record import Profile
from golow.programs.profiling.way_down import reading
from golow.programs.profiling.way_down.callgrind import read_parts
from golow.programs.profiling.way_down.layer import layer_request
from golow.programs.profiling.way_down.valgrind import (
    LIMITS,
    build_switch,
    require_valgrind,
    settled,
    under_callgrind,
)
from golow.programs.profiling.way_down.way_down_record import Frame, LevelWay, WayDown
from golow.records.comparison import Run
from golow.records.errors import GolowError, Unsupported, WorkerFailure
from golow.storage.cache import open_cache
from golow.storage.scratch import scratch_folder
from golow.worker.protocol import PythonFrame
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.graph_capture import write_graph
from golow.workload.prepare import prepare
from golow.workload.request import Request


@dataclass(frozen=True, kw_only=True)
class WaySettings:
    """layer: its path in the network. levels, workers, cache: as of a comparison. time_limit: of
    the race, in seconds."""

    layer: str
    levels: Sequence[str] | None = None
    workers: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    time_limit: float = 10.0
    cache: Path | None = None


def way_down(request: Request, settings: WaySettings, observer: Observer) -> Profile:
    """Count the way down of one layer at every level.

    Raises `GolowError` for errors that the caller can fix. An error in a level is recorded as its
    result. After Ctrl-C the profile has the levels so far, and is marked ``interrupted``; without
    any, KeyboardInterrupt is raised.
    """
    _require_sense(request)
    valgrind = require_valgrind()
    network = prepare(request)
    alone = layer_request(request, network, settings.layer)
    comparison = compare(
        alone,
        ComparisonSettings(
            levels=settings.levels,
            workers=settings.workers,
            time_limit=settings.time_limit,
            brief=True,
            cache=settings.cache,
        ),
        observer,
    )
    if comparison.race.stopped_because == "interrupted":
        raise KeyboardInterrupt
    chosen = choices(settings.levels, settings.workers, request.mode, request.device)
    with scratch_folder() as folder, Starter(LIMITS) as starter:
        bundle, layer = write_bundle(prepare(alone), folder / "bundle")
        write_graph(layer, bundle)
        # A separate cache: what is built here is for fewer instructions than the processor has.
        cache = open_cache(open_cache(settings.cache) / "way-down")
        counter = _Counter(valgrind, build_switch(folder), bundle, cache, folder, starter)
        ways: list[LevelWay] = []
        checked = zip(chosen, comparison.runs, strict=True)
        doing = "counting instructions, which takes minutes"
        whole = in_turn(checked, ways, counter.way, doing, observer)
    found = WayDown(
        layer=settings.layer,
        operation=layer.workload.source.name,
        inputs=layer.workload.inputs,
        levels=tuple(ways),
    )
    return Profile(workload=network.workload, levels=(), ways=(found,), interrupted=not whole)


def _require_sense(request: Request) -> None:
    if request.device != "cpu":
        raise GolowError(
            "--way-down counts instructions of the processor", "leave out --device cuda."
        )
    if request.mode != "infer":
        raise GolowError("--way-down looks at a forward pass", "leave out --mode train.")


@dataclass(frozen=True)
class _Counter:
    """Counts at one level after the other."""

    valgrind: str
    switch: Path
    bundle: Bundle
    cache: Path
    folder: Path
    starter: Starter

    def way(self, choice: ChosenLevel, run: Run) -> LevelWay:
        """The way of one level; without figures if the level does not match or cannot do this."""
        found = LevelWay(level=run.level, verdict=run.check.verdict, time=run.time)
        if run.check.verdict != "match":
            reason = f"{run.check.verdict}: {run.check.reason}"
            return msgspec.structs.replace(found, missing=reason)
        try:
            launch = settled(choice.prepare(self.bundle, self.cache))
            frames = self._frames(run.level, launch)
            counted = self._counted(run.level, launch)
        except Unsupported as error:
            return msgspec.structs.replace(found, missing=error.reason)
        except (WorkerFailure, GolowError, ValueError) as error:
            return msgspec.structs.replace(found, missing=str(error))
        return msgspec.structs.replace(found, python=frames, **counted._asdict())

    def _frames(self, level: str, launch: Launch) -> tuple[Frame, ...]:
        """Python's, from a run without Valgrind; it also builds what the next one loads."""
        with self.starter.worker(level, launch, self.bundle) as worker:
            worker.build(self.bundle.folder)
            return tuple(map(_frame, worker.count(self.switch).frames))

    def _counted(self, level: str, launch: Launch) -> reading.Counted:
        output = self.folder / f"{level.replace(':', '-')}.callgrind"
        threads = self.bundle.workload.threads
        slow = under_callgrind(launch, self.valgrind, threads, output)
        with self.starter.worker(level, slow, self.bundle) as worker:
            worker.load(self.bundle.folder)
            worker.count(self.switch)
        return reading.read(read_parts(output.parent, output.name))


def _frame(frame: PythonFrame) -> Frame:
    return Frame(name=frame.function, place=_short(frame.file))


def _short(file: str) -> str:
    """A path from the package on: it is the same on every machine."""
    for folder in ("/site-packages/", "/lib/python"):
        _, found, rest = file.rpartition(folder)
        if found:
            return rest
    return Path(file).name
