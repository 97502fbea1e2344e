"""The C++ compiler and the installed LibTorch: where they are, and how to call them.

Nothing here imports torch: its folder and version are read from the installation.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from golow.levels.probe import Probe
from golow.record import Device, GolowError

COMPILERS = ("c++", "g++", "clang++")
NO_COMPILER = "no C++ compiler was found"
SHARED_RUNTIME = "libstdc++.so.6"
INSTALL_CUDA = "install a build of torch with CUDA, or run without --device cuda"
INSTALL_COMPILER = "apt-get install g++ (or set CXX to a compiler)"

# -Og: the program only calls into libraries that are compiled already. Networks that are nothing
# but overhead (40 layers of 4 neurons) run as fast as with -O2, and 5% faster than with -O0;
# ResNet-50's training step compiles in 7 s where -O1 takes 15 and -O2 30.
# AT_PER_OPERATOR_HEADERS: only the operators that are called are declared, which is most of the
# compile time.
FLAGS = ("-Og", "-pthread", "-DAT_PER_OPERATOR_HEADERS")

# Nothing in the program names a symbol of CUDA's libraries: the operators for a GPU register
# themselves when this library is loaded, which a linker left to itself would drop.
CUDA_LIBRARIES = ("-Wl,--push-state,--no-as-needed", "-ltorch_cuda", "-Wl,--pop-state")


class Toolchain(NamedTuple):
    """A compiler with its version, and a torch with its version.

    cuda is the version of CUDA that torch was built with, where the program is to run on a GPU,
    and empty where it is to run on a CPU.
    """

    compiler: tuple[str, ...]
    compiler_version: str
    torch: Path
    torch_version: str
    cuda: str = ""

    @property
    def standard(self) -> int:
        """The year of C++ that this torch's headers ask for."""
        major, minor = (int(part) for part in self.torch_version.split(".")[:2])
        return 20 if (major, minor) >= (2, 12) else 17

    def compile_command(self, source: Path, target: Path, *folders: Path) -> list[str]:
        """Source file -> object file; folders hold the headers it includes by name."""
        return [
            *self.compiler,
            f"-std=c++{self.standard}",
            *FLAGS,
            *(f"-I{folder}" for folder in folders),
            # As system headers, whose warnings are not the reader's business.
            *("-isystem", str(self.torch / "include")),
            *("-c", str(source), "-o", str(target)),
        ]

    def link_command(self, objects: list[Path], target: Path) -> list[str]:
        """Object files -> program that finds torch's libraries where they are installed.

        libtorch_python is not among them: there is no Python in the process.
        """
        libraries = self.torch / "lib"
        return [
            *self.compiler,
            *FLAGS,
            *map(str, objects),
            *("-o", str(target)),
            *(f"-L{libraries}", f"-Wl,-rpath,{libraries}"),
            # What torch's libraries need themselves (CUDA's, in a build with CUDA) they find at
            # run time by their own paths.
            "-Wl,--unresolved-symbols=ignore-in-shared-libs",
            *(CUDA_LIBRARIES if self.cuda else ()),
            *("-ltorch", "-ltorch_cpu", "-lc10", "-ldl"),
            *self._shared_runtime(),
        ]

    def _shared_runtime(self) -> list[str]:
        """The shared C++ library by its path, where the compiler has one.

        A compiler that comes with the static one only would link that, and a program with one
        C++ runtime in libraries with another dies at the first stream or exception they share.
        """
        answer = subprocess.run(
            [*self.compiler, f"-print-file-name={SHARED_RUNTIME}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        path = Path(answer.stdout.strip())
        return [str(path)] if path.is_absolute() and path.is_file() else []


def find_toolchain(device: Device = "cpu") -> Toolchain:
    """The toolchain for programs of that device, or `GolowError` with what to install."""
    found = probe(device)
    compiler, torch = _compiler(), _torch_folder()
    if not found.available or compiler is None or torch is None:
        raise GolowError(f"the level libtorch needs more: {found.missing}", found.fix)
    cuda = cuda_version(torch) if device == "cuda" else ""
    return Toolchain(compiler, _compiler_version(compiler), torch, version("torch"), cuda)


def probe(device: Device = "cpu") -> Probe:
    """Whether a C++ compiler and torch with its headers are there, built for that device.

    The headers and libraries of CUDA itself are not needed: the program calls PyTorch alone.
    """
    if platform.system() != "Linux":
        return Probe(False, "the level libtorch runs on Linux only", "run golow on Linux")
    torch = _torch_folder()
    if torch is None:
        return Probe(False, "torch is not installed", "pip install 'torch>=2.11,<2.14'")
    if not (torch / "include" / "ATen" / "core" / "Tensor.h").is_file():
        return Probe(False, f"torch has no C++ headers in {torch}/include", "pip install torch")
    if device == "cuda" and not cuda_version(torch):
        return Probe(False, f"torch {version('torch')} was built without CUDA", INSTALL_CUDA)
    if _compiler() is None:
        return Probe(False, NO_COMPILER, INSTALL_COMPILER)
    return Probe(True)


def cuda_version(torch: Path) -> str:
    """The version of CUDA that the torch in this folder was built with; empty for none."""
    try:
        text = (torch / "version.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    found = re.search(r"^cuda\b[^=\n]*= *['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    built = (torch / "lib" / "libtorch_cuda.so").is_file()
    return found[1] if found and built else ""


def _compiler() -> tuple[str, ...] | None:
    """CXX, which may carry a launcher or flags, else the first compiler on the path."""
    if given := shlex.split(os.environ.get("CXX", "")):
        program = shutil.which(given[0])
        return (program, *given[1:]) if program else None
    found = (shutil.which(name) for name in COMPILERS)
    return next(((program,) for program in found if program), None)


def _compiler_version(compiler: tuple[str, ...]) -> str:
    answer = subprocess.run(
        [*compiler, "--version"], capture_output=True, text=True, check=False, timeout=60
    )
    return next(iter(answer.stdout.splitlines()), "unknown")


def _torch_folder() -> Path | None:
    spec = find_spec("torch")
    return Path(spec.origin).parent if spec is not None and spec.origin else None
