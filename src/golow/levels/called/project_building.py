"""Builds the C++ project of a level with the libraries of this process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from golow.levels.compiler import find_compiler
from golow.levels.direct.onednn.bindings.library import find_library
from golow.records.errors import GolowError

LIMIT = 900.0  # seconds that a build may take
HEADERS = {
    "cuda.h": ("CUDA's header cuda.h", "pip install nvidia-cuda-runtime"),
    "crt/host_defines.h": ("CUDA's header crt/host_defines.h", "pip install nvidia-cuda-crt"),
    "cudnn_backend.h": ("cuDNN's header", "pip install nvidia-cudnn-cu13"),
    "cublasLt.h": ("cuBLASLt's header", "pip install nvidia-cublas"),
}
SYSTEM = ("/usr/local/cuda/include", "/usr/include", "/usr/include/x86_64-linux-gnu")
LIBRARIES = {
    "CUDA_DRIVER": "libcuda.so",
    "CUDNN_LIBRARY": "libcudnn.so",
    "CUBLAS_LIBRARY": "libcublasLt.so",
}


def missing(level: str) -> tuple[str, str] | None:
    """The first build tool that this machine lacks, and how to get it; None if it lacks nothing."""
    if find_compiler() is None:
        return "there is no C++ compiler", "apt-get install g++"
    if _cmake() is None:
        return "there is no cmake", "apt-get install cmake"
    if level == "cudnn":
        lacking = (words for header, words in HEADERS.items() if not _has(header))
        what, fix = next(lacking, ("", ""))
        return (f"{what} is not installed", fix) if what else None
    library = find_library()
    if library is None or not (library.parents[1] / "include" / "dnnl.h").exists():
        return "oneDNN's header is not installed", "pip install onednn-devel-cpu-gomp"
    return None


def build_project(folder: Path, level: str) -> None:
    """Configure and build a project in its folder. Raises `GolowError` if that fails."""
    build, cmake = str(folder / "build"), _cmake() or "cmake"
    configure = [cmake, "-S", str(folder), "-B", build, *_options(level)]
    jobs = str(len(os.sched_getaffinity(0)))
    for command in (configure, [cmake, "--build", build, "--parallel", jobs]):
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=LIMIT,
        )  # fmt: skip
        if answer.returncode:
            said = "\n".join((answer.stdout + answer.stderr).splitlines()[-30:])
            raise GolowError(f"cmake ended with status {answer.returncode}:\n{said}")


def _options(level: str) -> list[str]:
    """Where the libraries are: for a GPU those that this process has loaded."""
    if level == "cudnn":
        found = {name: _loaded(file) for name, file in LIBRARIES.items()}
        own = [f"-D{name}={file}" for name, file in found.items() if file is not None]
        return [*own, f"-DCMAKE_PREFIX_PATH={';'.join(str(item.parent) for item in wheels())}"]
    library = find_library()
    return [f"-DCMAKE_PREFIX_PATH={library.parents[1] if library is not None else '/usr'}"]


def _loaded(name: str) -> Path | None:
    """The file of a library of that name in this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    files = (Path(line.split(maxsplit=5)[-1]) for line in lines if f"/{name}" in line)
    return next(files, None)


def _has(header: str) -> bool:
    folders = (*map(Path, SYSTEM), *wheels())
    return any((folder / header).exists() for folder in folders)


def wheels() -> Iterator[Path]:
    """The folders of headers of NVIDIA's wheels."""
    spec = find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(place).glob("*/include"))


def _cmake() -> str | None:
    """The program, on the path or beside Python."""
    beside = Path(sys.executable).with_name("cmake")
    return shutil.which("cmake") or (str(beside) if beside.exists() else None)
