"""Builds the program of a graph: emits, compiles, links, and caches the result by its content.

The frame, golow's file around the network (the worker, or a library for the caller's process), is
compiled once per torch and compiler, the network's file once per network. Both jobs run in
parallel, as argument lists, never through a shell.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from golow.levels.libtorch.toolchain import FLAGS, Toolchain, find_toolchain, probe
from golow.lower.ir.graph import Graph
from golow.records.errors import GolowError
from golow.records.workload import Device
from golow.storage.cache import building_sealed, discard_damaged, is_sealed
from golow.storage.files import write_whole
from golow.storage.interrupts import uninterrupted

__all__ = ["Artifact", "build", "build_library", "probe"]

SOURCES = Path(__file__).parent / "sources"
LOG_LINES = 20
LOOK_SECONDS = 0.02  # between two checks whether a compiler is done


class Artifact(NamedTuple):
    """A program that is ready to run. build_seconds: how long its build took when it was made.
    notes: damaged entries of the cache."""

    program: Path
    build_seconds: float
    cached: bool
    bytes: int
    notes: tuple[str, ...] = ()


def build(graph: Graph, cache: Path, device: Device = "cpu", products: str = "float32") -> Artifact:
    """The program of that graph for the device, from the cache or newly compiled. products: see
    `golow.levels.libtorch.emit.emit_program`.

    Raises `Unsupported` if a node has no C++ form, and `GolowError` if there is
    no compiler or no torch for that device, or if the compiler fails.
    """
    # Emitting imports torch for the operators' schemas; the probe, in this module, must not.
    from golow.levels.libtorch.emit import emit_program, without_comments

    tools = find_toolchain(device)
    code = emit_program(graph, device, products)
    return _built(tools, code, without_comments(code), cache / "libtorch")


def build_from(
    source: Path, cache: Path, device: Device = "cpu", system: tuple[Path, ...] = ()
) -> Artifact:
    """The worker with the program in that file, which may include the headers beside it; like
    `build`. system: folders of headers that are not golow's, such as CUDA's."""
    tools = find_toolchain(device)._replace(headers=(source.parent, *system))
    beside = (file.read_text(encoding="utf-8") for file in sorted(source.parent.glob("*.h")))
    code = source.read_text(encoding="utf-8")
    return _built(tools, code, "\0".join((code, *beside)), cache / "libtorch")


def build_library(graph: Graph, cache: Path, device: Device = "cpu") -> Artifact:
    """The inference program of that graph as a library of PyTorch's operators, see
    ``sources/library.cpp``; like `build`."""
    from golow.levels.libtorch.emit import emit_program, without_comments

    tools = find_toolchain(device)
    shared = tools._replace(compiler=(*tools.compiler, "-fPIC", "-shared"))
    code = emit_program(graph, device)
    return _built(shared, code, without_comments(code), cache / "libtorch", "library")


def _built(
    tools: Toolchain, code: str, identity: str, home: Path, frame: str = "worker"
) -> Artifact:
    """The program with that code. identity: the text that states whether two programs are the
    same."""
    folder = home / _key(tools, identity, frame)
    notes: list[str] = []
    discard_damaged(folder, notes)
    if found := _find_artifact(folder):
        return found
    start = time.perf_counter()
    with building_sealed(folder, "building-") as work:
        _compile(tools, code, work, home, notes, frame)
        seconds = time.perf_counter() - start
        (work / "build.json").write_bytes(msgspec.json.encode({"seconds": seconds}))
    made = _find_artifact(folder)
    if made is None:
        raise GolowError(f"{folder} has changed since it was built")
    return made._replace(cached=False, notes=tuple(notes))


def _find_artifact(folder: Path) -> Artifact | None:
    """The artifact in that folder; None unless it is as it was built."""
    program = folder / "program"
    if not is_sealed(folder):
        return None
    program.chmod(0o755)  # a copied cache may have lost it
    seconds = msgspec.json.decode((folder / "build.json").read_bytes(), type=dict[str, float])
    return Artifact(program, seconds["seconds"], True, program.stat().st_size)


def _key(tools: Toolchain, code: str, frame: str = "worker") -> str:
    """Hash of everything that the compiled code depends on."""
    digest = hashlib.sha256(code.encode())
    parts = [tools.torch_version, str(tools.torch), tools.compiler_version, *tools.compiler]
    for part in [*parts, f"cuda {tools.cuda}"] if tools.cuda else parts:
        digest.update(b"\0" + part.encode())
    digest.update(" ".join((*FLAGS, str(tools.standard))).encode())
    for path in (SOURCES / f"{frame}.cpp", *sorted(SOURCES.glob("*.h"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:32]


# ---------------------------------------------------------------- compiling


def _compile(
    tools: Toolchain, code: str, work: Path, home: Path, notes: list[str], frame: str
) -> None:
    """Compile and link in the folder ``work``; the frame's object is kept for later programs."""
    source = work / "program.cpp"
    source.write_text(code, encoding="utf-8")
    # The frame's object is the same for every device; only the libraries it is linked with differ.
    around = home / f"{frame}-{_key(tools._replace(cuda='', headers=()), frame, frame)}"
    discard_damaged(around, notes)
    folders, built = (SOURCES, *tools.headers), f"{frame}.o"
    jobs = {"program": tools.compile_command(source, work / "program.o", *folders)}
    if not is_sealed(around):
        jobs[frame] = tools.compile_command(SOURCES / f"{frame}.cpp", work / built, SOURCES)
    _run_side_by_side(jobs, work, home)
    if frame in jobs:
        with building_sealed(around, "building-") as made:
            (work / built).rename(made / built)
    objects = [work / "program.o", around / built]
    _run_side_by_side({"link": tools.link_command(objects, work / "program")}, work, home)
    for leftover in (work / "program.o", *work.glob("*.log")):
        leftover.unlink()


def _run_side_by_side(jobs: dict[str, list[str]], work: Path, home: Path) -> None:
    """Run the compilers in parallel; all of them are stopped when one fails, and on Ctrl-C.

    Ctrl-C strikes only between two looks: not after a process starts and before its id is known,
    and not in one of Python's own locks, which would stay taken.
    """
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in jobs.items():
            with uninterrupted():
                running[name] = _start(command, work / f"{name}.log")
        while running:
            with uninterrupted():
                ended = {name: process.poll() for name, process in running.items()}
            for name, status in ended.items():
                if status is not None:
                    del running[name]
                if status:
                    raise _failure(name, status, work / f"{name}.log", home)
            time.sleep(LOOK_SECONDS)
    finally:
        for process in running.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            process_group=0,  # Ctrl-C does not reach it
        )


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
