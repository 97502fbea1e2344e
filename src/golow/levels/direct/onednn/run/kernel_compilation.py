"""Compiles the kernels of a plan, into golow's cache by their content, and loads them.

The kernels of a plan are one library, and a long one, which no plan changes, is one by itself.
Their threads are those of oneDNN: kernels get the functions of the OpenMP library that oneDNN has
loaded, so that no second pool exists, whatever the compiler.
"""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import POINTER, c_long, c_void_p
from functools import cache
from pathlib import Path

from golow.levels.compiler import INSTALL_COMPILER, NO_COMPILER, Compiler
from golow.levels.direct.onednn.bindings.library import library
from golow.levels.direct.onednn.bindings.processor import processor
from golow.levels.direct.onednn.kernels import PLAYER, PRELUDE
from golow.levels.direct.onednn.run.compiled_calls import Player
from golow.records.errors import GolowError
from golow.storage.cache import building_sealed, discard_damaged, is_sealed

# No option that changes results: NaN, infinities and the order of sums stay. That comparisons do
# not trap and functions set no errno lets loops become vectors.
FLAGS = (
    "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd",
    "-ffp-contract=fast", "-fno-exceptions", "-fno-rtti", "-fPIC", "-shared", "-w",
)  # fmt: skip
POOL = "libgomp.so.1"
LIBRARY, SOURCE = "kernels.so", "kernels.cpp"
NO_KERNELS = (
    "without a C++ compiler, functions of elements, softmax and copies run in NumPy, on one "
    "thread, and each call costs about a microsecond more"
)
LONG = 6000  # characters: takes a second or two to compile, once for all plans
LIMIT = 300.0  # seconds that a compiler may take

Function = Callable[..., None]


class Pool(ctypes.Structure):
    """Pool in functions.h."""

    _fields_ = [("parallel", c_void_p), ("thread", c_void_p), ("threads", c_void_p)]


class MissingKernel(GolowError):
    """A kernel must be compiled, and there is no compiler."""


class Workshop:
    """A compiler and the folder of what it made. notes: damaged entries of the cache.

    compiler: None where there is none. shipped: libraries that were compiled elsewhere for a
    processor like this one, by the digests of their sources.
    """

    def __init__(
        self, compiler: Compiler | None, cache: Path, shipped: Mapping[str, Path] | None = None
    ) -> None:
        self.compiler, self.cache = compiler, cache
        self._shipped = {} if shipped is None else shipped
        self.notes: list[str] = []

    def functions(self, codes: Sequence[str]) -> dict[str, Function]:
        """Return each code as a function: (pointers, numbers, pool). Raises `GolowError` if the
        compiler fails."""
        found: dict[str, Function] = {}
        for together in _grouped(codes):
            found |= self._loaded(together)
        return found

    def compiled(self, codes: Sequence[str]) -> dict[str, tuple[str, Path]]:
        """Return what `functions` and `player` load: by its digest, each source and its library."""
        return {digest_of(source): (source, self._library(source)) for source in sources(codes)}

    def _loaded(self, codes: Sequence[str]) -> dict[str, Function]:
        loaded = ctypes.CDLL(str(self._library(source_of(codes))))
        found: dict[str, Function] = {}
        for index, code in enumerate(codes):
            function = getattr(loaded, f"kernel_{index}")
            function.restype = None
            function.argtypes = (POINTER(c_void_p), POINTER(c_long), POINTER(Pool))
            found[code] = function
        return found

    def player(self) -> Player:
        """Return the functions of compiled_calls.cpp. Raises `GolowError` if the compiler fails."""
        loaded = ctypes.CDLL(str(self._library(_player())))
        loaded.play.argtypes = (c_void_p, c_long)
        return Player(loaded.play, loaded.play_at)

    def _library(self, source: str) -> Path:
        if found := self._shipped.get(digest_of(source)):
            return found
        if self.compiler is None:
            raise MissingKernel(NO_COMPILER, INSTALL_COMPILER)
        return self._built(source, self.compiler) / LIBRARY

    def _built(self, source: str, compiler: Compiler) -> Path:
        key = "\0".join((source, compiler.version, *compiler.command, *FLAGS, processor()))
        folder = self.cache / "kernels" / hashlib.sha256(key.encode()).hexdigest()[:32]
        discard_damaged(folder, self.notes)
        if not is_sealed(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with building_sealed(folder, "building-") as work:
                _compile(source, compiler, work)
        return folder


def _compile(source: str, compiler: Compiler, work: Path) -> None:
    (work / SOURCE).write_text(source, encoding="utf-8")
    command = [*compiler.command, *FLAGS, str(work / SOURCE), "-o", str(work / LIBRARY)]
    answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=LIMIT,
        )  # fmt: skip
    if answer.returncode:
        said = "\n".join(answer.stderr.splitlines()[:20])
        raise GolowError(
            f"the compiler ended with status {answer.returncode} on generated kernels:\n{said}",
            "set CXX to another compiler.",
        )


def sources(codes: Sequence[str]) -> list[str]:
    """Return the sources of the libraries that a plan of these kernels loads."""
    return [*(source_of(together) for together in _grouped(codes)), _player()]


def digest_of(source: str) -> str:
    """Return the name of a source: by it a library is found that was compiled elsewhere."""
    return hashlib.sha256("\0".join((source, *FLAGS)).encode()).hexdigest()[:32]


def _player() -> str:
    return PLAYER.read_text(encoding="utf-8")


def _grouped(codes: Sequence[str]) -> list[list[str]]:
    """The codes that are compiled together."""
    different = sorted(set(codes))
    short = [code for code in different if len(code) <= LONG]
    return [*([short] if short else []), *([code] for code in different if len(code) > LONG)]


def source_of(codes: Iterable[str], first: int = 0) -> str:
    """Return the whole source: what kernels call, and each kernel in a separate namespace. first:
    the number of the first kernel."""
    pieces = [PRELUDE.read_text(encoding="utf-8")]
    for index, code in enumerate(codes, first):
        pieces.append(
            f"namespace space_{index} {{\n{code}\n}}\n"
            f'extern "C" void kernel_{index}(void* const* p, const long* n, const Pool* pool) {{\n'
            f"  run(space_{index}::body, p, n, pool);\n}}\n"
        )
    return "\n".join(pieces)


@cache
def openmp() -> ctypes.CDLL:
    """Return the OpenMP library of oneDNN, which must be loaded."""
    library()
    return ctypes.CDLL(POOL)


def set_threads(number: int) -> None:
    """Let plans use this many threads when this thread builds them, or runs them without a number
    of their own. Each thread has a separate number in OpenMP."""
    openmp().omp_set_num_threads(number)


def pool() -> Pool:
    """Return the threads of oneDNN."""
    names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
    return Pool(*(ctypes.cast(getattr(openmp(), name), c_void_p).value for name in names))
