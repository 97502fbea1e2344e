"""The emitted program as a small CMake project that builds and runs without golow."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
import torch
from safetensors.torch import save_file
from torch import Tensor

from golow.levels.libtorch.build import SOURCES
from golow.levels.libtorch.emit import emit_program
from golow.levels.libtorch.placement import products, with_casts
from golow.levels.libtorch.toolchain import CONFIGURE, MAKE_AND_RUN
from golow.lower.ir.graph import Graph
from golow.records.record import encode
from golow.records.workload import Workload
from golow.storage.project_folder import MARKER, project_folder

WEIGHTS = "expected/weights"
STATIC_FILES = (
    "CMakeLists.txt",
    "main.cpp",
    "program.h",
    "allocator.h",
    "bundle.h",
    "safetensors.h",
    "json.h",
    "optimizer.h",
    "clock.h",
    "timing.h",
    "placement.h",
)


def write_project(
    graph: Graph,
    weights: Mapping[str, Tensor],
    constants: Mapping[str, Tensor],
    batches: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    workload: Workload,
    folder: Path,
    *,
    any_batch: bool = False,
) -> list[Path]:
    """Write the project and return its files.

    batches: named as in the bundle (``0/input/0``). expected: named as the worker's outputs
    (``0/output/0``, ``0/loss/loss``). any_batch: whether the graph is one for every batch. Raises
    `GolowError` if the folder holds anything but a project that golow wrote, and `Unsupported` if a
    node has no C++ form or does not run in the precision.
    """
    dtype = products(workload)
    graph = with_casts(graph, dtype)
    program = emit_program(graph, workload.device, dtype)
    steps = {name.split("/")[0] for name in batches}
    fitted = msgspec.structs.replace(workload, batches=len(steps))
    texts = {
        "README.md": _readme(graph, workload, bool(constants), any_batch),
        "program.cpp": program,
        "workload.json": _described(fitted, weights),
    }
    tensors = {
        "weights.safetensors": weights,
        "example.safetensors": {
            **batches,
            **{f"expected/{k}": v for k, v in expected.items()},
            WEIGHTS: _size_of(weights),
        },
    }
    if constants:
        tensors["constants.safetensors"] = constants
    with project_folder(folder):
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        for name in STATIC_FILES:
            shutil.copyfile(SOURCES / name, folder / name)
        for name, content in tensors.items():
            # Two names of a state dict may share memory, which the format forbids.
            own = {k: v.detach().contiguous().clone() for k, v in content.items()}
            save_file(own, folder / name)
    return [folder / name for name in (*texts, *STATIC_FILES, *tensors)]


def _described(workload: Workload, weights: Mapping[str, Tensor]) -> str:
    """The workload as JSON, with the shapes of the weights."""
    shapes = {name: list(item.shape) for name, item in weights.items()}
    described = msgspec.json.decode(encode(workload)) | {"weight_shapes": shapes}
    return msgspec.json.encode(described).decode()


def _size_of(weights: Mapping[str, Tensor]) -> Tensor:
    """The sum of the magnitudes of all weights, by which the program knows those of the example."""
    found = torch.zeros((), dtype=torch.float64)
    for item in weights.values():
        if item.is_floating_point():
            found += item.detach().double().abs().sum()
    return found


def _readme(graph: Graph, workload: Workload, constants: bool, any_batch: bool) -> str:
    train = graph.mode == "train"
    shapes = ", ".join("x".join(map(str, item.shape)) for item in workload.inputs)
    what = "one training step: forward, loss, backward and update" if train else "inference"
    shows = (
        "It prints the loss of 20 steps, and how far the first is from golow's stored loss"
        if train
        else "It prints the largest difference to the outputs that golow stored, and the time"
    )
    rows = [
        ("`program.cpp`", f"the network: {len(graph.nodes)} operations in a straight line"),
        ("`main.cpp`", "loads the files below, runs the network, compares"),
        ("`program.h`", "the interface of a network: its state and one step"),
        ("`optimizer.h`", "the optimizers, in the order of torch.optim"),
        (
            "`placement.h`",
            f"where and how it runs: on `{workload.device}`, in `{workload.precision}`",
        ),
        ("`bundle.h`, `safetensors.h`, `json.h`", "reading the files"),
        ("`timing.h`, `clock.h`", "the clock"),
        ("`workload.json`", "the workload; training takes the optimizer's rates from it"),
        ("`weights.safetensors`", "the state dict"),
        ("`example.safetensors`", "example batches and their results (`expected/...`)"),
    ]
    if constants:
        rows.append(("`constants.safetensors`", "constant tensors that the model's code created"))
    table = "\n".join(f"| {name} | {text} |" for name, text in rows)
    return f"""{MARKER}
# {workload.model} in C++

`{graph.name}`, {what}, for inputs of {shapes}: the graph that PyTorch captured, written as C++
calls to ATen's operators. There is no Python in the program.

```
{CONFIGURE}
{MAKE_AND_RUN}
```

{shows}. `./build/run . 100` runs 100 iterations.{_files_of(workload)}

* **Batch**: {_batch(workload, any_batch)}
* **Threads**: the program uses {workload.threads}, as the workload does: `threads` in
  `workload.json`.
* **Thread safety**: a `golow::Program` is the state of one network and runs one step at a time.
  Give each thread its own.
* **Weights**: `weights.safetensors` may be replaced by another file with the same names and shapes.
  A file that does not fit is an error.

| file | what it is |
|---|---|
{table}

`cmake --install build --prefix DIR` installs the program, the network as a static library
(`libnetwork.a`, with the headers: `golow::make_program()` in `program.h`) and the files that the
program reads. Ship `bin/run`, `share/network/`, and of PyTorch `libc10.so`, `libtorch.so`,
`libtorch_cpu.so` and the libraries that `ldd` lists.

PyTorch 2.11 to 2.13, a C++ compiler (GCC 11 or newer) and CMake 3.18 are enough, also on a GPU:
the program calls only PyTorch, so a PyTorch with CUDA works without a CUDA toolkit. `device` and
`precision` in `workload.json` determine where and how the program runs.
"""


def _files_of(workload: Workload) -> str:
    if workload.mode == "train":
        return ""
    return """

`./build/run . --inputs in.safetensors --outputs out.safetensors` runs on your own inputs, the
tensors `input/0`, `input/1`, ..., and writes `output/0`, `output/1`, ..."""


def _batch(workload: Workload, any_batch: bool) -> str:
    if any_batch:
        return "any number of samples; the numbers in the calls are read from the batch."
    return f"{workload.batch} samples, as it was captured; generate the project again for others."
