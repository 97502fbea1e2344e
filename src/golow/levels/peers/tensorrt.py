"""TensorRT: an engine built for this GPU from the model that torch.onnx exports, strongly typed."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from golow.levels.level import IDLE_NUMPY, Launch, Level, python_worker
from golow.levels.peers import exported_program
from golow.levels.probe import Probe
from golow.storage.files import CACHE_HINT, writing
from golow.workload.bundle import Bundle

if TYPE_CHECKING:
    from golow.levels.peers.tensorrt_engine import TensorRt

DISTRIBUTIONS = ("tensorrt-cu13", "onnx", "onnxscript", "cuda-core", "cuda-bindings")
EXPORTER = "golow.levels.peers.onnxruntime"  # the same model as for that level
EXPORTED_BY = ("onnx", "onnxscript")


def probe() -> Probe:
    """A GPU, the library, the packages that torch's exporter needs, and NVIDIA's bindings."""
    from golow.levels import gpu

    if not gpu.has_gpu():
        return Probe(False, "there is no NVIDIA GPU", "run it on a machine with one")
    return exported_program.probe_distributions(DISTRIBUTIONS, "tensorrt")


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Export the model, unless the cache has it. The worker builds the engine when it first loads,
    alone on the GPU, because TensorRT chooses its kernels by timing them."""
    exported_program.require_float32(bundle, "tensorrt")
    exported = exported_program.exported(bundle, "tensorrt", EXPORTER, EXPORTED_BY, cache)
    key = f"{exported.folder.name} {version('tensorrt-cu13')} {bundle.workload.precision}"
    engines = cache / "tensorrt-engines" / hashlib.sha256(key.encode()).hexdigest()[:32]
    with writing(f"the cache {cache}", CACHE_HINT):
        engines.mkdir(parents=True, exist_ok=True)
    return Launch(
        python_worker("golow.levels.peers.tensorrt", ""),
        environment={
            exported_program.VARIABLE: str(exported.folder),
            exported_program.ENGINES: str(engines),
            **IDLE_NUMPY,
        },
        built_by_loading=engines / "built.json",
        build_measures=True,
        notes=exported.notes,
    )


def program(variant: str) -> TensorRt:
    """The worker's side."""
    from golow.levels.peers.tensorrt_engine import TensorRt

    return TensorRt()


LEVEL = Level(
    name="tensorrt",
    summary="TensorRT's engine, built for this GPU from the model that torch.onnx exports",
    needs="NVIDIA GPU, tensorrt-cu13, onnx, onnxscript",
    probe=probe,
    prepare=prepare,
    modes=("infer",),
    devices=("cuda",),
    exports=True,
    unseen=("cuda",),
)
