"""Runs a worker under Valgrind's callgrind, which counts instructions.

A count does not vary with the machine's load, but Valgrind is about 50 times slower than the
processor and does not know AVX-512: workers run with AVX2, also where more is there.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from golow.levels.level import Launch
from golow.programs.profiling.way_down.boundary import patterns
from golow.records.errors import GolowError
from golow.worker.process import worker_environment
from golow.worker.time_limits import Limits

SWITCH = Path(__file__).parent / "switch.c"
COMPILERS = ("cc", "gcc", "clang")
MOST_RECURSIONS = 50  # levels of a recursion that are told apart, so that a path is a stack

SETTINGS = {
    "ATEN_CPU_CAPABILITY": "avx2",  # PyTorch's kernels, and the vectors of Inductor's code
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "TORCHINDUCTOR_CPP_MARCH": "haswell",  # else the compiler uses all that this processor has
    "PYTHONHASHSEED": "0",  # the look-ups in Python's dictionaries take the same steps in every run
}

LIMITS = Limits(load=3600.0, outputs=3600.0, iteration=3600.0, block=3600.0, quit=60.0)


def require_valgrind() -> str:
    """Valgrind's path; raises `GolowError` if it, or a C compiler, is not installed."""
    found = shutil.which("valgrind")
    if found is None:
        raise GolowError(
            "--way-down counts instructions with Valgrind, which is not installed",
            "apt-get install valgrind",
        )
    _compiler()
    return found


def build_switch(folder: Path) -> Path:
    """The shared library that switches counting on and off, compiled into the folder.

    Raises `GolowError` if it does not compile.
    """
    library = folder / "switch.so"
    command = [_compiler(), "-O1", "-shared", "-fPIC", str(SWITCH), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GolowError(
            f"the C compiler does not compile {SWITCH.name}:\n{done.stderr.strip()}",
            "it needs valgrind/callgrind.h: apt-get install valgrind",
        )
    return library


def settled(launch: Launch) -> Launch:
    """The worker limited to the instructions that Valgrind knows, with Python's hashing fixed."""
    return launch._replace(environment={**launch.environment, **SETTINGS})


def under_callgrind(launch: Launch, valgrind: str, threads: int, output: Path) -> Launch:
    """The worker under callgrind, which writes its parts to ``OUTPUT.1``, ``OUTPUT.2``, ...:
    one ends before each call of a vendor's entry, the last where counting ends."""
    options = (
        "--tool=callgrind",
        "--quiet",
        "--vgdb=no",
        "--instr-atstart=no",
        f"--separate-recs={MOST_RECURSIONS}",
        f"--callgrind-out-file={output}",
        *(f"--dump-before={pattern}" for pattern in patterns()),
    )
    # Whole, because what a worker gets depends on its command, which is now Valgrind's.
    environment = worker_environment(launch.command[0], threads, launch.environment)
    return launch._replace(command=(valgrind, *options, *launch.command), environment=environment)


def _compiler() -> str:
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is None:
        raise GolowError("--way-down needs a C compiler", "apt-get install gcc")
    return found
