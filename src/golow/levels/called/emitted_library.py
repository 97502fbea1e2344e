"""The C++ project of a network, built and loaded into this process: a client of its header."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

from golow.levels.called.called_module import CalledModule
from golow.levels.called.emission import network_of
from golow.levels.compiler import find_compiler
from golow.levels.direct.onednn.bindings.library import find_library
from golow.levels.direct.onednn.bindings.processor import processor
from golow.levels.direct.onednn.emit.project import project_texts, write_project
from golow.records.errors import GolowError
from golow.storage.cache import building_sealed, discard_damaged, is_sealed
from golow.storage.scratch import scratch_folder

NAME = "network"  # of every project that is built here: functions are named after it
LIMIT = 900.0  # seconds that a build may take


def missing() -> tuple[str, str] | None:
    """What building needs and this machine lacks, and how to get it; None if nothing."""
    if find_compiler() is None:
        return "there is no C++ compiler", "apt-get install g++"
    if shutil.which("cmake") is None:
        return "there is no cmake", "apt-get install cmake"
    library = find_library()
    if library is None or not (library.parents[1] / "include" / "dnnl.h").exists():
        return "oneDNN's header is not installed", "pip install onednn-devel-cpu-gomp"
    return None


def built_library(called: CalledModule, cache: Path, notes: list[str]) -> EmittedLibrary:
    """Write the project and build it, unless the cache has the same. Raises `GolowError` for a plan
    that cannot be written, and if the build fails."""
    network = network_of(called, NAME)
    compiler = find_compiler()
    digest = hashlib.sha256(f"{compiler} {processor()}".encode())
    for name, text in project_texts(network).items():
        digest.update(f"\0{name}\0{text}".encode())
    folder = cache / "emitted" / digest.hexdigest()[:32]
    discard_damaged(folder, notes)
    if not is_sealed(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with building_sealed(folder, "building-") as work, scratch_folder() as scratch:
            write_project(network, scratch / NAME)
            build_project(scratch / NAME)
            shutil.copy(scratch / NAME / "build" / f"lib{NAME}.so", work)
    return EmittedLibrary(folder / f"lib{NAME}.so", NAME)


def build_project(folder: Path) -> None:
    """Configure and build a project in its folder. Raises `GolowError` if that fails."""
    library = find_library()
    prefix = library.parents[1] if library is not None else "/usr"
    build = str(folder / "build")
    configure = ["cmake", "-S", str(folder), "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}"]
    jobs = str(len(os.sched_getaffinity(0)))
    for command in (configure, ["cmake", "--build", build, "--parallel", jobs]):
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=LIMIT,
        )  # fmt: skip
        if answer.returncode:
            said = "\n".join((answer.stdout + answer.stderr).splitlines()[-20:])
            raise GolowError(f"cmake ended with status {answer.returncode}:\n{said}")


class EmittedLibrary:
    """The library of a project; name: that of its network."""

    def __init__(self, path: Path, name: str) -> None:
        loaded = ctypes.CDLL(str(path))

        def function(what: str, *types: Any, result: Any = c_int) -> Any:
            found = getattr(loaded, f"{name}_{what}")
            found.argtypes, found.restype = types, result
            return found

        self.create = function("create", c_char_p, POINTER(c_void_p))
        self.destroy = function("destroy", c_void_p, result=None)
        self.context_create = function("context_create", c_void_p, POINTER(c_void_p))
        self.context_destroy = function("context_destroy", c_void_p, result=None)
        self.run = function("run", c_void_p, c_int64, POINTER(c_void_p), POINTER(c_void_p))
        self.error = function("error", result=c_char_p)

    def require(self, status: int) -> None:
        """Raise `GolowError` with the library's words unless a call succeeded."""
        if status:
            raise GolowError(self.error().decode(errors="replace"))


class EmittedNetwork:
    """A network with the weights of a file, and one context."""

    def __init__(self, library: EmittedLibrary, weights: Path) -> None:
        self._library, self._network, self._context = library, c_void_p(), c_void_p()
        library.require(library.create(str(weights).encode(), byref(self._network)))
        library.require(library.context_create(self._network, byref(self._context)))

    def run(self, batch: int, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Run on inputs at these addresses, and write the outputs to those. Raises `GolowError` for
        a batch that no plan takes."""
        given, made = (c_void_p * len(inputs))(*inputs), (c_void_p * len(outputs))(*outputs)
        self._library.require(self._library.run(self._context, batch, given, made))

    def close(self) -> None:
        """Give the memory back."""
        self._library.context_destroy(self._context)
        self._library.destroy(self._network)
        self._context, self._network = c_void_p(), c_void_p()
