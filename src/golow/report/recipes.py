"""The lines that give a level in your own program: golow's line where it hands the level over, else
those of the framework or the commands of a C++ project.

A program that they are pasted into has ``torch``, ``golow``, a model and an input ``x``; for a
training step also a loss, an optimizer and targets ``y``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent
from typing import Literal, NamedTuple

from golow.compiled.callable_levels import line_to_paste
from golow.levels.choices import find
from golow.levels.ladder import BASELINE
from golow.levels.libtorch.toolchain import CONFIGURE, MAKE_AND_RUN
from golow.levels.torch.compile import MODES
from golow.programs.comparison.repeat_command import again
from golow.records.workload import Workload

FOLDER = "program"
PLAN = ("onednn", "cudnn", "jax", "tensorflow", "paddle")
"""Levels that run what golow lowers."""


class Recipe(NamedTuple):
    """Lines to paste. said: introduces them. language: of the lines."""

    said: str
    lines: str
    language: Literal["python", "sh"]


CHANNELS_LAST = """
    model = model.to(memory_format=torch.channels_last)
    x = x.to(memory_format=torch.channels_last)
    """
TRACED = """
    model = torch.jit.trace(model.eval(), x, check_trace=False)
    model = torch.jit.optimize_for_inference(torch.jit.freeze(model))
    """
TRACED_TO_TRAIN = "model = torch.jit.trace(model.train(), x, check_trace=False)"
REPLAYED = """
    # after three iterations on a separate stream, torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step(x)  # the whole iteration: inference, or a training step
    x.copy_(next_x)  # the graph reads this tensor
    graph.replay()
    """
AHEAD_OF_TIME = """
    exported = torch.export.export(model.eval(), (x,))
    torch._inductor.aoti_compile_and_package(exported, package_path="model.pt2")
    model = torch._inductor.aoti_load_package("model.pt2")
    # in C++: torch::inductor::AOTIModelPackageLoader("model.pt2").run({x})
    """
ONNX = """
    import onnxruntime
    torch.onnx.export(model.eval(), (x,), "model.onnx", dynamo=True)
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    result = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    """
OPENVINO = """
    import openvino
    shape = tuple(x.shape)
    converted = openvino.convert_model(model.eval(), example_input=x, input=[shape])
    settings = {"INFERENCE_PRECISION_HINT": "f32"}  # else half precision where the processor has it
    model = openvino.Core().compile_model(converted, "CPU", settings)
    """
EXECUTORCH = """
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime
    exported = torch.export.export(model.eval(), (x,))
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    with open("model.pte", "wb") as file:
        lowered.to_executorch().write_to_file(file)
    method = Runtime.get().load_program("model.pte").load_method("forward")
    [result] = method.execute((x,))
    """
TVM = """
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program
    translated = from_exported_program(torch.export.export(model.eval(), (x,)))
    host = tvm.target.Target.from_device("cpu")
    untuned = {"total_trials": 0, "work_dir": "tuning"}
    prepared = relax.get_pipeline("static_shape_tuning", target=host, **untuned)(translated)
    machine = relax.VirtualMachine(tvm.compile(prepared, target=host), tvm.cpu())
    [result] = machine["main"](tvm.runtime.tensor(x.numpy()))
    """
IREE = """
    import iree.compiler.tools.import_onnx.__main__ as importer
    import iree.runtime
    from iree.compiler import compile_file
    torch.onnx.export(model.eval(), (x,), "model.onnx", dynamo=True)
    importer.main(importer.parse_arguments(["model.onnx", "-o", "model.mlir"]))
    options = ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O2"]
    target = {"target_backends": ["llvm-cpu"], "input_type": "onnx", "extra_args": options}
    compile_file("model.mlir", output_file="model.vmfb", **target)
    compiled = iree.runtime.load_vm_flatbuffer_file("model.vmfb", driver="local-task")
    result = compiled["main_graph"](x.numpy())
    """


DISTRIBUTED = """
model = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
"""
SHARDED = """
    from torch.distributed.fsdp import fully_shard
    for block in model.children():
        fully_shard(block)
    fully_shard(model)
    """


def lines_to_paste(workload: Workload, level: str) -> Recipe | None:
    """Lines that give the level of that name, with its alternatives; None for eager, which is the
    model, and where there is nothing to paste."""
    line = line_to_paste(workload, level)
    if line:
        return Recipe("", line, "python")
    base, *names = level.split("+")
    found = None if base == BASELINE else recipe(workload, base)
    if found and found.language == "sh":
        return None if names else found
    settings = [line for name in names for line in _setting(name)]
    lines = "\n".join([*([found.lines] if found else []), *settings])
    return Recipe("", lines, "python") if lines else None


def _setting(name: str) -> Iterator[str]:
    """The line of Python that sets the alternative of that name; as a comment where it is a part of
    a line of the reader's."""
    for one in find(name)[:1]:
        line = one.alternative.python
        if line:
            whole = "..." not in line and not line.startswith("with ")
            yield line if whole else f"# {name}: {line}"


