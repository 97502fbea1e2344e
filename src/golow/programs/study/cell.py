"""The process of one cell: ``python -m golow.programs.study.cell FOLDER``.

The protocol between the study and a cell's process, whichever program that is:

* The folder belongs to the process. One line on standard input states that the request, the `Cell`
in ``FOLDER/request.json``, is there; if cells share a GPU, the process is started in advance.
* The process leaves the comparison's folder in its folder and writes ``outcome.json`` last.
* Standard output has one line per stage, standard error is the log.
* The end of standard input means that the study has ended. The cell then ends at once, with all of
  its workers.
* A full disk is not an outcome: the process ends with status `DISK_FULL`.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from golow.programs.study.family import MARK, end_family
from golow.programs.study.places import TURNS
from golow.programs.study.study_record import (
    OUT_OF_MEMORY,
    Cell,
    CellGeneration,
    StudyLoad,
    ran_out_of_memory,
)
from golow.records.comparison import Comparison
from golow.records.errors import GolowError, WorkerFailure
from golow.records.record import Record, encode
from golow.storage.files import write_whole
from golow.storage.full_disk import FULL, causes, full_disk, tells_of_full_disk

if TYPE_CHECKING:
    from golow.programs.quantization.quantization_record import Quantization
    from golow.records.quantization import QuantizationRule
    from golow.records.text import TextPrecision
    from golow.records.workload import Precision
    from golow.workload.request import Request

DISK_FULL = 28
STATED = 256
"""Samples of a data set for the statements about a quantised network; a cell has only seconds."""


class Outcome(Record, frozen=True, kw_only=True):
    """The result from the cell's process; `CellRecord` explains the fields."""

    reason: str = ""
    comparison: str = ""
    out_of_memory: tuple[str, ...] = ()
    needed_bytes: int | None = None
    held_bytes: int | None = None


def main() -> None:
    """Measure the cell in the folder that the command line names."""
    folder = Path(sys.argv[1])
    asked = threading.Event()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    # If memory runs out, the system should end a worker first, and never the study itself.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    if TURNS in os.environ:
        # The import takes a quarter of a cell's time.
        importlib.import_module("golow.programs.comparison.compare")
    asked.wait()
    cell = msgspec.json.decode((folder / "request.json").read_bytes(), type=Cell)
    try:
        outcome = measured(cell, folder)
        write_whole(folder / "outcome.json", encode(outcome))
    except OSError as error:
        if error.errno not in FULL:
            raise
        print(error, file=sys.stderr)
        sys.exit(DISK_FULL)


def measured(cell: Cell, folder: Path) -> Outcome:
    """Run the cell's comparison, load test or generation and save it in the folder; an error in it
    becomes the outcome.

    Raises `OSError` if the disk is full, because that states nothing about the cell.
    """
    try:
        if cell.load is not None:
            return Outcome(comparison=_loaded(cell, cell.load, folder))
        if cell.generation is not None:
            return Outcome(comparison=_generated(cell, cell.generation, folder))
        comparison, record = _compared(cell)
        folder_name = _with_statements(record, _saved(comparison, folder))
    except Exception as error:
        if full := full_disk(error):
            raise full from error
        memory = any(map(_is_out_of_memory, causes(error)))
        if not isinstance(error, GolowError):
            traceback.print_exc()
        return Outcome(
            reason=(f"{OUT_OF_MEMORY}: " if memory else "") + _words(error),
            out_of_memory=cell.levels if memory else (),
        )
    eager = comparison.runs[0]
    needed = eager.quantity("allocated_peak")
    return Outcome(
        comparison=folder_name,
        out_of_memory=tuple(run.level for run in comparison.runs if ran_out_of_memory(run)),
        needed_bytes=None if needed is None else round(needed),
        held_bytes=held_together(comparison),
    )


def held_together(comparison: Comparison) -> int | None:
    """Bytes that all levels of one race held on the device together; None if they did not fit
    together, so that several races ran, or if the driver does not report it."""
    raced = [run for run in comparison.runs if run.blocks]
    if any(len(run.conditions.resident_with) + 1 < len(raced) for run in raced):
        return None
    sizes = (run.quantity("device_used") or run.quantity("device_added") or 0 for run in raced)
    return round(sum(sizes)) or None


class _Stages:
    """Reports progress to the study, except during the race."""

    def stage(self, text: str) -> None:
        """A step begins that may take seconds."""
        print(text, flush=True)

    def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
        """Report once that the race has begun."""
        if rounds == 1:
            self.stage("racing")


