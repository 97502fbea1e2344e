"""The whole program in one function: a workload down the levels, checked, measured, recorded.

`compare` reads as the table of contents: resolve, capture, bundle, reference, then for each level
build, load, check; then the race of those that matched; then the records.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import psutil
from torch import Tensor, nn

from golow.check.standard import Standard, checking
from golow.comparison import store
from golow.comparison.entrant import Entrant, Observer, Silent
from golow.data.places import default_cache
from golow.levels.choices import choices
from golow.levels.ladder import BASELINE
from golow.levels.starter import Starter
from golow.lower.capture import capture_inference, capture_training
from golow.lower.passes import CLEAN_UP, apply
from golow.lower.translation import Captured
from golow.measure.cores import default_threads
from golow.measure.environment import environment
from golow.measure.nvml import Card
from golow.measure.race import Race, run_race
from golow.record import (
    FORMAT_VERSION,
    Comparison,
    Conditions,
    Device,
    Environment,
    GolowError,
    Mode,
    ModelSource,
    Optimizer,
    Precision,
    RaceSummary,
    Ratio,
    Run,
)
from golow.report.comparison.table import render
from golow.worker.limits import Limits
from golow.worker.process import thread_settings
from golow.worker.turn import Turn
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import Loss, Prepared, prepare
from golow.workload.trial import require_device

if TYPE_CHECKING:
    import pandas

MEMORY_MARGIN = 1.3  # a worker may need this times the resident set of the largest one so far


class Result(NamedTuple):
    """What `compare` returns: the record, and ways to look at it."""

    comparison: Comparison

    def table(self) -> None:
        """Print the table and the advice."""
        render(self.comparison)

    def to_pandas(self) -> pandas.DataFrame:
        """A row a level; times in seconds, sizes in bytes. Needs ``pip install golow[pandas]``."""
        try:
            import pandas
        except ImportError as error:
            raise GolowError("pandas is not installed", "pip install 'golow[pandas]'") from error
        return pandas.DataFrame(store.to_rows(self.comparison))

    def save(self, folder: str | Path) -> Path:
        """Write the records into a new folder under this one; returns that folder."""
        return store.save(self.comparison, Path(folder))

    def run(self, level: str) -> Run:
        """The record of one level; raises KeyError for one that did not take part."""
        for run in self.comparison.runs:
            if run.level == level:
                return run
        raise KeyError(level)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came; ``result`` holds what had been measured by then."""

    def __init__(self, result: Result) -> None:
        super().__init__("interrupted")
        self.result = result