def recipe(workload: Workload, level: str) -> Recipe | None:
    """How to get a level without `golow.compile`; None for one that is not golow's, and for the
    module as it is."""
    base, _, variant = level.partition(":")
    if base == "libtorch":
        said, lines = "as a C++ project that needs no Python and no golow.", _emitted(workload)
    elif variant == "emitted":
        said = "as a C++ project that needs no Python, no PyTorch and no golow."
        lines = _emitted_plan(workload, base)
    elif base in PLAN:
        said = "this prints everything that the level runs, down to its plan or its source."
        lines = again("lower", workload, "--level", level, "--show")
    else:
        lines = dedent(_python(base, variant, workload.mode)).strip()
        said = "in a program that has a model and an input."
        return Recipe(f"How to get it: {said}", lines, "python") if lines else None
    return Recipe(f"How to get it: {said}", lines, "sh") if lines else None


def _python(base: str, variant: str, mode: str) -> str:
    """Lines of Python; empty where the module as it is is the level."""
    if base in ("eager", "cudagraph") and variant == "channels_last":
        return CHANNELS_LAST + (REPLAYED if base == "cudagraph" else "")
    if base == "torchscript":
        return TRACED if mode == "infer" else TRACED_TO_TRAIN
    if base == "compile":
        return _compiled(variant)
    if base == "ddp":
        return DISTRIBUTED + (f"\n{_compiled('')}" if variant == "compile" else "")
    plain = {
        "fsdp": SHARDED,
        "cudagraph": REPLAYED,
        "aotinductor": AHEAD_OF_TIME,
        "onnxruntime": ONNX,
        "openvino": OPENVINO,
        "executorch": EXECUTORCH,
        "tvm": TVM,
        "iree": IREE,
    }
    return plain.get(base, "")


def _compiled(variant: str) -> str:
    mode = f"mode={MODES[variant]!r}, " if variant in MODES else ""
    call = f"model = torch.compile(model, {mode}dynamic=False)"
    if "freezing" not in variant:
        return call
    # Weights are constants only where no gradient is requested.
    return (
        "import torch._inductor.config\n"
        "torch._inductor.config.freezing = True  # and call it in torch.inference_mode()\n"
        f"{re.sub(r'model,', 'model.eval(),', call)}"
    )


def _emitted(workload: Workload) -> str:
    """The commands that write the project, build it and run it; empty if no command names it."""
    command = again("emit", workload, "--out", FOLDER)
    return f"{command}\ncd {FOLDER}\n{CONFIGURE}\n{MAKE_AND_RUN}" if command else ""


def _emitted_plan(workload: Workload, level: str) -> str:
    """The commands that write the project of a direct level; empty if no command names it."""
    command = again("emit", workload, "--level", level, "--out", FOLDER)
    return f"{command}\ncat {FOLDER}/README.md  # how to build and run it" if command else ""
