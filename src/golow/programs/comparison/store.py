"""Comparisons on disk: a folder per comparison, a JSON file per run, each written atomically.

``runs/ID/comparison.json`` holds what the runs share, ``runs/ID/LEVEL.json`` one run with its raw
samples, and ``runs/ID/runs.csv`` the headline figures for a spreadsheet.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from golow.measure.environment import unlike
from golow.programs.comparison.figures import percentiles, throughput
from golow.records.comparison import Comparison, Quantity, RaceSummary, Run, VerdictName
from golow.records.errors import GolowError
from golow.records.record import FORMAT_VERSION, Record, encode
from golow.records.workload import Workload
from golow.storage.files import is_file, read_json, write_whole, writing
from golow.storage.names import is_plain_name, shortened
from golow.storage.record_folder import filled, own_folder
from golow.storage.spreadsheet import to_csv

HINT = "free some space or name another folder with --out."

# Columns of `to_rows`, after all others so that a spreadsheet made for CPU rows reads these too.
DEVICE_COLUMNS = (
    *("device", "precision", "cache", "throttled_share"),
    *("clock_mhz", "temperature_c", "other_processes"),
    *("enqueue", "energy", "power", "utilization", "copied", "copy_time"),
)

# Converts each older format version to the next one; ``records/record.py`` has the history.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


class _Index(Record, frozen=True, kw_only=True):
    """``comparison.json``: a comparison with the names of its runs' files."""

    format_version: int
    id: str
    created: str
    workload: Any
    race: Any
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()


class Timed(NamedTuple):
    """How long a race took, and in how many rounds each level that matches was timed."""

    seconds: float
    rounds: dict[str, int]


class _Raced(Record, frozen=True, kw_only=True):
    """``comparison.json`` without what was compared."""

    race: RaceSummary
    files: tuple[str, ...]


class _Verdict(Record, frozen=True, kw_only=True):
    verdict: VerdictName


class _Block(Record, frozen=True, kw_only=True):
    pass


class _Rounds(Record, frozen=True, kw_only=True):
    """A run without what it measured."""

    level: str
    check: _Verdict
    blocks: tuple[_Block, ...] = ()


def save(comparison: Comparison, parent: Path) -> Path:
    """Write the comparison into its own folder under parent; returns that folder.

    The folder has the comparison's id, or, where another comparison has it, that with a number.
    Every file is written atomically, ``comparison.json`` last. Raises `GolowError` if the disk is
    full or the folder cannot be written.
    """
    with writing(parent, HINT):
        folder = own_folder(parent, comparison.id, lambda found: _holds(found, comparison))
    if folder.name != comparison.id:
        comparison = _renamed(comparison, folder.name)
    with filled(folder, HINT):
        for run in comparison.runs:
            write_whole(folder / _file_of(run), encode(run))
        write_whole(folder / "runs.csv", to_csv_text(comparison).encode())
        write_whole(folder / "comparison.json", encode(_index(comparison)))
    return folder


def _index(comparison: Comparison) -> _Index:
    return _Index(
        format_version=comparison.format_version,
        id=comparison.id,
        created=comparison.created,
        workload=comparison.workload,
        race=comparison.race,
        files=tuple(map(_file_of, comparison.runs)),
        notes=comparison.notes,
    )


def _file_of(run: Run) -> str:
    return f"{shortened(run.level.replace(':', '-'))}.json"


def _holds(folder: Path, comparison: Comparison) -> bool:
    """True if the folder holds this comparison."""
    named = _renamed(comparison, folder.name)
    try:
        return (folder / "comparison.json").read_bytes() == encode(_index(named))
    except OSError:
        return False


def _renamed(comparison: Comparison, name: str) -> Comparison:
    """The comparison with another id; those of its runs begin with it."""
    replace = msgspec.structs.replace
    runs = (
        replace(run, id=f"{name}{run.id.removeprefix(comparison.id)}") for run in comparison.runs
    )
    return replace(comparison, id=name, runs=tuple(runs))


def load(place: str | Path) -> Comparison:
    """Read the comparison in a folder or ``comparison.json``; older formats are converted."""
    path = Path(place)
    folder = path.parent if path.name == "comparison.json" else path
    file = folder / "comparison.json"
    if not is_file(file):
        raise GolowError(
            f"there is no comparison in {folder}", "give a folder that `golow compare` wrote."
        )
    index = _read(file)
    try:
        names = msgspec.convert(index.pop("files", ()), tuple[str, ...])
        if any(Path(name).name != name for name in names):
            raise msgspec.ValidationError("its files are not names in its folder")
        index["runs"] = [with_errors(_read(folder / name)) for name in names]
        comparison = msgspec.convert(index, Comparison)
        _require_whole(comparison)
    except msgspec.ValidationError as error:
        raise GolowError(f"{file} is not a comparison: {error}") from error
    return comparison


def timed(folder: Path) -> Timed:
    """The rounds of the comparison in that folder, found without reading its samples. Raises
    `GolowError` if a file cannot be read."""
    race = read_json(folder / "comparison.json", _Raced)
    runs = (read_json(folder / Path(name).name, _Rounds) for name in race.files)
    rounds = {
        run.level: len(run.blocks) for run in runs if run.blocks and run.check.verdict == "match"
    }
    return Timed(race.race.seconds, rounds)


