"""Captures a training step, or a forward pass alone, with AOTAutograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import traceback

from golow.lower.aten.adjacent_heads import heads_adjacent
from golow.lower.aten.dropped_attention_calls import dropped_attention_whole
from golow.lower.aten.recurrence_calls import recurrences_whole
from golow.lower.aten.resizing_calls import resizing_whole
from golow.lower.aten.scan_calls import linear_scans_whole
from golow.lower.aten.translation import Captured, Ends, translate
from golow.lower.capture.capture_messages import kept_messages
from golow.lower.capture.complex_literals import hold_complex_literals
from golow.lower.capture.data_assignments import data_assignments_refused
from golow.lower.capture.dense import require_dense
from golow.lower.capture.distribution_checks import distributions_unchecked
from golow.lower.capture.error_checks import is_token, without_checks
from golow.lower.capture.explained import explained
from golow.lower.capture.module_outputs import leaves_of
from golow.lower.capture.random_masks import name_random_masks
from golow.lower.capture.shared_tensors import first_names, own_tensors_kept
from golow.lower.capture.whole_branches import choices_in_graph
from golow.lower.decompositions.losses import corrected
from golow.records.errors import GolowError
from golow.records.workload import Mode

Loss = Callable[..., Tensor]


def training_graph(
    name: str,
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    targets: tuple[Tensor, ...],
    loss: Loss,
    said: list[str],
    start: float,
) -> Captured:
    """The joint graph of one training step up to the gradients: forward, loss, backward, and the
    new content of the buffers that the forward pass mutates.

    said: receives torch's messages. start: when the capture began (`time.perf_counter`).
    """
    step = _Step(module, loss, len(inputs))
    captured = _graph(name, "train", step, (*inputs, *targets), said, start)
    return captured._replace(graph=name_random_masks(captured.graph))


def forward_graph(
    name: str, module: nn.Module, inputs: tuple[Tensor, ...], said: list[str], start: float
) -> Captured:
    """The graph of ``module(*inputs)`` as AOTAutograd sees it: below autograd, so that gradients
    which the forward pass takes itself are operations like others."""
    with torch.no_grad():
        return _graph(name, "infer", _Pass(module, len(inputs)), inputs, said, start)


def _graph(
    name: str,
    mode: Mode,
    step: _Pass,
    given: tuple[Tensor, ...],
    said: list[str],
    start: float,
) -> Captured:
    module = step.model
    with (
        own_tensors_kept(module),
        ExitStack() as stack,
        _modules_annotated(module),
        traceback.preserve_node_meta(),
        corrected(),
        recurrences_whole(),
        resizing_whole(),
        linear_scans_whole(),
        dropped_attention_whole(),
        heads_adjacent(),
        choices_in_graph(),
        data_assignments_refused(),
        distributions_unchecked(),
        explained(name),
        kept_messages(said),
        _compiling(),
        _other_tensors_constant(),
    ):
        joint = aot_export_joint_with_descriptors(stack, step, given)
    require_dense(joint.graph_module.graph)
    without_checks(joint.graph_module.graph)
    hold_complex_literals(joint.graph_module)
    saved = set(module.state_dict())
    placeholders = [n for n in joint.graph_module.graph.nodes if n.op == "placeholder"]
    ends = Ends([], [])
    for node in placeholders:
        if is_token(node.meta["desc"]) and not _read_by_operators(node):
            continue
        ends.inputs.append((node, *_joint_input(node.meta["desc"], step.inputs, saved)))
    output = next(n for n in joint.graph_module.graph.nodes if n.op == "output")
    for result, description in zip(output.args[0], output.meta["desc"], strict=True):
        if isinstance(result, fx.Node) and not is_token(description):
            ends.outputs.append((result, *_joint_output(description, mode, step)))
    constants = {k: v for k, v in module.named_buffers() if k not in saved}
    first = first_names(module)
    ends = Ends(
        [(n, kind, first.get(target, target)) for n, kind, target in ends.inputs],
        [(n, kind, first.get(target, target)) for n, kind, target in ends.outputs],
    )
    return translate(name, mode, module, joint.graph_module, ends, constants, start)


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
    """Make constants of tensors that a model or a loss holds besides parameters and buffers: in an
    attribute, a list or a closure. torch.export does; AOTAutograd refuses them otherwise."""
    return tracing(TracingContext(FakeTensorMode(allow_non_fake_inputs=True)))


class _Pass(nn.Module):
    """A forward pass with its results in a tuple: outputs, and the new content of buffers that the
    model replaces by other tensors, which nothing else would tell. inputs: how many it takes.
    outputs, replaced: their number and the names of these buffers, known when it has run."""

    def __init__(self, model: nn.Module, inputs: int) -> None:
        super().__init__()
        self.model = model
        self.inputs, self.outputs = inputs, 0
        self.replaced: tuple[str, ...] = ()
        self.before: dict[str, Tensor] = {}

    def results(self, output: Any) -> tuple[Tensor, ...]:
        """Detached: what the forward pass has taken itself may be differentiable once more."""
        found = [leaf.detach() for leaf in leaves_of(output) if isinstance(leaf, Tensor)]
        after = dict(self.model.named_buffers())
        changed = {n: after[n] for n, b in self.before.items() if after.get(n, b) is not b}
        self.outputs, self.replaced = len(found), tuple(changed)
        return *found, *(buffer.detach() for buffer in changed.values())

    def called(self, *batch: Tensor) -> Any:
        """The model's own output."""
        self.before = dict(self.model.named_buffers())
        return self.model(*batch)

    def target_of(self, position: int) -> tuple[str, str]:
        """Kind of a result in the graph."""
        if position < self.outputs:
            return "output", str(position)
        return "buffer", self.replaced[position - self.outputs]

    def forward(self, *batch: Tensor) -> tuple[Tensor, ...]:
        return self.results(self.called(*batch))


class _Step(_Pass):
    """Forward pass and loss in one module, for AOTAutograd to differentiate."""

    def __init__(self, model: nn.Module, loss: Loss, inputs: int) -> None:
        super().__init__(model, inputs)
        # A module would bring separate weights into the step; so they are constants.
        self.loss = loss.__call__ if isinstance(loss, nn.Module) else loss

    def forward(self, *batch: Tensor) -> tuple[Tensor, ...]:
        output = self.called(*batch[: self.inputs])
        _require_detached(self.model)
        return self.loss(output, *batch[self.inputs :]), *self.results(output)


def _require_detached(model: nn.Module) -> None:
    """Raise `GolowError` for a buffer that holds a value with a gradient: the backward pass of the
    next step would continue into this one, which PyTorch refuses there."""
    for name, buffer in model.named_buffers():
        if buffer.requires_grad:
            raise GolowError(
                f"the model writes a value that has a gradient into its buffer {name}, so a second "
                "training step cannot run backward",
                "write value.detach() into the buffer.",
            )


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


def _joint_output(description: Any, mode: Mode, step: _Pass) -> tuple[str, str]:
    kind = type(description).__name__
    if kind == "PlainAOTOutput" and mode == "infer":
        return step.target_of(description.idx)
    if kind == "PlainAOTOutput":
        return ("loss", "loss") if description.idx == 0 else step.target_of(description.idx - 1)
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
