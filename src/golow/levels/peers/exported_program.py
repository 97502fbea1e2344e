"""The parent's part of the levels outside PyTorch: exports a model once and caches it.

The export runs in a separate process (``export_process.py``), so that none of it stays in the
parent's memory and a crash of the exporter is a recorded failure.
"""

from __future__ import annotations

import hashlib
import os
import platform
import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec

from golow.levels.level import IDLE_NUMPY, Launch, python_worker
from golow.levels.probe import Probe
from golow.records.errors import GolowError, Unsupported
from golow.records.record import Record
from golow.storage.cache import SEAL, building_sealed, discard_damaged, is_sealed
from golow.storage.files import write_whole
from golow.workload.bundle import Bundle
from golow.workload.import_path import module_command

VARIABLE = "GOLOW_EXPORTED"  # tells the worker the folder
ENGINES = "GOLOW_TENSORRT"  # tells a worker of TensorRT the folder of its engine
REPORT = "export.json"
OF_GOLOW = (REPORT, SEAL)  # files that the exporter did not make
LIMIT = 1800.0  # seconds after which an exporter is considered hung
LOG_LINES = 20
HERE = Path(__file__).parent


class ExportReport(Record, frozen=True, kw_only=True):
    """The exporting process's report: seconds of the export alone, or why there is none."""

    digest: str
    seconds: float = 0.0
    unsupported: str = ""
    failed: str = ""


def probe(packages: tuple[str, ...], extra: str) -> Probe:
    """torch and these packages must be installed; the probe imports none of them."""
    missing = [name for name in ("torch", *packages) if find_spec(name) is None]
    if not missing:
        return Probe(True)
    verb = "is" if len(missing) == 1 else "are"
    return Probe(
        False, f"{' and '.join(missing)} {verb} not installed", f"pip install 'golow[{extra}]'"
    )


def probe_distributions(distributions: tuple[str, ...], extra: str) -> Probe:
    """These distributions must be installed; none of them is imported."""
    for name in distributions:
        try:
            version(name)
        except PackageNotFoundError:
            return Probe(False, f"{name} is not installed", f"pip install 'golow[{extra}]'")
    return Probe(True)


def require_float32(bundle: Bundle, level: str) -> None:
    """Raise `Unsupported` for half precision: models are exported in float32."""
    precision = bundle.workload.precision
    if precision in ("bf16", "fp16"):
        reason = f"it exports the model in float32, not in {precision}"
        raise Unsupported(level, f"{reason}; use --precision default, tf32 or ieee")


class Exported(NamedTuple):
    """A folder with an exported model. seconds: of its export; bytes: of its files. notes: what of
    the cache was damaged."""

    folder: Path
    seconds: float
    cached: bool
    bytes: int
    notes: tuple[str, ...]


def prepare(
    bundle: Bundle,
    level: str,
    packages: tuple[str, ...],
    cache: Path,
    machine: str = "",
    *,
    variant: str = "",
    exporter: str = "",
    limit: float = LIMIT,
) -> Launch:
    """The launch of the worker of the level's variant on its exported model; see `exported`, whose
    exporter is the level's own module unless it is given. Raises `Unsupported` for inputs that
    NumPy's arrays, which the runtimes take, cannot hold."""
    if any(form.dtype == "bfloat16" for form in bundle.workload.inputs):
        raise Unsupported(level, "NumPy has no bfloat16, in which its inputs are")
    module = f"golow.levels.peers.{level}"
    found = exported(bundle, level, exporter or module, packages, cache, machine, limit)
    return Launch(
        python_worker(module, variant),
        environment={VARIABLE: str(found.folder), **IDLE_NUMPY},
        build_seconds=found.seconds,
        cached=found.cached,
        artifact_bytes=found.bytes,
        notes=found.notes,
    )