def _require_whole(comparison: Comparison) -> None:
    """Raise for violations of conditions that types do not express and reports rely on."""
    if not is_plain_name(comparison.id):
        raise msgspec.ValidationError(f"its id {comparison.id!r} is not a folder name")
    if not comparison.runs:
        raise msgspec.ValidationError("it has no runs")
    if not comparison.workload.inputs:
        raise msgspec.ValidationError("its workload has no inputs")
    for run in comparison.runs:
        if not is_plain_name(run.level):
            raise msgspec.ValidationError(f"the level {run.level!r} is not a name")
        if run.ratio is not None and None in (run.time, comparison.runs[0].time):
            raise msgspec.ValidationError(f"{run.level} has a ratio, but a time is missing")


def require_writable(folder: Path) -> None:
    """Raise `GolowError` now rather than after minutes of measuring."""
    with writing(folder, HINT):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:  # of this process alone
            file.write(b"golow")


def require_alike(
    comparisons: list[Comparison],
    hint: str = "to show them together anyway, add --anyway.",
) -> None:
    """Raise `GolowError` unless all have the same workload and comparable machines."""
    first = comparisons[0]
    for other in comparisons[1:]:
        differences = unlike_workloads(first.workload, other.workload)
        if first.runs and other.runs:
            machines = first.runs[0].environment, other.runs[0].environment
            differences += unlike(*machines, first.workload.device)
        if differences:
            raise GolowError(
                f"{first.id} and {other.id} are not comparable: " + "; ".join(differences),
                hint,
            )


def unlike_workloads(first: Workload, second: Workload) -> list[str]:
    """The differences between two workloads that make their times not comparable."""
    names = "model mode batch ranks inputs device precision optimizer loss threads".split()
    return [
        f"{name}: {_plain(getattr(first, name))} and {_plain(getattr(second, name))}"
        for name in names
        if getattr(first, name) != getattr(second, name)
    ]


def to_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """One flat row per run, for a spreadsheet or a data frame. Times are in seconds, sizes in
    bytes; a missing figure is None."""
    rows = []
    for run in comparison.runs:
        worst = run.check.worst
        row: dict[str, Any] = {
            "id": run.id,
            "model": run.workload.model,
            "mode": run.workload.mode,
            "batch": run.workload.batch,
            "ranks": run.workload.ranks,
            "input": "x".join(map(str, run.workload.inputs[0].shape[1:])),
            "level": run.level,
            "verdict": run.check.verdict,
            "reason": run.check.reason,
            "worst_tensor": worst.name if worst else None,
            "error": worst.error if worst else None,
            "error_limit": worst.limit if worst else None,
            "rounds": len(run.blocks),
            "contended_share": run.conditions.contended_share,
            "threads": run.conditions.threads,
            "payback_iterations": run.payback_iterations,
        }
        row |= _interval_columns("time", run.time)
        row |= {
            "ratio": run.ratio.value if run.ratio else None,
            "ratio_low": run.ratio.low if run.ratio else None,
            "ratio_high": run.ratio.high if run.ratio else None,
            "word": run.ratio.word if run.ratio else None,
        }
        rate = throughput(run)
        row |= {
            "throughput": rate.value if rate else None,
            "throughput_unit": rate.unit if rate else None,
        }
        row |= dict.fromkeys(("p50", "p95", "p99"))
        for quantity in (*percentiles(run), *run.memory, *run.life):
            row[quantity.name] = quantity.value
        rows.append(row | _device_columns(run))
    return rows


def _device_columns(run: Run) -> dict[str, Any]:
    """Where and how it ran, then the GPU's figures; the same columns for every run."""
    states = [block.gpu for block in run.blocks if block.gpu is not None]
    told = {
        "device": run.workload.device,
        "precision": run.workload.precision,
        "cache": run.conditions.cache,
        "throttled_share": run.conditions.throttled_share,
        "clock_mhz": median(state.clock_mhz for state in states) if states else None,
        "temperature_c": max((state.temperature_c for state in states), default=None),
        "other_processes": max((state.other_processes for state in states), default=None),
    }
    return {name: told.get(name, run.quantity(name)) for name in DEVICE_COLUMNS}


def to_csv_text(comparison: Comparison) -> str:
    """The rows of `to_rows` as CSV."""
    rows = to_rows(comparison)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return to_csv(rows, sorted(columns, key=DEVICE_COLUMNS.__contains__))


def _interval_columns(name: str, quantity: Quantity | None) -> dict[str, float | None]:
    return {
        name: quantity.value if quantity else None,
        f"{name}_low": quantity.low if quantity else None,
        f"{name}_high": quantity.high if quantity else None,
    }


def _read(file: Path) -> dict[str, Any]:
    data = read_json(file, dict[str, Any])
    version = data.get("format_version")
    if not isinstance(version, int):
        raise GolowError(f"{file} is not a golow record: it has no format version")
    if version > FORMAT_VERSION:
        raise GolowError(
            f"{file} has format version {version}; "
            f"this golow reads versions up to {FORMAT_VERSION}",
            "a newer golow wrote it: pip install --upgrade golow",
        )
    while version < FORMAT_VERSION:
        if version not in UPGRADES:
            raise GolowError(f"{file} has format version {version}, which golow no longer reads")
        data = UPGRADES[version](data)
        version += 1
        data["format_version"] = version
    return data


def with_errors(run: dict[str, Any]) -> dict[str, Any]:
    """Restore NaN, which JSON lacks: an error of a tensor that is not finite is null there."""
    checked = run.get("check")
    if isinstance(checked, dict):
        tensors = checked.get("tensors")
        for tensor in (checked.get("worst"), *(tensors if isinstance(tensors, list) else ())):
            for name in ("error", "eager_error") if isinstance(tensor, dict) else ():
                if tensor.get(name, 0.0) is None:
                    tensor[name] = math.nan
    return run


def _plain(value: object) -> str:
    return msgspec.json.encode(value).decode()
