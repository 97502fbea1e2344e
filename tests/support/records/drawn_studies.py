"""Records of studies made by hand and drawn by Hypothesis, for what is shown of them."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from golow.programs.comparison import store
from golow.programs.study.store import StudyFolder
from golow.programs.study.study_record import Cell, CellRecord, CellState, Machine, Study
from golow.records.comparison import (
    Block,
    Check,
    Comparison,
    Conditions,
    GpuState,
    Quantity,
    RaceSummary,
    Ratio,
    Run,
    VerdictName,
    Word,
)
from golow.records.record import FORMAT_VERSION, encode
from golow.records.workload import ModelSource, TensorType, Workload
from golow.report.study.planes import Plane, planes
from golow.report.study.rows import Measured, StudyRow, rows_of
from support.records.drawn_trainings import ENVIRONMENT

CREATED = "2026-11-20T18:00:00+00:00"
GIB = 2**30


def cell(
    batch: int = 8,
    resolution: int | None = 32,
    levels: Sequence[str] = ("eager", "cudnn"),
    **changes: object,
) -> Cell:
    asked = Cell(
        model="resnet50",
        mode="infer",
        batch=batch,
        resolution=resolution,
        precision="default",
        threads=None,
        device="cuda",
        levels=tuple(levels),
        classes=20,
        interval=0.02,
        seconds=10.0,
    )
    return msgspec.structs.replace(asked, **changes)


def run(
    asked: Cell,
    level: str,
    seconds: float | None,
    ratio: float | None = None,
    word: Word | None = None,
    verdict: VerdictName = "match",
    reason: str = "",
    memory: float | None = None,
    utilization: float | None = 0.9,
    half_width: float = 0.008,
    rounds: int = 12,
) -> Run:
    """Intervals are of that half relative width; memory in bytes on the device, or the host's."""
    cuda = asked.device == "cuda"
    word = word or ("same" if ratio is None or abs(ratio - 1) < 0.02 else _faster(ratio))
    held = Quantity(name="device_used" if cuda else "resident", unit="B", value=memory or math.nan)
    busy = Quantity(name="utilization", unit="", value=utilization or math.nan)
    state = GpuState(
        clock_mhz=1980, memory_clock_mhz=2619, temperature_c=41, power_w=300, utilization_percent=90
    )
    side = asked.resolution or 224
    return Run(
        format_version=FORMAT_VERSION,
        id=f"a/{level}",
        created=CREATED,
        level=level,
        workload=Workload(
            model=asked.model,
            source=ModelSource(kind="zoo", name=asked.model),
            mode=asked.mode,
            batch=asked.batch,
            inputs=(TensorType(shape=(asked.batch, 3, side, side), dtype="float32"),),
            device=asked.device,
            precision=asked.precision,
            threads=asked.threads or 16,
            ranks=asked.ranks,
            parameters=23_549_012,
        ),
        check=Check(verdict=verdict, reason=reason),
        environment=ENVIRONMENT,
        conditions=Conditions(
            threads=asked.threads or 16,
            affinity=tuple(range(16)),
            precision=asked.precision,
            wait_policy="PASSIVE",
            rounds_used="clean",
            device=asked.device,
        ),
        blocks=tuple(
            Block(round=n, position=0, host_ns=(1000,), gpu=state if cuda else None)
            for n in range(rounds)
        ),
        time=None if seconds is None else _quantity("time", "s", seconds, half_width),
        ratio=None
        if ratio is None
        else Ratio(
            value=ratio, low=ratio * (1 - half_width), high=ratio * (1 + half_width), word=word
        ),
        memory=(held,) if memory else (),
        life=(
            Quantity(name="build", unit="s", value=12.5),
            Quantity(name="ready", unit="s", value=2.5),
            Quantity(name="artifact", unit="B", value=1e8),
        ),
        device=(busy, Quantity(name="energy", unit="J", value=1.5)) if cuda and utilization else (),
        payback_iterations=3400.5 if word == "faster" else None,
    )


def measured(asked: Cell, runs: Sequence[Run], environment: str = "h200") -> Measured:
    """A cell that is done."""
    comparison = Comparison(
        format_version=FORMAT_VERSION,
        id=f"20261120-180000-{key(asked)}",
        created=CREATED,
        workload=runs[0].workload,
        race=RaceSummary(
            rounds=12,
            seed=0,
            stopped_because="interval",
            interval_target=0.02,
            seconds=4.5,
            contended_share=0.0,
        ),
        runs=tuple(runs),
    )
    record = _record(asked, "done", environment=environment, comparison=comparison.id)
    return Measured(record, comparison, ENVIRONMENT)


