"""Captures a workload's graph with torch.export (inference) or AOTAutograd (training).

golow has no tracer or autodiff of its own: PyTorch records what it would run, and this module
translates the record into the graph of `golow.lower.ir.graph`, with the layer's path at each node.
Training uses AOTAutograd's joint graph of forward and backward.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export.graph_signature import InputKind as ExportInput
from torch.export.graph_signature import OutputKind as ExportOutput
from torch.fx import traceback

from golow.lower.aten.recurrence_calls import recurrences_right, recurrences_whole
from golow.lower.aten.resizing_calls import resizing_whole
from golow.lower.aten.translation import Captured, Ends, translate
from golow.lower.capture.capture_messages import kept_messages
from golow.lower.capture.error_checks import is_token, without_checks
from golow.lower.capture.module_outputs import leaves_of
from golow.lower.capture.random_masks import name_random_masks
from golow.lower.capture.regions import inline_regions
from golow.lower.capture.shared_tensors import first_names, own_tensors_kept
from golow.lower.decompositions.losses import corrected
from golow.records.errors import GolowError

Loss = Callable[..., Tensor]


def capture_inference(
    name: str, module: nn.Module, inputs: tuple[Tensor, ...], said: list[str] | None = None
) -> Captured:
    """The graph of ``module.eval()(*inputs)``, as torch.export sees it before decomposition.

    said: gets what torch says meanwhile.
    """
    start = time.perf_counter()
    module.eval()
    with _explained(name), recurrences_right(), kept_messages([] if said is None else said):
        program = torch.export.export(module, inputs, strict=False)
        if _is_mapped(program.graph):
            program = program.run_decompositions({})
    inline_regions(program.graph_module)
    signature = program.graph_signature
    placeholders = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    kinds = {
        ExportInput.PARAMETER: "parameter",
        ExportInput.BUFFER: "buffer",
        ExportInput.CONSTANT_TENSOR: "constant",
        ExportInput.USER_INPUT: "input",
    }
    ends = Ends([], [])
    position = 0
    for spec in signature.input_specs:
        kind = kinds[spec.kind]
        target = str(position) if kind == "input" else str(spec.target)
        position += kind == "input"
        ends.inputs.append((placeholders[spec.arg.name], kind, target))
    results = next(n for n in program.graph.nodes if n.op == "output").args[0]
    position = 0
    for spec, result in zip(signature.output_specs, results, strict=True):
        if spec.kind is ExportOutput.BUFFER_MUTATION:
            ends.outputs.append((result, "buffer", str(spec.target)))
        elif isinstance(result, fx.Node):
            ends.outputs.append((result, "output", str(position)))
            position += 1
    constants = {k: v for k, v in program.constants.items() if isinstance(v, Tensor)}
    # A buffer outside the state dict is treated as a constant.
    saved = set(program.state_dict)
    ends = ends._replace(
        inputs=[
            (n, "constant" if k == "buffer" and t not in saved else k, t) for n, k, t in ends.inputs
        ]
    )
    first = first_names(module)
    ends = ends._replace(inputs=[(n, kind, first.get(t, t)) for n, kind, t in ends.inputs])
    return translate(name, "infer", module, program.graph_module, ends, constants, start)


def _is_mapped(graph: fx.Graph) -> bool:
    """Whether it enters and leaves functions of torch.func, such as vmap, which a second trace
    resolves; nothing else changes by it."""
    return any(
        getattr(node.target, "__module__", "") == "torch._functorch.predispatch"
        for node in graph.nodes
    )


def capture_training(
    name: str,
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    targets: tuple[Tensor, ...],
    loss: Loss,
    said: list[str] | None = None,
) -> Captured:
    """The joint graph of one training step up to the gradients: forward, loss, backward, and the
    new content of the buffers that the forward pass mutates. said: gets what torch says."""
    start = time.perf_counter()
    if not module.training:  # in training, layers may be in eval() on purpose
        module.train()
    step = _Step(module, loss, len(inputs))
    with (
        own_tensors_kept(module),
        ExitStack() as stack,
        _modules_annotated(module),
        traceback.preserve_node_meta(),
        corrected(),
        recurrences_whole(),
        resizing_whole(),
        _explained(name),
        kept_messages([] if said is None else said),
        _compiling(),
        _other_tensors_constant(),
    ):
        joint = aot_export_joint_with_descriptors(stack, step, (*inputs, *targets))
    without_checks(joint.graph_module.graph)
    saved = set(module.state_dict())
    placeholders = [n for n in joint.graph_module.graph.nodes if n.op == "placeholder"]
    ends = Ends([], [])
    for node in placeholders:
        if is_token(node.meta["desc"]) and not _read_by_operators(node):
            continue
        ends.inputs.append((node, *_joint_input(node.meta["desc"], len(inputs), saved)))
    output = next(n for n in joint.graph_module.graph.nodes if n.op == "output")
    for result, description in zip(output.args[0], output.meta["desc"], strict=True):
        if isinstance(result, fx.Node) and not is_token(description):
            ends.outputs.append((result, *_joint_output(description)))
    constants = {k: v for k, v in module.named_buffers() if k not in saved}
    first = first_names(module)
    ends = Ends(
        [(n, kind, first.get(target, target)) for n, kind, target in ends.inputs],
        [(n, kind, first.get(target, target)) for n, kind, target in ends.outputs],
    )
    captured = translate(name, "train", module, joint.graph_module, ends, constants, start)
    return captured._replace(graph=name_random_masks(captured.graph))


@contextmanager
def _compiling() -> Iterator[None]:
    """Let models see that they are traced, as torch.export does: transformers' then takes the path
    that does not read what a mask contains."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


