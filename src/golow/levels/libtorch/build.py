"""Graph -> program: emit, compile, link, and keep the result in a cache by its content.

The worker's own file is compiled once for a torch and a compiler; the network's file once for a
network. Both jobs run side by side, as argument lists, never through a shell.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Event
from typing import NamedTuple

import msgspec

from golow.files import building, move_into_place, write_whole
from golow.levels.libtorch.toolchain import FLAGS, Toolchain, find_toolchain, probe
from golow.lower.graph import Graph
from golow.record import Device, GolowError

__all__ = ["Artifact", "build", "probe"]

SOURCES = Path(__file__).parent / "sources"
LOG_LINES = 20
LOOK_SECONDS = 0.1  # between two looks whether a compiler is to end


class Artifact(NamedTuple):
    """A program that is ready to run; build_seconds is what its build took when it was made."""

    program: Path
    build_seconds: float
    cached: bool
    bytes: int


def build(graph: Graph, cache: Path, device: Device = "cpu", products: str = "float32") -> Artifact:
    """The program of that graph for the device, from the cache or newly compiled. products: see
    `golow.levels.libtorch.emit.emit_program`.

    Raises `golow.record.Unsupported` where a node has no C++ form, and `GolowError` where there
    is no compiler, no torch for that device, or where the compiler fails.
    """
    # Emitting asks torch for the operators' schemas; the probe, in this module, must not.
    from golow.levels.libtorch.emit import emit_program, without_comments

    tools = find_toolchain(device)
    code = emit_program(graph, device, products)
    home = cache / "libtorch"
    folder = home / _key(tools, without_comments(code))
    if found := _find_artifact(folder):
        return found
    start = time.perf_counter()
    with building(folder, "building-", lambda: _find_artifact(folder) is not None) as work:
        _compile(tools, code, work, home)
        seconds = time.perf_counter() - start
        (work / "build.json").write_bytes(msgspec.json.encode({"seconds": seconds}))
    made = _find_artifact(folder)
    if made is None:
        raise GolowError(f"{folder} was built, but holds no program that can be executed")
    return made._replace(cached=False)


def _find_artifact(folder: Path) -> Artifact | None:
    """The artifact in that folder; None unless it is whole."""
    program = folder / "program"
    try:
        seconds = msgspec.json.decode((folder / "build.json").read_bytes(), type=dict[str, float])
        size = program.stat().st_size
    except (OSError, msgspec.MsgspecError):
        return None
    if size == 0 or not program.is_file() or not os.access(program, os.X_OK):
        return None
    return Artifact(program, seconds.get("seconds", 0.0), True, size)


def _key(tools: Toolchain, code: str) -> str:
    """Name of everything that the compiled code depends on."""
    digest = hashlib.sha256(code.encode())
    parts = [tools.torch_version, str(tools.torch), tools.compiler_version, *tools.compiler]
    for part in [*parts, f"cuda {tools.cuda}"] if tools.cuda else parts:
        digest.update(b"\0" + part.encode())
    digest.update(" ".join((*FLAGS, str(tools.standard))).encode())
    for path in (SOURCES / "worker.cpp", *sorted(SOURCES.glob("*.h"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:32]


# ---------------------------------------------------------------- compiling


def _compile(tools: Toolchain, code: str, work: Path, home: Path) -> None:
    """Compile and link in the folder ``work``; the worker's object stays for later programs."""
    source = work / "program.cpp"
    source.write_text(code, encoding="utf-8")
    # The worker's object is the same for every device: only what it is linked with differs.
    worker = home / f"worker-{_key(tools._replace(cuda=''), 'worker')}.o"
    jobs = {"program": tools.compile_command(source, work / "program.o", SOURCES)}
    if not worker.is_file():
        jobs["worker"] = tools.compile_command(SOURCES / "worker.cpp", work / "worker.o", SOURCES)
    _run_side_by_side(jobs, work, home)
    if "worker" in jobs:
        move_into_place(work / "worker.o", worker)
    objects = [work / "program.o", worker]
    _run_side_by_side({"link": tools.link_command(objects, work / "program")}, work, home)
    for leftover in (work / "program.o", *work.glob("*.log")):
        leftover.unlink()


def _run_side_by_side(jobs: dict[str, list[str]], work: Path, home: Path) -> None:
    """Run the compilers at the same time; all of them end when one fails, and on Ctrl-C."""
    ending = Event()
    with ThreadPoolExecutor(len(jobs)) as pool:
        try:
            names = {
                pool.submit(_run, command, work / f"{name}.log", ending): name
                for name, command in jobs.items()
            }
            for future in as_completed(names):
                if status := future.result():
                    raise _failure(names[future], status, work / f"{names[future]}.log", home)
        finally:
            ending.set()


def _run(command: list[str], log: Path, ending: Event) -> int:
    """The compiler's status; it is killed once it is to end. In a thread, where Ctrl-C cannot fall
    between the start of a process and the knowledge of it."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            process_group=0,  # which Ctrl-C does not reach
        )
    while True:
        try:
            return process.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            if ending.is_set():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _failure(name: str, status: int, log: Path, home: Path) -> GolowError:
    text = log.read_text(errors="replace")
    kept = home / "logs" / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.log"
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_whole(kept, text.encode())
    end = "\n".join(text.splitlines()[-LOG_LINES:])
    return GolowError(
        f"the C++ compiler ended with status {status} on {name}:\n{end}",
        f"its whole output is in {kept}.",
    )