def unmeasured(asked: Cell, state: CellState, reason: str, environment: str = "h200") -> Measured:
    """A cell without figures."""
    return Measured(
        _record(asked, state, reason=reason, environment=environment), None, ENVIRONMENT
    )


def key(asked: Cell) -> str:
    return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:12]


def asking(name: str, cells: Sequence[Cell]) -> Study:
    """A study that asks for these cells, and for others on their axes."""

    def axis(of: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(v for c in cells if (v := getattr(c, of)) is not None))

    return Study(
        name=name,
        model=axis("model"),
        levels=tuple(dict.fromkeys(level for cell in cells for level in cell.levels)),
        device=cells[0].device,
        mode=axis("mode"),
        batch=axis("batch"),
        resolution=axis("resolution"),
        precision=axis("precision"),
        threads="doubling" if len({cell.threads for cell in cells}) > 1 else axis("threads"),
        classes=cells[0].classes,
    )


def write(folder: Path, cells: Sequence[Measured]) -> Path:
    """The cells as a study leaves them on disk."""
    study = StudyFolder(folder)
    study.write_study(asking(folder.name, [each.record.cell for each in cells]))
    for record, comparison, _ in cells:
        draft = study.draft()
        if comparison is not None:
            store.save(comparison, draft)
        study.keep(record, draft)
        file = study.cells / record.environment / "environment.json"
        if not file.is_file():
            file.write_bytes(encode(ENVIRONMENT))
    return folder


def _record(asked: Cell, state: CellState, **more: str) -> CellRecord:
    return CellRecord(
        format_version=1,
        key=key(asked),
        cell=asked,
        state=state,
        created=CREATED,
        seconds=21.5,
        machine=Machine(host="node-1", device="NVIDIA H200"),
        **more,  # type: ignore[arg-type]
    )


def _quantity(name: str, unit: str, value: float, half_width: float) -> Quantity:
    low, high = value * (1 - half_width), value * (1 + half_width)
    return Quantity(name=name, unit=unit, value=value, low=low, high=high)


def _faster(ratio: float) -> Word:
    return "faster" if ratio < 1 else "slower"


# ---------------------------------------------------------------- as it comes out of a study

POWERS = (8, 16, 32, 64, 128, 256, 512, 1024)
# Seconds of the host for an iteration, of the GPU for a network of 224 x 224 pixels and at least,
# bytes at rest and of a pixel.
HOST = {"eager": 5.5e-3, "torchscript": 3.2e-3, "libtorch": 2.4e-3, "cudnn": 0.0}
PICTURE = {"eager": 2.4e-4, "torchscript": 2.3e-4, "libtorch": 2.4e-4, "cudnn": 2.0e-4}
LEAST = {"eager": 7e-4, "torchscript": 7e-4, "libtorch": 7e-4, "cudnn": 4.5e-4}
AT_REST = {"eager": 0.9, "torchscript": 0.95, "libtorch": 0.75, "cudnn": 0.5}
PIXEL = {"infer": 180, "train": 2400}
CARD = 139 * GIB


def levental_like(
    batches: Sequence[int] = POWERS,
    resolutions: Sequence[int] = POWERS,
    modes: Sequence[str] = ("infer", "train"),
    levels: Sequence[str] = tuple(HOST),
) -> list[Measured]:
    """Every cell of such a grid: small ones bound by the host, large ones out of memory; a level
    that differs, one that crashed, and a few ratios whose interval holds 1."""
    draw = random.Random(0)  # noqa: S311
    cells = []
    for mode in modes:
        for resolution in resolutions:
            for batch in batches:
                asked = cell(batch, resolution, levels, mode=mode)
                needed = batch * resolution**2 * PIXEL[mode]
                if needed > 4 * CARD:
                    reason = f"it needs at least {needed / GIB:.0f} GiB of 139 GiB"
                    cells.append(unmeasured(asked, "skipped", reason))
                else:
                    cells.append(measured(asked, [*_levels(asked, needed, draw)]))
    cells[3] = unmeasured(cells[3].record.cell, "failed", "it took longer than 600 s")
    return cells