def _other_tensors_constant() -> AbstractContextManager[object]:
    """Make constants of tensors that a model or a loss holds beside parameters and buffers: in an
    attribute, a list or a closure. torch.export does; AOTAutograd refuses them otherwise."""
    return tracing(TracingContext(FakeTensorMode(allow_non_fake_inputs=True)))


class _Step(nn.Module):
    """Forward pass and loss in one module, for AOTAutograd to differentiate."""

    def __init__(self, model: nn.Module, loss: Loss, inputs: int) -> None:
        super().__init__()
        self.model = model
        # A module would bring weights of its own into the step; so they are constants.
        self.loss = loss.__call__ if isinstance(loss, nn.Module) else loss
        self.inputs = inputs

    def forward(self, *batch: Tensor) -> tuple[Tensor, ...]:
        output = self.model(*batch[: self.inputs])
        found = [leaf for leaf in leaves_of(output) if isinstance(leaf, Tensor)]
        return self.loss(output, *batch[self.inputs :]), *(leaf.detach() for leaf in found)


@contextmanager
def _modules_annotated(module: nn.Module) -> Iterator[None]:
    """Annotate every traced node with the path of the module that is running.

    AOTAutograd copies a forward node's annotation to its backward nodes.
    """
    entered: list[Any] = []
    hooks = []

    def enter(path: str) -> Callable[..., None]:
        def hook(*_: object) -> None:
            context = traceback.annotate({"module": path})
            context.__enter__()
            entered.append(context)

        return hook

    def leave(*_: object) -> None:
        entered.pop().__exit__(None, None, None)

    for path, child in module.named_modules():
        if path:
            hooks.append(child.register_forward_pre_hook(enter(path)))
            hooks.append(child.register_forward_hook(leave))
    try:
        yield
    finally:
        for handle in hooks:
            handle.remove()
        for context in reversed(entered):  # of a capture that failed inside a layer
            with suppress(KeyError):
                context.__exit__(None, None, None)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn an error of the tracer into a `GolowError` that quotes its first lines."""
    try:
        yield
    except Exception as error:
        if _packs_sequences(error):
            raise GolowError(
                f"torch could not capture {name}: it packs sequences (pack_padded_sequence), whose "
                "shapes depend on the lengths",
                "give the recurrent layer the padded batch and mask its output; the levels above "
                "the graph (eager, compile) may run the model as it is.",
            ) from error
        first = " ".join(line.strip() for line in str(error).strip().splitlines()[:3])
        raise GolowError(
            f"torch could not capture {name}: {type(error).__name__}: {first}",
            "Python control flow that depends on a tensor's content cannot be captured; the levels "
            "above the graph (eager, torchscript, compile) may still run.",
        ) from error


def _packs_sequences(error: Exception) -> bool:
    """Whether the tracer stopped at a packed sequence, or in a recurrent layer that got one."""
    frame = error.__traceback__
    while frame is not None:
        file = Path(frame.tb_frame.f_code.co_filename)
        recurrent = file.match("torch/nn/modules/rnn.py")
        if recurrent and frame.tb_frame.f_locals.get("batch_sizes") is not None:
            return True
        frame = frame.tb_next
    return "_pack_padded_sequence" in str(error) or "_pad_packed_sequence" in str(error)


def _read_by_operators(node: fx.Node) -> bool:
    return any(user.op != "output" for user in node.users)


def _joint_input(description: Any, inputs: int, saved: set[str]) -> tuple[str, str]:
    kind = type(description).__name__
    if kind == "ParamAOTInput":
        return "parameter", description.target.removeprefix("model.")
    if kind == "BufferAOTInput":
        target = description.target.removeprefix("model.")
        return ("buffer" if target in saved else "constant"), target
    if kind == "PlainAOTInput":
        index = description.idx
        return ("input", str(index)) if index < inputs else ("target", str(index - inputs))
    if kind == "TangentAOTInput":
        return "tangent", ""
    raise GolowError(f"the captured step has an input of an unknown kind, {kind}")


def _joint_output(description: Any) -> tuple[str, str]:
    kind = type(description).__name__
    if kind == "PlainAOTOutput":
        return ("loss", "loss") if description.idx == 0 else ("output", str(description.idx - 1))
    if kind == "GradAOTOutput":
        return "gradient", description.grad_of.target.removeprefix("model.")
    if kind == "InputMutationAOTOutput":
        changed = type(description.mutated_input).__name__
        if changed == "PlainAOTInput":
            raise GolowError(
                f"the forward pass changes input {description.mutated_input.idx} of the step in "
                "place, which the levels that need a graph do not follow",
                "leave out inplace=True in the first layer, or let it change a copy: x.clone().",
            )
        if changed == "ParamAOTInput":
            raise GolowError(
                f"the forward pass changes the parameter "
                f"{description.mutated_input.target.removeprefix('model.')}, as an embedding with "
                "max_norm does; the levels that need a graph do not follow that"
            )
        return "buffer", description.mutated_input.target.removeprefix("model.")
    raise GolowError(f"the captured step has an output of an unknown kind, {kind}")