def request_of(cell: Cell) -> Request:
    """Return the request for the comparison or load test of a cell."""
    from golow.worker.cores import threads_of_rank
    from golow.workload.request import Request, sample_shape

    return Request(
        cell.model,
        mode=cell.mode,
        batch=cell.batch if cell.load is None else None,
        resolution=cell.resolution,
        input_shape=sample_shape(cell.input) if cell.input else None,
        channels=cell.channels,
        classes=cell.classes,
        pretrained=cell.pretrained,
        phase=cell.phase,
        threads=cell.threads or threads_of_rank(cell.ranks),
        ranks=cell.ranks,
        device=cell.device,
        precision="default" if cell.calibrate else cast("Precision", cell.precision),
    )


def _quantized(request: Request, cell: Cell) -> tuple[Request, Quantization | None]:
    """Return the request for the quantised network, and its record, if the precision is a rule."""
    if not cell.calibrate:
        return request, None
    from golow.programs.quantization.quantize import QuantizationSettings, quantize_for_comparison

    settings = QuantizationSettings(
        calibrate=cell.calibrate,
        rule=cast("QuantizationRule", cell.precision),
        test_samples=STATED,
    )
    made = quantize_for_comparison(request, settings, _Stages())
    return made.request, made.record


def _generated(cell: Cell, asked: CellGeneration, folder: Path) -> str:
    """Run the cell's text generation; returns the name of its folder."""
    from golow.programs.generation import store
    from golow.programs.generation.generate import generate
    from golow.programs.generation.settings import GenerationSettings
    from golow.worker.cores import default_threads
    from golow.workload.generation.request import TextRequest

    request = TextRequest(
        cell.model,
        batch=(cell.batch,),
        prompt=asked.prompt,
        tokens=asked.tokens,
        precision=cast("TextPrecision", cell.precision),
        device=cell.device,
        classes=cell.classes,
        pretrained=cell.pretrained,
        threads=cell.threads or default_threads(),
    )
    settings = GenerationSettings(
        levels=cell.levels, interval=cell.interval, seconds=cell.seconds / len(cell.levels)
    )
    found = generate(request, settings, _Stages())
    if found.interrupted:
        raise KeyboardInterrupt  # a part of a generation is not an outcome
    return store.save(found, folder).name


def _loaded(cell: Cell, asked: StudyLoad, folder: Path) -> str:
    """Run the cell's load test; returns the name of its folder."""
    from golow.programs.load import store
    from golow.programs.load.load import load_test
    from golow.programs.load.settings import LoadSettings

    settings = LoadSettings(
        levels=cell.levels,
        scenarios=["server"],
        latency=asked.latency,
        percentile=asked.percentile,
        rates=asked.rate,
        max_batch=cell.batch,
        delay=asked.delay,
        contexts=asked.contexts,
        seconds=asked.seconds,
        repeats=asked.repeats,
    )
    request, record = _quantized(request_of(cell), cell)
    found = load_test(request, settings, _Stages())
    if found.interrupted:
        raise KeyboardInterrupt  # a part of a load test is not an outcome
    return _with_statements(record, store.save(found, folder))


def _with_statements(record: Quantization | None, folder: Path) -> str:
    """Write how far a quantised network is from the original beside its results; returns the name
    of their folder."""
    if record is not None:
        from golow.programs.quantization.store import save_beside

        save_beside(record, folder)
    return folder.name


def _compared(cell: Cell) -> tuple[Comparison, Quantization | None]:
    from golow.programs.comparison.compare import compare
    from golow.programs.comparison.settings import ComparisonSettings
    from golow.worker.turn import Turn

    settings = ComparisonSettings(
        levels=cell.levels,
        interval=cell.interval,
        time_limit=cell.seconds,
        brief=True,
        turn=Turn(Path(os.environ[TURNS])) if TURNS in os.environ else None,
    )
    request, record = _quantized(request_of(cell), cell)
    comparison = compare(request, settings, _Stages())
    if comparison.race.stopped_because == "interrupted":
        raise KeyboardInterrupt  # a part of a comparison is not an outcome
    return comparison, record


def _saved(comparison: Comparison, folder: Path) -> Path:
    from golow.programs.comparison import store

    for run in comparison.runs:
        if run.check.verdict == "failed" and tells_of_full_disk(run.check.reason + run.log):
            raise OSError(errno.ENOSPC, f"{run.level}: {run.check.reason}")
    return store.save(comparison, folder)


# ---------------------------------------------------------------- what went wrong


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, WorkerFailure):
        return error.kind == OUT_OF_MEMORY
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def _words(error: Exception) -> str:
    if isinstance(error, GolowError):
        return error.message
    return f"{type(error).__name__}: {error}"


# ---------------------------------------------------------------- what the study states


def _listen(asked: threading.Event) -> None:
    """Block until the study's request arrives, then until the study closes standard input or
    dies; then end the cell and its workers."""
    while os.read(0, 1):
        asked.set()
    end_family(os.environ[MARK])
    os._exit(1)


if __name__ == "__main__":
    main()
