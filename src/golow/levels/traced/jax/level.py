"""JAX: the captured graph as the source of a JAX function, compiled by XLA, its weights arguments
or, as the variant ``freezing``, constants; no PyTorch in the process."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from golow.levels.level import IDLE_NUMPY, Launch, Level, Variant
from golow.levels.lowering import BUILT, version_of
from golow.levels.probe import Probe
from golow.levels.traced import lowered
from golow.levels.traced.lowered import write_source
from golow.lower.ir.graph import Graph, Pass, Value
from golow.records.errors import Unsupported
from golow.records.workload import Workload
from golow.workload.bundle import Bundle
from golow.workload.import_path import module_command

FREEZING = "freezing"  # the variant
COMPILED = "compiled"  # XLA's programs, in the cache folder
OLDEST = (0, 7)
INSTALL_CUDA = "pip install 'golow[jax-cuda]'"

# JAX's cache gets a program with its constants as one protobuf, which must be smaller than 2 GiB; a
# larger program would be compiled at every start. What is left is for all but the weights.
LARGEST_CONSTANTS = 2 * 2**30 - 2**26

# JAX is to pass constants as arguments, once it has found that to suit most programs.
# Source: https://docs.jax.dev/en/latest/internals/constants.html
AS_CONSTANTS = {"JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS": "false"}

ON_GPU = {
    "JAX_PLATFORMS": "cuda",
    "JAX_CUDA_VISIBLE_DEVICES": "0",  # JAX would open a context on every one
    # By default JAX takes three quarters of the memory, which other levels need.
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}


def probe() -> Probe:
    """JAX must be installed, and not too old; the probe does not import it."""
    if find_spec("jax") is None or find_spec("jaxlib") is None:
        return Probe(False, "jax is not installed", "pip install 'golow[jax]'")
    found = version_of("jax")
    if _parts(found) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        missing = f"jax {found} is too old, the level needs {oldest}"
        return Probe(False, missing, "pip install --upgrade 'golow[jax]'")
    return Probe(True)


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Write the graph, and the graph of an epoch's smaller last batch, as JAX's source.

    The worker compiles the source when it first loads; JAX's persistent cache in the same folder
    then has what XLA made, at ``freezing`` with the weights in it, so that the folder is of these
    weights alone. On a GPU XLA chooses algorithms by timing them.
    """
    workload = bundle.workload
    if workload.device == "cuda":
        require_gpu()
    key = f"{version_of('jax')} {version_of('jaxlib')} {workload.device}"
    if variant == FREEZING:
        _require_small(bundle)
        key += f" {variant} {workload.digest}"
    parts = [part for part in (bundle, bundle.last) if part is not None]
    folders = [write_source("jax", passes, source, key, part, cache) for part in parts]
    return Launch(
        module_command(
            "golow.levels.traced.jax.program",
            variant or "plain",
            *map(str, folders),
        ),
        environment={
            **IDLE_NUMPY,
            **(AS_CONSTANTS if variant == FREEZING else {}),
            **(ON_GPU if workload.device == "cuda" else _on_cpu(workload.threads)),
        },
        built_by_loading=folders[0] / BUILT,
        build_measures=workload.device == "cuda",
    )


def _require_small(bundle: Bundle) -> None:
    """Raise `Unsupported` for weights that are too large for constants of a program."""
    import torch

    from golow.levels.traced.halving import HALVES

    def bytes_of(value: Value) -> int:
        stored = HALVES.get(bundle.workload.precision) if value.dtype == "float32" else None
        return math.prod(value.shape) * int(getattr(torch, stored or value.dtype).itemsize)

    inputs = () if bundle.graph is None else bundle.graph.inputs
    size = sum(bytes_of(item.value) for item in inputs if item.kind not in ("input", "target"))
    if size > LARGEST_CONSTANTS:
        limit = f"a program may have {LARGEST_CONSTANTS / 2**30:.2f} GiB of constants"
        raise Unsupported("jax:freezing", f"{limit}; the weights have {size / 2**30:.2f}")


def _on_cpu(threads: int) -> dict[str, str]:
    return {
        "JAX_PLATFORMS": "cpu",
        # The size of XLA's thread pool, by default the number of cores.
        "NPROC": str(threads),
        # The thread that starts an iteration runs it; otherwise a further one does.
        "JAX_CPU_ENABLE_ASYNC_DISPATCH": "false",
    }


def require_gpu() -> None:
    """Raise `Unsupported` unless JAX has its part for GPUs, and golow NVIDIA's bindings."""
    if not any(_is_installed(f"jax-cuda{major}-plugin") for major in (12, 13)):
        raise Unsupported("jax", f"JAX is installed without CUDA: {INSTALL_CUDA}")
    for package in ("cuda-bindings", "cuda-core"):
        if not _is_installed(package):
            raise Unsupported("jax", f"{package} is not installed: {INSTALL_CUDA}")


def _is_installed(package: str) -> bool:
    return version_of(package) != "unknown"


def _parts(found: str) -> tuple[int, ...]:
    """The first two numbers of a version; an unknown one counts as new."""
    numbers = re.findall(r"\d+", found)[:2]
    return tuple(map(int, numbers)) or OLDEST


def passes(workload: Workload) -> tuple[Pass, ...]:
    """Return the passes to the vocabulary: a recurrent layer of some time steps is one operator."""
    from golow.levels.traced.jax.recurrent import keep_scans

    return lowered.passes(workload, keep_scans)


def refusals(graph: Graph, workload: Workload) -> Iterator[Unsupported]:
    """Yield what the level cannot run of a captured graph; this needs no JAX."""
    from golow.levels.traced.jax.writer import refused
    from golow.lower.ir.pass_runner import apply

    return refused(apply(graph, passes(workload)))


def source(graph: Graph, workload: Workload) -> str:
    """Return the source of the JAX function for a lowered graph. Raises `Unsupported`."""
    from golow.levels.traced.jax.writer import written_source

    return written_source(graph, workload)


LEVEL = Level(
    name="jax",
    summary="the graph as a JAX function, compiled by XLA; no PyTorch in the process",
    needs="jax",
    probe=probe,
    prepare=prepare,
    variants={
        FREEZING: Variant("weights are constants, which XLA folds and arranges", modes=("infer",))
    },
    from_graph=True,
    passes=passes,
    refusals=refusals,
    source=source,
    devices=("cpu", "cuda"),
)
