"""The frozen records of a study: the request, its cells, and the result of each cell.

Format history (``FORMAT_VERSION`` is written into every cell's record and is part of its key):

1   November 2026, the first: ``study.toml``, and ``cells/ENVIRONMENT/KEY/`` with one ``cell.json``
    and the comparison's folder.

As in ``records/record.py``, nothing here imports torch; seconds and bytes are plain numbers.
"""

from __future__ import annotations

from typing import Literal, get_args

from golow.records.comparison import Run
from golow.records.quantization import QuantizationRule
from golow.records.record import Record
from golow.records.text import TextPrecision
from golow.records.workload import Device, Mode, Phase, Precision

FORMAT_VERSION = 1

CellState = Literal["done", "unclear", "failed", "skipped"]
STATES: tuple[CellState, ...] = get_args(CellState)

# The reason of a level's failed check begins with this if memory ran out.
OUT_OF_MEMORY = "out of memory"


# ---------------------------------------------------------------- the request


class StudyLimits(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a cell may be measured and how much memory it may need.

    interval: relative width to which each ratio's 95% interval is narrowed, within ``seconds`` of
    racing. cell_seconds: a cell that takes longer in total is ended. memory: of the device, such as
    ``80%`` or ``40 GiB``; cells that are certain to need more are skipped.
    """

    interval: float = 0.02
    seconds: float = 10.0
    cell_seconds: float = 600.0
    memory: str = "80%"


class StudyLoad(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Levels under load: each cell is a `golow load` with its batch as the largest.

    rate: requests per second. contexts: batches that run at a time. latency: seconds that must hold
    at the percentile; None without one. delay: seconds that a request waits for others at most.
    seconds, repeats: of each run; rounds in turn between levels.
    """

    rate: tuple[float, ...]
    contexts: tuple[int, ...] = (1,)
    latency: float | None = None
    percentile: float = 99.0
    delay: float = 0.002
    seconds: float = 5.0
    repeats: int = 3


class StudyGeneration(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Levels that generate text: each cell is a `golow generate` of its batch, at one of these
    numbers of tokens in a prompt, and of generated tokens."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]


class CellGeneration(Record, frozen=True, kw_only=True):
    """The lengths of one cell's texts, in tokens."""

    prompt: int
    tokens: int


class Study(Record, frozen=True, kw_only=True):
    """The axes, and what is measured at each point of their grid.

    resolution: side of the square images; empty means each model's own. input: instead, the shape
    of one sample, such as 3x32x64, for models that are not of the zoo. threads: empty means one per
    physical core; ``doubling`` means 1, 2, 4, ... and one per hardware thread. channels and
    classes: for models of the zoo; None means their own. ranks, gpus: processes on a CPU, or GPUs,
    that train together, each with that batch; inference has one. pretrained and phase: of published
    models, as in `golow.workload.request.Request`. calibrate: samples for precisions that quantise.
    load, generation: cells are load tests, or generations of text, instead of comparisons.
    """

    name: str
    model: tuple[str, ...]
    mode: tuple[Mode, ...] = ("infer",)
    levels: tuple[str, ...]
    device: Device = "cpu"
    batch: tuple[int, ...]
    resolution: tuple[int, ...] = ()
    input: str = ""
    precision: tuple[Precision | QuantizationRule | TextPrecision, ...] = ("default",)
    calibrate: str = "inputs"
    threads: tuple[int, ...] | Literal["doubling"] = ()
    ranks: tuple[int, ...] = (1,)
    gpus: tuple[int, ...] = (1,)
    channels: int | None = None
    classes: int | None = None
    pretrained: bool | None = None
    phase: Phase = ""
    load: StudyLoad | None = None
    generation: StudyGeneration | None = None
    limits: StudyLimits = StudyLimits()

    @property
    def is_compared(self) -> bool:
        """True if its cells are comparisons."""
        return self.load is None and self.generation is None

    @property
    def axis_of_ranks(self) -> Literal["ranks", "gpus"]:
        """The axis with the numbers of ranks on its device."""
        return "gpus" if self.device == "cuda" else "ranks"

    @property
    def rank_counts(self) -> tuple[int, ...]:
        """The numbers of ranks of its cells. A rank on a GPU has it alone."""
        return self.gpus if self.axis_of_ranks == "gpus" else self.ranks


class Cell(Record, frozen=True, kw_only=True):
    """One point of the grid: the request for one `golow.compare`, `golow.load_test` or
    `golow.generate`.

    levels: those of the study that can run in this mode on this device, by their own names (no
    alias), the baseline among them. resolution, channels, classes: None means the model's own.
    input: the shape of one sample; empty means the resolution or the model's own. threads: of each
    rank; None means one per physical core of its share. source: sha256 of the model's file, empty
    for a model of the zoo or a package."""

    model: str
    mode: Mode
    batch: int
    resolution: int | None
    precision: Precision | QuantizationRule | TextPrecision
    threads: int | None
    device: Device
    levels: tuple[str, ...]
    channels: int | None = None
    classes: int | None = None
    interval: float
    seconds: float
    source: str = ""
    pretrained: bool | None = None
    phase: Phase = ""
    load: StudyLoad | None = None
    generation: CellGeneration | None = None
    calibrate: str = ""
    input: str = ""
    ranks: int = 1

    @property
    def is_compared(self) -> bool:
        """True if it is measured by a comparison."""
        return self.load is None and self.generation is None


def generations_of(study: Study) -> tuple[CellGeneration | None, ...]:
    """The lengths of texts that the study asks for; None where it asks for no texts."""
    asked = study.generation
    if asked is None:
        return (None,)
    return tuple(
        CellGeneration(prompt=prompt, tokens=tokens)
        for prompt in asked.prompt
        for tokens in asked.tokens
    )


def pretrained_of(study: Study, model: str) -> bool | None:
    """The study's weights for a published model; those of any other are its own."""
    return study.pretrained if model.startswith(("hf:", "timm:")) else None


def calibrate_of(study: Study, precision: str) -> str:
    """The samples of a precision that quantises; empty for any other."""
    return study.calibrate if precision in get_args(QuantizationRule) else ""


def phase_of(study: Study, model: str) -> Phase:
    """The study's phase for a model that can have one."""
    return study.phase if model.startswith("hf:") else ""


def asks(study: Study, cell: Cell) -> bool:
    """True if the cell is on the study's axes and has its limits. Levels and doubled thread
    counts are not compared, because they depend on the machine."""
    threads = study.threads or (None,)
    return (
        cell.model in study.model
        and cell.mode in study.mode
        and cell.device == study.device
        and cell.batch in study.batch
        and cell.resolution in (study.resolution or (None,))
        and cell.input == study.input
        and cell.precision in study.precision
        and (threads == "doubling" or cell.threads in threads)
        and cell.ranks in study.rank_counts
        and (cell.channels, cell.classes) == (study.channels, study.classes)
        and cell.pretrained == pretrained_of(study, cell.model)
        and cell.phase == phase_of(study, cell.model)
        and cell.load == study.load
        and cell.generation in generations_of(study)
        and cell.calibrate == calibrate_of(study, cell.precision)
        and (cell.interval, cell.seconds) == (study.limits.interval, study.limits.seconds)
    )


# ---------------------------------------------------------------- the result


class Machine(Record, frozen=True, kw_only=True):
    """Where a cell was measured: host, the device in words, the GPU's UUID (empty on a CPU)."""

    host: str = ""
    device: str = ""
    uuid: str = ""


class CellRecord(Record, frozen=True, kw_only=True):
    """The result of one cell, whether it was measured or not.

    state: ``done``: it has a comparison, in which any level may have failed; ``unclear``: it has
    one, but a level was timed in too few rounds for a conclusion; ``failed``: it has none, for the
    given reason; ``skipped``: it was certain to need more memory than allowed. On disk an unclear
    cell is ``done``: the state follows from its comparison.
    environment: the name of the folder that holds all cells measured in the same environment.
    seconds: the cell's total time, mostly starts and checks. comparison: the name of the folder of
    the comparison, load test or generation beside this record, empty if there is none.
    out_of_memory: the levels that ran out of memory. needed_bytes: the most that one iteration of
    eager holds; held_bytes: what all levels held on the device together; None if not measured. log:
    the end of the cell's standard error, if it failed.
    """

    format_version: int
    key: str
    cell: Cell
    state: CellState
    reason: str = ""
    created: str
    seconds: float = 0.0
    environment: str = ""
    machine: Machine = Machine()
    comparison: str = ""
    out_of_memory: tuple[str, ...] = ()
    needed_bytes: int | None = None
    held_bytes: int | None = None
    log: str = ""

    @property
    def is_measured(self) -> bool:
        """True if it has a comparison."""
        return self.state in ("done", "unclear")


def ran_out_of_memory(run: Run) -> bool:
    """True if the level has no figures because memory ran out."""
    return run.check.verdict == "failed" and run.check.reason.startswith(OUT_OF_MEMORY)
