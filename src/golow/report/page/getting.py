"""How to get a level in a program of one's own: a command, or the lines to paste."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent

from golow.levels.libtorch.toolchain import CONFIGURE, MAKE_AND_RUN
from golow.levels.torch.compile import MODES
from golow.programs.comparison.repeat_command import again
from golow.records.workload import Workload
from golow.report.audit.facts import alternative_of
from golow.report.audit.setting import pasted
from golow.report.page import blocks
from golow.report.page.blocks import Block

FOLDER = "program"
WIDTH = 96  # characters of a line to paste
PLAN = ("onednn", "cudnn", "jax", "tensorflow", "paddle")
"""Levels that run what golow lowers."""

CHANNELS_LAST = """
    model = model.to(memory_format=torch.channels_last)
    batch = batch.to(memory_format=torch.channels_last)
    """
TRACED = """
    model = torch.jit.trace(model.eval(), batch, check_trace=False)
    model = torch.jit.optimize_for_inference(torch.jit.freeze(model))
    """
TRACED_TO_TRAIN = "model = torch.jit.trace(model.train(), batch, check_trace=False)"
REPLAYED = """
    # after three iterations in a stream of their own, torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step(batch)  # the whole iteration: inference, or a training step
    batch.copy_(next_batch)  # the graph reads this tensor
    graph.replay()
    """
AHEAD_OF_TIME = """
    exported = torch.export.export(model.eval(), (batch,))
    torch._inductor.aoti_compile_and_package(exported, package_path="model.pt2")
    model = torch._inductor.aoti_load_package("model.pt2")
    # in C++: torch::inductor::AOTIModelPackageLoader("model.pt2").run({batch})
    """
ONNX = """
    torch.onnx.export(model.eval(), (batch,), "model.onnx", dynamo=True)
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    result = session.run(None, {session.get_inputs()[0].name: batch.numpy()})
    """
OPENVINO = """
    shape = tuple(batch.shape)
    converted = openvino.convert_model(model.eval(), example_input=batch, input=[shape])
    settings = {"INFERENCE_PRECISION_HINT": "f32"}  # else half precision where the processor has it
    model = openvino.Core().compile_model(converted, "CPU", settings)
    """
EXECUTORCH = """
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime
    exported = torch.export.export(model.eval(), (batch,))
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    with open("model.pte", "wb") as file:
        lowered.to_executorch().write_to_file(file)
    method = Runtime.get().load_program("model.pte").load_method("forward")
    [result] = method.execute((batch,))
    """
TVM = """
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program
    translated = from_exported_program(torch.export.export(model.eval(), (batch,)))
    host = tvm.target.Target.from_device("cpu")
    untuned = {"total_trials": 0, "work_dir": "tuning"}
    prepared = relax.get_pipeline("static_shape_tuning", target=host, **untuned)(translated)
    machine = relax.VirtualMachine(tvm.compile(prepared, target=host), tvm.cpu())
    [result] = machine["main"](tvm.runtime.tensor(batch.numpy()))
    """


def getting(workload: Workload, level: str) -> Iterator[Block]:
    """The lines for the level of that name; none for one that is not golow's."""
    name, *choices = level.split("+")
    base, _, variant = name.partition(":")
    said = "How to get it: in a program that has a model and a batch."
    lines = dedent(_python(base, variant, workload.mode)).strip()
    if base == "libtorch":
        said = "How to get it: as a C++ project that needs no Python and no golow."
        lines = _emitted(workload)
    elif variant == "emitted":
        said = "How to get it: as a C++ project that needs no Python, no PyTorch and no golow."
        lines = _emitted_plan(workload, base)
    elif base in PLAN:
        said = "How to get it: this prints all that the level runs, down to its plan or its source."
        lines = again("lower", workload, "--level", name, "--show")
    if lines:
        yield blocks.paragraph(said)
        yield blocks.code(lines)
    found = [one for choice in choices if (one := alternative_of("", choice))]
    chosen = dedent("\n".join(pasted(level, found, WIDTH)))
    if chosen:
        yield blocks.code(chosen)


def _python(base: str, variant: str, mode: str) -> str:
    """Lines of Python; empty where the module as it is is the level."""
    if base in ("eager", "cudagraph") and variant == "channels_last":
        return CHANNELS_LAST + (REPLAYED if base == "cudagraph" else "")
    if base == "torchscript":
        return TRACED if mode == "infer" else TRACED_TO_TRAIN
    if base == "compile":
        return _compiled(variant)
    plain = {
        "cudagraph": REPLAYED,
        "aotinductor": AHEAD_OF_TIME,
        "onnxruntime": ONNX,
        "openvino": OPENVINO,
        "executorch": EXECUTORCH,
        "tvm": TVM,
    }
    return plain.get(base, "")


def _compiled(variant: str) -> str:
    mode = f"mode={MODES[variant]!r}, " if variant in MODES else ""
    call = f"model = torch.compile(model, {mode}dynamic=False)"
    if "freezing" not in variant:
        return call
    # Weights are constants only where no gradient is asked for.
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
