"""What the levels outside PyTorch share in the parent: a model exported once and kept in a cache.

The export runs in a process of its own (``export_process.py``), so that the parent keeps nothing
of it in memory and a crash of the exporter is a recorded failure.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import msgspec

from golow.files import building, write_whole
from golow.levels.level import IDLE_NUMPY, Launch, python_worker
from golow.levels.probe import Probe
from golow.record import GolowError, Record, Unsupported
from golow.workload.bundle import Bundle

VARIABLE = "GOLOW_EXPORTED"  # names the folder to the worker
REPORT = "export.json"
LIMIT = 1800.0  # seconds after which an exporter is taken to hang
LOG_LINES = 20
HERE = Path(__file__).parent


class ExportReport(Record, frozen=True, kw_only=True):
    """What the exporting process says: seconds of the export alone, or why there is none."""

    digest: str
    seconds: float = 0.0
    unsupported: str = ""
    failed: str = ""


def probe(packages: tuple[str, ...], extra: str) -> Probe:
    """torch and these packages must be installed; none of them is imported for the answer."""
    missing = [name for name in ("torch", *packages) if find_spec(name) is None]
    if not missing:
        return Probe(True)
    verb = "is" if len(missing) == 1 else "are"
    return Probe(
        False, f"{' and '.join(missing)} {verb} not installed", f"pip install 'golow[{extra}]'"
    )


def prepare(bundle: Bundle, level: str, packages: tuple[str, ...], cache: Path) -> Launch:
    """The launch of the level's worker on its exported model, from the cache or newly exported.

    packages are those whose versions the exported model depends on. Raises
    `golow.record.Unsupported` where the exporter cannot express the model, and `GolowError` where
    it fails otherwise.
    """
    home = cache / level
    folder = home / _key(bundle, level, packages)
    report = read_report(folder)
    cached = report is not None
    if report is None:
        report = _export(bundle, level, folder)
    return Launch(
        python_worker(f"golow.levels.peers.{level}", ""),
        environment={VARIABLE: str(folder), **IDLE_NUMPY},
        build_seconds=report.seconds,
        cached=cached,
        artifact_bytes=sum(f.stat().st_size for f in folder.iterdir() if f.name != REPORT),
    )


def read_report(folder: Path) -> ExportReport | None:
    """The report of a finished export; None where there is none in that folder."""
    try:
        return msgspec.json.decode((folder / REPORT).read_bytes(), type=ExportReport)
    except (OSError, msgspec.MsgspecError):
        return None


def _key(bundle: Bundle, level: str, packages: tuple[str, ...]) -> str:
    """Name of everything that the exported model depends on."""
    digest = hashlib.sha256(bundle.workload.digest.encode())
    for name in ("torch", *packages):
        digest.update(f"\0{name} {_version(name)}".encode())
    # How it is exported: an option that changes here makes another model.
    for file in (HERE / f"{level}.py", HERE / "export_process.py"):
        digest.update(b"\0" + file.read_bytes())
    return digest.hexdigest()[:32]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # it can be imported, but does not say what it is
        return "unknown"


def _export(bundle: Bundle, level: str, folder: Path) -> ExportReport:
    """Export beside the finished folders and rename: what a killed export leaves never looks
    finished."""
    with building(folder, "exporting-", lambda: read_report(folder) is not None) as work:
        log = work / "log"
        status = _run(bundle, level, work, log)
        report = read_report(work)
        if report is not None and report.unsupported:
            raise Unsupported(level, report.unsupported)
        if report is None or report.failed:
            why = report.failed if report else f"it ended with status {status}"
            raise _failure(level, why, log, folder.parent / "logs" / f"{folder.name}.log")
        log.unlink()
    return report


def _run(bundle: Bundle, level: str, made: Path, log: Path) -> int:
    """Run the exporter to its end; its status, which is negative where a signal ended it."""
    # Not above: workers import this file too, and what they do not need would count as theirs.
    from golow.worker.process import worker_environment

    command = [sys.executable, "-m", "golow.levels.peers.export_process", level]
    try:
        with log.open("wb") as output:
            done = subprocess.run(
                [*command, str(bundle.folder), str(made)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=worker_environment(sys.executable, bundle.workload.threads, {}),
                # Ctrl-C reaches the parent alone, which then ends the exporter.
                process_group=0,
                check=False,
                timeout=LIMIT,
            )
    except subprocess.TimeoutExpired as error:
        raise GolowError(f"the export for {level} was not done after {LIMIT:.0f} s") from error
    return done.returncode


def _failure(level: str, why: str, log: Path, kept: Path) -> GolowError:
    text = log.read_text(errors="replace")
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_whole(kept, text.encode())
    end = "\n".join(text.splitlines()[-LOG_LINES:])
    return GolowError(f"the export for {level} failed: {why}\n{end}", f"its log is in {kept}.")