def compare(
    model: str | nn.Module,
    example_inputs: Tensor | Sequence[Tensor] | None = None,
    *,
    levels: Sequence[str] | None = None,
    workers: Mapping[str, str | Sequence[str]] | None = None,
    mode: Mode = "infer",
    batch: int | None = None,
    resolution: int | None = None,
    input_shape: tuple[int, ...] | None = None,
    channels: int | None = None,
    classes: int | None = None,
    weights: str | Path | None = None,
    initialisation: str | None = None,
    loss: str | Loss | None = None,
    targets: Tensor | Sequence[Tensor] | None = None,
    optimizer: Optimizer | None = None,
    seed: int = 0,
    threads: int | None = None,
    device: Device = "cpu",
    precision: Precision = "default",
    cold: bool = False,
    interval: float = 0.02,
    time_limit: float = 60.0,
    allow_differs: bool = False,
    by_layer: bool = False,
    brief: bool = False,
    cache: Path | None = None,
    limits: Limits | None = None,
    turn: Turn | None = None,
    observer: Observer | None = None,
) -> Result:
    """Run the model at every level, prove that they agree, measure what each costs.

    model: a name of the zoo, ``file.py:Name``, ``package.module:name``, ``file.pt2`` or a module.
    example_inputs: a tensor or tuple of tensors with the batch dimension first, for models that do
    not take images; ``targets`` likewise for the loss. levels: names as `golow levels` lists them,
    all that can run here unless given. workers: commands of your own that speak the protocol, by
    name. interval: relative width to which each ratio's 95% interval is narrowed, within time_limit
    seconds of racing, or five times that where five rounds take longer. threads: of every level;
    one a physical core unless given. device and precision: of every level; a GPU is ``cuda``. cold:
    empty the GPU's L2 before each timed iteration. by_layer: after the race, time each level step
    by step too. brief: for one of many comparisons; energy on a GPU is taken over less time, copies
    to it are not looked at. turn: where several comparisons share a GPU, this one's place among
    them.

    Raises `GolowError` for what the caller can mend, `Interrupted` (with what was measured) on
    Ctrl-C. What goes wrong in a level is that level's result.
    """
    observer = observer or Silent()
    if cold and device == "cpu":
        raise GolowError("--cold empties the cache of a GPU", "add --device cuda.")
    require_device(device, precision)
    chosen = choices(levels, workers or {}, mode, device)
    threads = threads or default_threads()
    cache = cache or default_cache()
    with ExitStack() as stack:
        starter = stack.enter_context(Starter(limits, turn))
        starter.ahead([checking(mode, device), *chosen], mode, threads)
        folder = Path(tempfile.mkdtemp(prefix="golow-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)

        observer.stage("preparing the workload")
        prepared = prepare(
            model,
            example_inputs,
            mode=mode,
            batch=batch,
            resolution=resolution,
            input_shape=input_shape,
            channels=channels,
            classes=classes,
            weights=weights,
            initialisation=initialisation,
            seed=seed,
            loss=loss,
            targets=targets,
            optimizer=optimizer,
            threads=threads,
            device=device,
            precision=precision,
            on_device=starter.turn.beside(),
        )
        bundle, prepared = write_bundle(prepared, folder / "bundle")

        observer.stage("capturing the graph")
        notes = write_graph(prepared, bundle)

        card = stack.enter_context(Card()) if device == "cuda" else None
        entrants = [
            stack.enter_context(
                Entrant(
                    choice,
                    bundle,
                    folder,
                    cache,
                    starter,
                    by_layer=by_layer,
                    brief=brief,
                    card=card,
                )
            )
            for choice in chosen
        ]
        races: list[Race] = []
        interrupted = False
        try:
            observer.stage("computing the float64 reference")
            eager = entrants[0].outputs(observer, f"1 of {len(entrants)}")
            standard = Standard(bundle, folder, starter, eager)
            notes += standard.notes
            for group in _resident_groups(entrants, standard, allow_differs, observer, card):
                with starter.turn.alone():
                    observer.stage("calibrating the race")
                    races.append(
                        run_race(
                            [e.worker for e in group if e.worker is not None],
                            baseline=BASELINE,
                            seed=seed,
                            target=interval,
                            time_limit=time_limit,
                            card=card,
                            cold=cold,
                            observer=observer.race,
                        )
                    )
                    if by_layer:
                        observer.stage("timing the layers")
                    for entrant in group:
                        entrant.finish(races[-1], [other.name for other in group])
                interrupted = races[-1].stopped_because == "interrupted"
                if interrupted:
                    break
        except KeyboardInterrupt:
            interrupted = True
        result = Result(
            _record(prepared, entrants, races, notes, seed, interval, interrupted, cold)
        )
    if interrupted:
        raise Interrupted(result)
    return result


def capture(prepared: Prepared) -> Captured:
    """The workload's graph, as torch gives it, before any pass."""
    workload, batch = prepared.workload, prepared.batches[0]
    if prepared.loss is None:
        return capture_inference(workload.model, prepared.module, batch.inputs)
    return capture_training(
        workload.model, prepared.module, batch.inputs, batch.targets, prepared.loss
    )


def write_graph(prepared: Prepared, bundle: Bundle) -> list[str]:
    """Put the cleaned graph into the bundle; a model that cannot be captured gets a note, which is
    returned."""
    try:
        captured = capture(prepared)
    except GolowError as error:
        return [f"{error.message}; levels that start from the graph are left out"]
    bundle.write_graph(apply(captured.graph, CLEAN_UP), captured.constants)
    return []


def _resident_groups(
    entrants: Sequence[Entrant],
    standard: Standard,
    allow_differs: bool,
    observer: Observer,
    card: Card | None,
) -> Iterator[list[Entrant]]:
    """Groups of entrants that are loaded and may be timed together, the baseline in each.

    One group where memory allows it, which is the rule; a level for which there is no room waits
    for the next group, after those before it have been closed.
    """
    baseline, waiting = entrants[0], list(entrants[1:])
    total = len(entrants)
    while True:
        if not baseline.start(standard, allow_differs, observer, f"1 of {total}"):
            return
        group = [baseline]
        while waiting and (len(group) == 1 or _room_for_another(group, card)):
            entrant = waiting.pop(0)
            place = f"{total - len(waiting)} of {total}"
            if entrant.start(standard, allow_differs, observer, place):
                group.append(entrant)
        yield group
        for entrant in group:
            entrant.dismiss()
        for entrant in group:
            entrant.close()
        if not waiting:
            return


def _room_for_another(group: Sequence[Entrant], card: Card | None) -> bool:
    largest = max(entrant.resident_bytes() for entrant in group)
    if not psutil.virtual_memory().available > MEMORY_MARGIN * largest:
        return False
    free = card.free_bytes() if card is not None else None
    if free is None:
        return True
    return free > MEMORY_MARGIN * max(entrant.device_bytes() for entrant in group)


# ---------------------------------------------------------------- the record


def _record(
    prepared: Prepared,
    entrants: Sequence[Entrant],
    races: Sequence[Race],
    notes: Sequence[str],
    seed: int,
    interval: float,
    interrupted: bool,
    cold: bool,
) -> Comparison:
    workload = prepared.workload
    created = datetime.now(UTC)
    shape = "x".join(map(str, workload.inputs[0].shape[1:]))
    comparison = Comparison(
        format_version=FORMAT_VERSION,
        id=f"{created:%Y%m%d-%H%M%S}-{workload.model}-{workload.mode}-b{workload.batch}-{shape}",
        created=created.isoformat(timespec="seconds"),
        workload=workload,
        race=_race_summary(races, seed, interval, interrupted),
        runs=(),
        notes=tuple(notes),
    )
    machine = environment_of(workload.source, workload.threads)
    runs = tuple(_run(e, entrants[0], comparison, machine, cold) for e in entrants)
    return msgspec.structs.replace(comparison, runs=runs)


def environment_of(source: ModelSource, threads: int) -> Environment:
    """The machine, with the state of the model's own file, and the thread settings that the workers
    get."""
    machine = environment(Path(source.name) if source.kind in ("file", "program") else None)
    settings = {**machine.thread_settings, **thread_settings(threads)}
    return msgspec.structs.replace(machine, thread_settings=settings)


def _run(
    entrant: Entrant, baseline: Entrant, within: Comparison, machine: Environment, cold: bool
) -> Run:
    race, workload = entrant.race, within.workload
    ratio = race.ratio(entrant.name) if race else None
    if race and entrant is baseline and race.blocks[BASELINE]:
        ratio = Ratio(value=1.0, low=1.0, high=1.0, word="same")
    return Run(
        format_version=FORMAT_VERSION,
        id=f"{within.id}/{entrant.name}",
        created=within.created,
        level=entrant.name,
        workload=workload,
        check=entrant.check,
        environment=machine,
        conditions=Conditions(
            threads=workload.threads,
            affinity=machine.affinity,
            precision=workload.precision,
            wait_policy=machine.thread_settings.get("OMP_WAIT_POLICY", "default"),
            contended_share=race.contended_share(entrant.name) if race else 0.0,
            rounds_used=race.rounds_used(entrant.name) if race else "",
            resident_with=entrant.resident_with,
            device=workload.device,
            cache="cold" if cold else "warm",
            throttled_share=race.throttled_share(entrant.name) if race else 0.0,
        ),
        blocks=race.blocks[entrant.name] if race else (),
        time=race.time(entrant.name) if race else None,
        ratio=ratio,
        memory=tuple(entrant.memory),
        life=tuple(entrant.life()),
        build_cached=entrant.launch.cached if entrant.launch else False,
        payback_iterations=entrant.payback(baseline),
        notes=tuple(entrant.notes),
        log=entrant.log,
        layers=entrant.layers,
        layers_missing=entrant.layers_missing,
        device=tuple(entrant.device),
    )


def _race_summary(
    races: Sequence[Race], seed: int, interval: float, interrupted: bool
) -> RaceSummary:
    """Of the longest race, where memory made several necessary; of none where nothing matched."""
    none = Race(levels=(), baseline=BASELINE, seed=seed, target=interval, least_rounds=0)
    summary = max((race.summary for race in races), key=lambda s: s.rounds, default=none.summary)
    if interrupted:
        summary = msgspec.structs.replace(summary, stopped_because="interrupted")
    return summary
