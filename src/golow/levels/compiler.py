"""The C++ compiler of the machine: where it is, and which one."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from golow.records.errors import Unsupported

COMPILERS = ("c++", "g++", "clang++")
NO_COMPILER = "no C++ compiler was found"
INSTALL_COMPILER = "apt-get install g++ (or set CXX to a compiler)"


class Compiler(NamedTuple):
    """The command, which may include a launcher or flags, and the first line of its version."""

    command: tuple[str, ...]
    version: str


def find_compiler() -> Compiler | None:
    """Return the compiler that programs are built with here; None if there is none."""
    command = compiler_command()
    return None if command is None else Compiler(command, _version(command))


def compiler_command() -> tuple[str, ...] | None:
    """CXX, which may include a launcher or flags, else the first compiler on the path."""
    if given := shlex.split(os.environ.get("CXX", "")):
        program = shutil.which(given[0])
        return (program, *given[1:]) if program else None
    found = (shutil.which(name) for name in COMPILERS)
    return next(((program,) for program in found if program), None)


def require_inductors_folder(level: str, folder: Path) -> None:
    """Raise `Unsupported` for a folder in which Inductor cannot build on a CPU: its command for the
    compiler is split at spaces."""
    if any(map(str.isspace, str(folder))):
        raise Unsupported(
            level,
            f"Inductor cannot build in {folder}, because of the space in that path; name another "
            "cache: GOLOW_CACHE=/my/folder golow ...",
        )


def _version(command: tuple[str, ...]) -> str:
    answer = subprocess.run(
        [*command, "--version"], capture_output=True, text=True, check=False, timeout=60
    )
    return next(iter(answer.stdout.splitlines()), "unknown")