def exported(
    bundle: Bundle,
    level: str,
    exporter: str,
    packages: tuple[str, ...],
    cache: Path,
    machine: str = "",
    limit: float = LIMIT,
) -> Exported:
    """The model as ``exporter`` exports it for that level, from the cache or new.

    exporter: a module, whose function ``export`` does it, or ``module:function``. limit: seconds
    that it may take. packages: those whose versions the exported model depends on. machine: what of
    this machine it depends on. Raises `Unsupported` if the exporter cannot express the model, and
    `GolowError` if it fails for another reason.
    """
    folder = cache / level / _key(bundle, exporter, packages, machine)
    notes: list[str] = []
    discard_damaged(folder, notes)
    report = read_report(folder) if is_sealed(folder) else None
    cached = report is not None
    if report is None:
        report = _export(bundle, level, exporter, folder, limit)
    size = sum(f.stat().st_size for f in folder.iterdir() if f.name not in OF_GOLOW)
    return Exported(folder, report.seconds, cached, size, tuple(notes))


def instruction_sets() -> str:
    """Instruction sets of this machine's CPU on which compiled code depends, as text."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if line.startswith("flags")), platform.machine())


def read_report(folder: Path) -> ExportReport | None:
    """The report of a finished export; None if the folder has none."""
    try:
        return msgspec.json.decode((folder / REPORT).read_bytes(), type=ExportReport)
    except (OSError, msgspec.MsgspecError):
        return None


def _key(bundle: Bundle, exporter: str, packages: tuple[str, ...], machine: str) -> str:
    """Hash of everything that the exported model depends on."""
    digest = hashlib.sha256(bundle.workload.digest.encode())
    for name in ("torch", *packages):
        digest.update(f"\0{name} {version_of(name)}".encode())
    digest.update(machine.encode())
    # The code that exports: another option there makes another model.
    digest.update(exporter.encode())
    spec = find_spec(exporter.partition(":")[0])
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(exporter)
    shared = ("captured_module.py", "export_process.py", "onnx_export.py")
    for file in (Path(spec.origin), *(HERE / name for name in shared)):
        digest.update(b"\0" + file.read_bytes())
    return digest.hexdigest()[:32]


def version_of(package: str) -> str:
    """The installed version of the package, if it has metadata."""
    try:
        return version(package)
    except PackageNotFoundError:  # it can be imported, but has no metadata
        return "unknown"


def _export(bundle: Bundle, level: str, exporter: str, folder: Path, limit: float) -> ExportReport:
    """Export to a temporary folder beside the finished ones, then rename it: a killed export never
    looks finished."""
    with building_sealed(folder, "exporting-") as work:
        log = work / "log"
        status = _run(bundle, level, exporter, work, log, limit)
        report = read_report(work)
        if report is not None and report.unsupported:
            raise Unsupported(level, report.unsupported)
        if report is None or report.failed:
            why = report.failed if report else f"it ended with status {status}"
            raise _failure(level, why, log, folder.parent / "logs" / f"{folder.name}.log")
        log.unlink()
    return report


def _run(bundle: Bundle, level: str, exporter: str, made: Path, log: Path, limit: float) -> int:
    """Run the exporter and return its exit status, negative if a signal ended it."""
    # Not at the top: workers import this file, too, and would pay for a module they do not need.
    from golow.worker.process import worker_environment

    command = module_command("golow.levels.peers.export_process", exporter)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, str(bundle.folder), str(made)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=worker_environment(sys.executable, bundle.workload.threads, {}),
            # Ctrl-C reaches only the parent, which then ends the exporter and its compilers.
            process_group=0,
        )
    try:
        return process.wait(limit)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            reason = f"the export for {level} took longer than {limit:.0f} s"
            raise GolowError(reason) from error
        raise


def _failure(level: str, why: str, log: Path, kept: Path) -> GolowError:
    text = log.read_text(errors="replace")
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_whole(kept, text.encode())
    end = "\n".join(text.splitlines()[-LOG_LINES:])
    return GolowError(f"the export for {level} failed: {why}\n{end}", f"its log is in {kept}.")
