"""Writes the exported model of a level of another runtime, with a program that loads it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from golow.levels.aotinductor import level as aotinductor
from golow.levels.aotinductor.compilation import DESCRIPTION
from golow.levels.ladder import DIRECT, choose
from golow.levels.named_level import ChosenLevel
from golow.levels.peers.exported_program import OF_GOLOW, VARIABLE
from golow.observer import Observer
from golow.records.errors import GolowError
from golow.records.near_names import meant
from golow.storage.cache import open_cache
from golow.storage.files import require_writable, writing
from golow.storage.record_folder import filled
from golow.storage.scratch import scratch_folder
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request

ONNXRUNTIME = """\
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = {threads}
session = onnxruntime.InferenceSession("model.onnx", options)
outputs = session.run(None, dict(zip([one.name for one in session.get_inputs()], inputs)))
"""
OPENVINO = """\
import openvino
settings = {{"INFERENCE_NUM_THREADS": "{threads}", "INFERENCE_PRECISION_HINT": "f32"}}
compiled = openvino.Core().compile_model("model.xml", "CPU", settings)
outputs = list(compiled(inputs).values())
"""
EXECUTORCH = """\
import torch
from executorch.runtime import Runtime
method = Runtime.get().load_program("model.pte").load_method("forward")
outputs = method.execute([torch.from_numpy(item) for item in inputs])
"""
AOTINDUCTOR = """\
import torch
torch.set_num_threads({threads})
runner = torch._C._aoti.AOTIModelContainerRunnerCpu("./{library}", 1)
outputs = runner.run([torch.from_numpy(item) for item in inputs])
"""
LINES = {
    "onnxruntime": ONNXRUNTIME,
    "openvino": OPENVINO,
    "executorch": EXECUTORCH,
    "aotinductor": AOTINDUCTOR,
}
PROGRAM = "load_model.py"
HINT = "name another folder."


def keep_model(level: str, request: Request, out: Path, observer: Observer) -> list[Path]:
    """Write the exported model into a new folder, with a program that loads it; return the files.
    Raises `GolowError` for a level that exports no model, and for a folder that exists."""
    if level not in LINES:
        raise GolowError(
            f"{level} builds nothing that could be kept",
            f"{meant(level, LINES)}levels are {', '.join((DIRECT['cpu'], *LINES))}.",
        )
    if out.exists():
        raise GolowError(f"{out} exists", "name a new folder, or remove it.")
    require_writable(out, HINT)
    chosen = choose(level, "infer", request.device)
    probe = chosen.level.probe_on(request.device)
    if not probe.available:
        raise GolowError(f"{chosen.name}: {probe.missing}", probe.fix)
    with scratch_folder() as folder:
        observer.stage("preparing the workload")
        bundle, prepared = write_bundle(prepare(request), folder / "bundle")
        observer.stage(f"building {level}")
        source = BUILT.get(level, _exported)(chosen, bundle, open_cache())
        with writing(out, HINT):
            out.mkdir(parents=True)
        with filled(out, HINT):
            for file in sorted(source.iterdir()):
                if file.name not in OF_GOLOW:
                    shutil.copy(file, out / file.name)
            text = LINES[level].format(threads=prepared.workload.threads, library=_library(out))
            (out / PROGRAM).write_text(f"{_inputs(bundle)}{text}")
    return sorted(out.iterdir())


def _exported(chosen: ChosenLevel, bundle: Bundle, cache: Path) -> Path:
    return Path(chosen.prepare(bundle, cache).environment[VARIABLE])


def _package(chosen: ChosenLevel, bundle: Bundle, cache: Path) -> Path:
    return aotinductor.compiled_package(bundle, cache).folder


BUILT: dict[str, Callable[[ChosenLevel, Bundle, Path], Path]] = {"aotinductor": _package}


def _library(folder: Path) -> str:
    description = folder / DESCRIPTION
    if not description.exists():
        return ""
    return str(msgspec.json.decode(description.read_bytes())["library"])


def _inputs(bundle: Bundle) -> str:
    """Lines of code that create inputs of the right form."""
    shapes = [(item.shape, item.dtype) for item in bundle.workload.inputs]
    made = ", ".join(f'numpy.ones({tuple(shape)}, "{dtype}")' for shape, dtype in shapes)
    return f"import numpy\ninputs = [{made}]\n"
