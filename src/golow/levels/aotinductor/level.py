"""AOTInductor: Inductor's code as a package, called from the C++ worker; no Python inside."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from golow.levels.compiler import require_inductors_folder
from golow.levels.level import Launch, Level, Variant
from golow.levels.peers import exported_program
from golow.levels.probe import Probe
from golow.levels.torch import compile as compile_level
from golow.records.errors import Unsupported
from golow.records.workload import Workload
from golow.workload.bundle import Bundle

EXPORTER = "golow.levels.aotinductor.compilation"
SOURCES = Path(__file__).parent / "sources"
PROGRAMS = {"": "package.cpp", "cudagraph": "replayed.cpp"}
NO_HEADERS = (
    "Inductor needs CUDA's headers to compile packages for a GPU, and there are none; install "
    "CUDA's toolkit (nvcc), or set CUDA_HOME to its folder"
)


def probe() -> Probe:
    """Needs torch with its headers, and a C++ compiler for Inductor's code and for the worker."""
    from golow.levels.libtorch import build

    found = build.probe()
    return compile_level.probe() if found.available else found


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Compile the package and the worker, unless the cache holds them."""
    from golow.levels.libtorch import build

    workload = bundle.workload
    system: tuple[Path, ...] = ()
    if workload.device == "cuda":
        headers = cuda_headers()
        if headers is None:
            raise Unsupported("aotinductor", NO_HEADERS)
        system = (headers,) if variant == "cudagraph" else ()
    package = compiled_package(bundle, cache)
    source = SOURCES / PROGRAMS[variant]
    artifact = build.build_from(source, cache, workload.device, system)
    return Launch(
        (str(artifact.program),),
        environment={exported_program.VARIABLE: str(package.folder)},
        build_seconds=package.seconds + artifact.build_seconds,
        cached=package.cached and artifact.cached,
        artifact_bytes=package.bytes + artifact.bytes,
        notes=(*package.notes, *artifact.notes),
    )


def compiled_package(bundle: Bundle, cache: Path) -> exported_program.Exported:
    """The folder with the package, compiled unless the cache holds it."""
    require_inductors_folder("aotinductor", cache)
    here = machine(bundle.workload)
    return exported_program.exported(bundle, "aotinductor", EXPORTER, (), cache, here)


def cuda_headers() -> Path | None:
    """The folder of CUDA's headers, looked for where PyTorch looks for its toolkit."""
    compiler = shutil.which("nvcc")
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    homes += [str(Path(compiler).parent.parent)] if compiler else ["/usr/local/cuda"]
    home = Path(next(filter(None, homes)))
    headers = home / "include"
    return headers if (headers / "cuda_runtime_api.h").is_file() else None


def machine(workload: Workload) -> str:
    """Properties of this machine on which compiled code depends: threads, the CPU's instruction
    sets, the GPU."""
    gpus = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    models = {line for gpu in gpus for line in gpu.read_text().splitlines() if "Model" in line}
    return "\n".join((str(workload.threads), exported_program.instruction_sets(), *sorted(models)))


LEVEL = Level(
    name="aotinductor",
    summary="Inductor's code compiled ahead of time, called from C++; no Python",
    needs="torch, C++ compiler",
    probe=probe,
    prepare=prepare,
    modes=("infer",),
    devices=("cpu", "cuda"),
    exports=True,
    variants={
        "cudagraph": Variant(
            "the pass recorded as a CUDA graph and replayed", modes=("infer",), devices=("cuda",)
        ),
    },
)
