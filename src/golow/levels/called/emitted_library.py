"""The C++ project of a network, built and loaded into this process: a client of its header."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

from golow.levels.called.called_module import CalledModule
from golow.levels.called.emission import project
from golow.levels.called.project_building import build_project
from golow.levels.compiler import find_compiler
from golow.levels.direct.onednn.bindings.processor import processor
from golow.records.errors import GolowError
from golow.storage.cache import building_sealed, discard_damaged, is_sealed
from golow.storage.scratch import scratch_folder

NAME = "network"  # of every project that is built here: functions are named after it


def built_library(called: CalledModule, cache: Path, notes: list[str]) -> EmittedLibrary:
    """Write the project and build it, unless the cache has the same. Raises `GolowError` for a plan
    that cannot be written, and if the build fails."""
    level, made = called.target.level, project(called, NAME)
    digest = hashlib.sha256(f"{find_compiler()} {processor()} {level}".encode())
    for name, text in made.texts().items():
        digest.update(f"\0{name}\0{text}".encode())
    folder = cache / "emitted" / digest.hexdigest()[:32]
    discard_damaged(folder, notes)
    if not is_sealed(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with building_sealed(folder, "building-") as work, scratch_folder() as scratch:
            made.write(scratch / NAME)
            build_project(scratch / NAME, level)
            shutil.copy(scratch / NAME / "build" / f"lib{NAME}.so", work)
    return EmittedLibrary(folder / f"lib{NAME}.so", NAME)


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
        ends = c_void_p, c_int64, POINTER(c_void_p), POINTER(c_void_p)
        self.run = function("run", *ends)
        # Functions of projects for a GPU alone.
        there = hasattr(loaded, f"{name}_enqueue")
        self.enqueue = function("enqueue", *ends, c_void_p) if there else None
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
        """Run on inputs at these addresses of the host, and write the outputs to those. Raises
        `GolowError` for a batch that no plan takes."""
        ends = _pointers(inputs), _pointers(outputs)
        self._library.require(self._library.run(self._context, batch, *ends))

    def enqueue(
        self, batch: int, inputs: Sequence[int], outputs: Sequence[int], stream: int
    ) -> None:
        """Enqueue the same on a stream, at addresses of the GPU. Raises TypeError for a network on
        the CPU."""
        if self._library.enqueue is None:
            raise TypeError("the network runs on the CPU")
        ends = _pointers(inputs), _pointers(outputs)
        self._library.require(self._library.enqueue(self._context, batch, *ends, stream))

    def close(self) -> None:
        """Release the memory."""
        self._library.context_destroy(self._context)
        self._library.destroy(self._network)
        self._context, self._network = c_void_p(), c_void_p()


def _pointers(addresses: Sequence[int]) -> Any:
    return (c_void_p * len(addresses))(*addresses)
