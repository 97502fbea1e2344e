"""Projects of `cudnn` without a GPU: the plans are real, and so are golow's kernels and engines;
`gpu_stand_in.cpp` stands in for the driver, and `gpu_stand_in_libraries.cpp` computes naively
what the libraries' engines do."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from golow.levels.called.lowering import lowered
from golow.levels.direct.cudnn.bindings.cublaslt import Algorithm
from golow.levels.direct.cudnn.emit.plan_source import Written
from golow.levels.direct.cudnn.emit.project import Machine
from golow.levels.direct.cudnn.engines import golow_attention
from golow.levels.direct.cudnn.level import passes
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.problems.products import AttentionProblem, Convolution
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.emit.network import FORMAT, End, Network, Sized
from golow.lower.capture.module_outputs import leaves_of
from support.direct.cuda_host import compiled
from support.direct.cudnn_plans import Asked, AskedEngines
from support.direct.ubjson import ubjson
from support.one_run import one_at_a_time, own_folder

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

NAMES = ("gpu_stand_in.cpp", "gpu_stand_in_libraries.cpp")
SOURCES = [str(Path(__file__).with_name(name)) for name in NAMES]
NOTHING = Path(__file__).with_name("nothing.cu")
FACTOR = 6  # identifier of the number by which the stand-in multiplies a convolution
ALGORITHM = Algorithm(struct.pack("<8Q", *range(1, 9)), 512, 1.0)


class StoredConvolution(Asked):
    """A plan as cuDNN's front end stores it; `gpu_stand_in_libraries.cpp` reads its
    numbers."""

    kind = "cudnn"
    workspace = 0

    def __init__(self, operation: Convolution) -> None:
        assert operation.dtype == operation.result == "float32"
        assert operation.activation is None
        self._operation = operation
        others = [4] * operation.bias + [5] * operation.residual
        self.operands = (1, 2, *others, 3)

    def encode(self) -> bytes:
        of = self._operation
        (n, c, h, w), (_, k, *out) = of.image, of.output
        top, left = of.padding[:2]
        relu = int(of.clip == (0.0, float("inf")))
        numbers = (
            n, c, h, w, k, *out, *of.kernel, top, left, *of.stride, *of.dilation, of.groups, relu,
        )  # fmt: skip
        plan = {
            "cudnn_backend_data": " ".join(map(str, numbers)),
            "variant_pack_uids": [*self.operands, FACTOR],
            "behavior_notes": [[1], []],
            "pass_by_values": [[FACTOR, {"index": 3, "value": "3F800000"}]],
            "workspace_modifications": None,
            "variant_pack_replacements": [],
            "fe_workspace_size": 0,
        }
        return ubjson(plan)


class ChosenProduct(Asked):
    """A product by an algorithm of cuBLASLt's."""

    kind = "cublaslt"
    workspace = ALGORITHM.workspace

    def __init__(self, problem: Problem) -> None:
        self.chosen = problem, ALGORITHM


class HostEngines(AskedEngines):
    """Engines that the stand-ins compute."""

    gpu = SimpleNamespace(properties=lambda: {"numSms": 132}, architecture="sm_90")

    def choose(self, operation: Any) -> Any:
        if isinstance(operation, Problem):
            return ChosenProduct(operation)
        if isinstance(operation, AttentionProblem):
            return next(golow_attention.own_attention(operation, cast("Any", None), 1))
        return StoredConvolution(operation) if isinstance(operation, Convolution) else None


def machine() -> Machine:
    """The stand-in as the GPU of a project."""
    return Machine("a stand-in", (9, 0), 132, 91400, 130000, _compiled)


def uncompiled() -> Machine:
    """The same, for projects that are only read."""

    def compiled(source: str, expressions: list[str]) -> Any:
        symbols = {name: name.encode() for name in expressions}
        return SimpleNamespace(code=source.encode(), symbols=symbols)

    return machine()._replace(compiled=compiled)


def network_of(title: str, module: nn.Module, example: Tensor, batches: Sequence[int]) -> Any:
    """The network of a module of one input and one output, as `emission.py` makes it. batches:
    empty for the example's alone."""
    target = SimpleNamespace(passes=passes, threads=1, precision="default")
    state = module.state_dict()
    plans = {}
    for batch in batches or [len(example)]:
        rows = example[torch.arange(batch) % len(example)]
        graph, constants = lowered(module, (rows,), cast("Any", target))

        def read(kind: str, name: str, own: Mapping[str, Tensor] = constants) -> np.ndarray:
            found: np.ndarray = (own if kind == "constant" else state)[name].detach().numpy()
            return found

        engines = cast("Engines", HostEngines())
        built = build_plan(graph, engines, TYPES["default"], 1)
        sources = {item.value.name: item for item in graph.inputs}
        plans[batch] = Sized(Written(built, sources, read, ["float32"]), read)
    with torch.no_grad():
        [output] = leaves_of(module(example))
    first = -1 if batches else len(example)
    kind = FORMAT[str(example.dtype).removeprefix("torch.")]
    return Network(
        title=title,
        plans=plans,
        inputs=(End("x", kind, (first, *example.shape[1:])),),
        outputs=(End("output", "F32", (first, *output.shape[1:])),),
        changed=(),
        threads=1,
        pads=bool(batches),
        weights={name: item.numpy() for name, item in state.items()},
        tied={},
        example={"x": example.numpy()},
        expected={"output": output.numpy()},
    )


@cache
def stand_in() -> Path:
    """The library that is driver, cuDNN and cuBLASLt at once."""
    from golow.levels.called.project_building import SYSTEM, wheels

    with one_at_a_time(own_folder(), "gpu-stand-in") as folder:
        made = folder / "libstand_in.so"
        if not made.exists():
            headers = [part for place in (*wheels(), *SYSTEM[:1]) for part in ("-isystem", place)]
            command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", *headers, "-o", str(made)]
            subprocess.run([*map(str, command), *SOURCES, "-ldl"], check=True)
        return made


def build(folder: Path) -> None:
    """Build a project with the stand-in as all of its libraries."""
    from golow.levels.called.project_building import wheels

    prefix = ";".join(str(item.parent) for item in wheels())
    names = ("CUDA_DRIVER", "CUDNN_LIBRARY", "CUBLAS_LIBRARY")
    options = [f"-D{name}={stand_in()}" for name in names] + [f"-DCMAKE_PREFIX_PATH={prefix}"]
    for command in (
        ["cmake", "-S", str(folder), "-B", str(folder / "build"), *options],
        ["cmake", "--build", str(folder / "build"), "--parallel", "2"],
    ):
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stdout + answer.stderr


def _compiled(source: str, expressions: list[str]) -> Any:
    """The kernels as libraries for this processor, whose paths are the module."""
    lines, symbols = [], {}
    for number, expression in enumerate(expressions):
        kernel = Kernel(NOTHING, expression, (1, 1, 1), (1, 1, 1), code=source)
        symbols[expression] = f"kernel_{number}".encode()
        lines.append(f"kernel_{number} {compiled(kernel)}\n")
    return SimpleNamespace(code="".join(lines).encode() + b"\0", symbols=symbols)
