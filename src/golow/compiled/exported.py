"""Builds the levels that start from an exported model in the caller's process: ONNX Runtime,
OpenVINO, AOTInductor and LibTorch, from the caches that their workers use."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import load_file
from torch import Tensor

from golow.compiled.callable_levels import SESSIONS
from golow.compiled.handed_over import Built, Run
from golow.levels.aotinductor import level as aotinductor
from golow.levels.aotinductor.compilation import DESCRIPTION
from golow.levels.called.target import cannot_run
from golow.levels.libtorch import level as libtorch
from golow.levels.named_level import ChosenLevel
from golow.levels.peers import onnxruntime, openvino
from golow.levels.peers.exported_program import VARIABLE
from golow.lower.capture.module_outputs import flattened
from golow.observer import Observer
from golow.records.errors import GolowError, Unsupported
from golow.storage.scratch import scratch_folder
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.graph_capture import write_graph
from golow.workload.prepare import prepare
from golow.workload.request import Request

Leaves = Callable[[tuple[Tensor, ...]], Sequence[Tensor]]
RUNTIMES: dict[str, Any] = {"onnxruntime": onnxruntime, "openvino": openvino}


def built_from_export(
    chosen: ChosenLevel, request: Request, cache: Path, observer: Observer, contexts: int
) -> Built:
    """Export the module of the request, unless the cache has it, and open it. contexts: calls at a
    time over one session, of ONNX Runtime or OpenVINO. Raises `GolowError` for what the level does
    not support."""
    prepared = prepare(request)
    if prepared.workload.draws:
        raise GolowError(
            f"the module draws random numbers, which {chosen.name} gets from golow",
            'a level inside PyTorch draws them itself: level="eager".',
        )
    with torch.no_grad():  # not inference mode, in which a module cannot take gradients itself
        _, structure = flattened(prepared.module(*prepared.batches[0].inputs))
    with scratch_folder() as folder:
        bundle, prepared = write_bundle(prepared, folder / "bundle")
        if chosen.level.from_graph:
            observer.stage("capturing the graph")
            write_graph(prepared, bundle)
        observer.stage(f"building {chosen.name}")
        try:
            if chosen.level.name in SESSIONS:
                leaves, called = _opened_session(chosen, bundle, cache, contexts)
            else:
                one, called = OPEN[chosen.level.name](chosen, bundle, cache)
                leaves = [one]
        except Unsupported as error:
            raise cannot_run(chosen.name, error) from error

    def run(call: Leaves) -> Run:
        return lambda inputs: structure.filled(call(inputs))

    first, *others = map(run, leaves)
    return Built(first, called, tuple(others))


def _opened_session(
    chosen: ChosenLevel, bundle: Bundle, cache: Path, contexts: int
) -> tuple[list[Leaves], Any]:
    """A session of ONNX Runtime, or a compiled model of OpenVINO, with calls that may run at a
    time."""
    launch = chosen.prepare(bundle, cache)
    program = RUNTIMES[chosen.level.name].program("")
    program.settings |= program.settings_for(contexts, bundle.workload.threads)
    program.open(Path(launch.environment[VARIABLE]), bundle.workload)

    def leaves(number: int, inputs: tuple[Tensor, ...]) -> list[Tensor]:
        arrays = [item.numpy() for item in inputs]
        return [torch.from_numpy(array) for array in program.answer(arrays, number)]

    return [partial(leaves, number) for number in range(contexts)], program.opened


def _opened_package(chosen: ChosenLevel, bundle: Bundle, cache: Path) -> tuple[Leaves, Any]:
    """A package of AOTInductor, by PyTorch's own runner."""
    folder = aotinductor.compiled_package(bundle, cache).folder
    named = msgspec.json.decode((folder / DESCRIPTION).read_bytes())
    runner: Any = torch._C._aoti.AOTIModelContainerRunnerCpu(str(folder / named["library"]), 1)

    def leaves(inputs: tuple[Tensor, ...]) -> list[Tensor]:
        with torch.inference_mode():
            found: list[Tensor] = runner.run(list(inputs))
        return found

    return leaves, runner


def _opened_library(chosen: ChosenLevel, bundle: Bundle, cache: Path) -> tuple[Leaves, Any]:
    """The emitted program, as operators of PyTorch."""
    operators = _defined(libtorch.inference_library(bundle, cache))
    state = load_file(bundle.file("weights.safetensors"))
    constants = bundle.file("constants.safetensors")
    if constants.exists():
        state |= load_file(constants)
    workload = bundle.workload
    handle = operators.open(workload.device, workload.precision, list(state), list(state.values()))

    def leaves(inputs: tuple[Tensor, ...]) -> list[Tensor]:
        with torch.inference_mode():
            found: list[Tensor] = operators.step(handle, list(inputs))
        return found

    weakref.finalize(leaves, operators.close, handle)
    return leaves, operators


_DEFINED: dict[Path, Any] = {}
"""The operators of each library that this process has loaded, which defines them once."""


def _defined(library: Path) -> Any:
    if library not in _DEFINED:
        space = f"golow_{library.parent.name}"
        ctypes.CDLL(str(library)).golow_define(space.encode())
        _DEFINED[library] = getattr(torch.ops, space)
    return _DEFINED[library]


OPEN: dict[str, Callable[[ChosenLevel, Bundle, Path], tuple[Leaves, Any]]] = {
    "aotinductor": _opened_package,
    "libtorch": _opened_library,
}
