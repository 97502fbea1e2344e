"""The C++ compiler and the installed LibTorch: where they are, and how to call them.

Nothing here imports torch: its folder and version are read from the installation.
"""

from __future__ import annotations

import platform
import re
import subprocess
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from golow.levels.compiler import (
    INSTALL_COMPILER,
    NO_COMPILER,
    compiler_command,
    find_compiler,
)
from golow.levels.probe import Probe
from golow.records.errors import GolowError
from golow.records.workload import Device

SHARED_RUNTIME = "libstdc++.so.6"
INSTALL_CUDA = "install a build of torch with CUDA, or run without --device cuda"

# Commands that build and run the project of golow emit, in its folder.
CONFIGURE = (
    "cmake -S . -B build -DCMAKE_PREFIX_PATH="
    "\"$(python -c 'import torch; print(torch.utils.cmake_prefix_path)')\""
)
MAKE_AND_RUN = "cmake --build build\n./build/run ."

# -Og: the program only calls into compiled libraries. Networks that are all overhead (40 layers of
# 4 neurons) run as fast as with -O2, and 5% faster than with -O0; ResNet-50's training step
# compiles in 7 s, against 15 s with -O1 and 30 s with -O2.
# AT_PER_OPERATOR_HEADERS: declares only the operators that are called; declarations take most of
# the compile time.
FLAGS = ("-Og", "-pthread", "-DAT_PER_OPERATOR_HEADERS")

# The program uses no symbol of this library, whose operators for a GPU register themselves when it
# is loaded. By default the linker would drop it.
CUDA_LIBRARIES = ("-Wl,--push-state,--no-as-needed", "-ltorch_cuda", "-Wl,--pop-state")


class Toolchain(NamedTuple):
    """A compiler with its version, and a torch with its version.

    cuda: the version of CUDA that torch was built with, for programs that run on a GPU; empty for
    those that run on a CPU. headers: folders of further headers that a program includes.
    """

    compiler: tuple[str, ...]
    compiler_version: str
    torch: Path
    torch_version: str
    cuda: str = ""
    headers: tuple[Path, ...] = ()

    @property
    def standard(self) -> int:
        """The C++ standard that this torch's headers require."""
        major, minor = (int(part) for part in self.torch_version.split(".")[:2])
        return 20 if (major, minor) >= (2, 12) else 17

    def compile_command(self, source: Path, target: Path, *folders: Path) -> list[str]:
        """Source file -> object file; folders hold the headers it includes by name."""
        return [
            *self.compiler,
            f"-std=c++{self.standard}",
            *FLAGS,
            *(f"-I{folder}" for folder in folders),
            # As system headers, to suppress their warnings.
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
            # torch's libraries find their own dependencies (CUDA's, in a build with CUDA) at run
            # time by their own paths.
            "-Wl,--unresolved-symbols=ignore-in-shared-libs",
            *(CUDA_LIBRARIES if self.cuda else ()),
            *("-ltorch", "-ltorch_cpu", "-lc10", "-ldl"),
            *self._shared_runtime(),
        ]

    def _shared_runtime(self) -> list[str]:
        """The path of the shared C++ runtime, if the compiler has one.

        A compiler that comes with only the static one would link that. If a program and its
        libraries use different C++ runtimes, it crashes at the first stream or exception that they
        share.
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
    """The toolchain for programs on that device. Raises `GolowError` with what to install."""
    found = probe(device)
    compiler, torch = find_compiler(), _torch_folder()
    if not found.available or compiler is None or torch is None:
        raise GolowError(f"no C++ program can be built here: {found.missing}", found.fix)
    cuda = cuda_version(torch) if device == "cuda" else ""
    return Toolchain(compiler.command, compiler.version, torch, version("torch"), cuda)


def probe(device: Device = "cpu") -> Probe:
    """Probe for a C++ compiler, and a torch with headers and built for that device.

    CUDA's own headers and libraries are not needed: the program calls only PyTorch.
    """
    if platform.system() != "Linux":
        return Probe(False, "golow's C++ programs run on Linux only", "run golow on Linux")
    torch = _torch_folder()
    if torch is None:
        return Probe(False, "torch is not installed", "pip install 'torch>=2.11,<2.14'")
    if not (torch / "include" / "ATen" / "core" / "Tensor.h").is_file():
        return Probe(False, f"torch has no C++ headers in {torch}/include", "pip install torch")
    if device == "cuda" and not cuda_version(torch):
        return Probe(False, f"torch {version('torch')} was built without CUDA", INSTALL_CUDA)
    if compiler_command() is None:
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


def _torch_folder() -> Path | None:
    spec = find_spec("torch")
    return Path(spec.origin).parent if spec is not None and spec.origin else None