def _levels(asked: Cell, needed: float, draw: random.Random) -> list[Run]:
    runs: list[Run] = []
    for level in asked.levels:
        memory = AT_REST[level] * GIB + needed * (0.45 if level == "cudnn" else 1.0)
        if runs and runs[0].time is None:
            reason = "the run ended before this level"
            runs.append(run(asked, level, None, verdict="failed", reason=reason))
        elif memory > CARD:
            reason = "out of memory: CUDA out of memory. Tried to allocate 64.00 GiB"
            runs.append(run(asked, level, None, verdict="failed", reason=reason))
        elif level == "torchscript" and asked.batch == 16 and asked.resolution == 64:
            runs.append(run(asked, level, None, verdict="differs", reason="0/output/0 is off"))
        elif level == "libtorch" and asked.batch == 64 and asked.resolution == 8:
            runs.append(run(asked, level, None, verdict="failed", reason="it died: signal 11"))
        else:
            steps = 3.0 if asked.mode == "train" else 1.0
            pictures = asked.batch * ((asked.resolution or 224) / 224) ** 2
            device = steps * (LEAST[level] + pictures * PICTURE[level])
            seconds = (device**4 + (steps * HOST[level]) ** 4) ** 0.25 * draw.uniform(0.985, 1.015)
            first = runs[0].time.value if runs and runs[0].time else seconds
            ratio = seconds / first
            word: Word | None = "unclear" if 0.965 < ratio < 1.035 and runs else None
            busy = min(0.99, device / seconds + 0.02)
            runs.append(run(asked, level, seconds, ratio, word, "match", "", memory, busy))
    return runs


def plane(*cells: Measured) -> Plane:
    """The only plane of a study of these cells."""
    [only] = planes(rows_of("a-study", cells))
    return only


SMALL = levental_like((8, 32, 1024), (8, 64, 1024), ("train",))


def small() -> Plane:
    """That of a few cells."""
    return plane(*SMALL)


# ---------------------------------------------------------------- drawn

LEVELS = ("eager", "eager:channels_last", "compile:freezing", "cudnn", "a_user's_<b>$own$_level")
REASONS = (
    "out of memory: no",
    "it died: signal 11",
    "the run ended before this level",
    "</script> $x_1$",
)
figures = st.none() | st.floats(1e-7, 1e4) | st.sampled_from((math.nan, math.inf, 0.0, 1.0))
ratios = st.none() | st.floats(0.01, 100) | st.sampled_from((math.nan, 1.0))


@st.composite
def runs(draw: st.DrawFn, asked: Cell, level: str) -> Run:
    return run(
        asked,
        level,
        draw(figures),
        draw(ratios),
        draw(st.sampled_from(("faster", "slower", "same", "unclear"))),
        draw(st.sampled_from(("match", "match", "match", "differs", "failed", "unavailable"))),
        draw(st.sampled_from(REASONS)),
        draw(st.none() | st.floats(1.0, 1e12)),
        draw(st.none() | st.floats(0, 1)),
        draw(st.sampled_from((0.0, 0.01, 2.0, math.nan))),
        draw(st.sampled_from((1, 4, 12))),
    )


@st.composite
def studies(draw: st.DrawFn) -> list[StudyRow]:
    """Any cells of a few axes, in any state, with any of a few levels."""
    modes, precisions = ("infer", "train"), ("default", "bf16")
    device = draw(st.sampled_from(("cpu", "cuda")))
    asked = st.builds(
        cell,
        batch=st.sampled_from((1, 8, 100)),
        resolution=st.sampled_from((8, 32, 1024, None)),
        levels=st.lists(st.sampled_from(LEVELS), min_size=1, max_size=3, unique=True),
        mode=st.sampled_from(modes[: draw(st.integers(1, 2))]),
        precision=st.sampled_from(precisions[: draw(st.integers(1, 2))]),
        threads=st.sampled_from((None, 1, 16)[: draw(st.integers(1, 3))]),
        model=st.sampled_from(("resnet50", "a/file.py:Net")[: draw(st.integers(1, 2))]),
        device=st.just(device),
    )
    cells = []
    for one in draw(st.lists(asked, max_size=6, unique_by=key)):
        state = draw(st.sampled_from(("done", "done", "done", "failed", "skipped")))
        environment = draw(st.sampled_from(("h200", "h200", "other")))
        if state == "done":
            made = [draw(runs(one, level)) for level in one.levels[: draw(st.integers(1, 3))]]
            cells.append(measured(one, made, environment))
        else:
            cells.append(unmeasured(one, state, draw(st.sampled_from(REASONS)), environment))
    return rows_of("a-study", cells)


THREE_LEVELS = ("eager", "libtorch", "cudnn")


def three_levels(batch: int, seconds: tuple[float | None, ...], **more: object) -> Measured:
    asked = cell(batch, 32, THREE_LEVELS)
    runs = [
        run(asked, level, time, time and seconds[0] and time / seconds[0], **more)  # type: ignore[arg-type]
        for level, time in zip(THREE_LEVELS, seconds, strict=True)
    ]
    return measured(asked, runs)
