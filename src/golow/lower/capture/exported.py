"""Captures a forward pass with torch.export."""

from __future__ import annotations

import torch
from torch import Tensor, fx, nn
from torch.export.graph_signature import InputKind as ExportInput
from torch.export.graph_signature import OutputKind as ExportOutput

from golow.lower.aten.recurrence_calls import recurrences_right
from golow.lower.aten.scan_calls import linear_scans_whole
from golow.lower.aten.translation import Captured, Ends, translate
from golow.lower.capture.capture_messages import kept_messages
from golow.lower.capture.complex_literals import hold_complex_literals
from golow.lower.capture.data_assignments import data_assignments_refused
from golow.lower.capture.distribution_checks import distributions_unchecked
from golow.lower.capture.explained import explained
from golow.lower.capture.regions import inline_regions
from golow.lower.capture.shared_tensors import first_names
from golow.lower.capture.short_time_transforms import inverse_spectra_in_graph
from golow.lower.capture.whole_branches import choices_in_graph


def exported_graph(
    name: str, module: nn.Module, inputs: tuple[Tensor, ...], said: list[str], start: float
) -> Captured:
    """The graph of ``module(*inputs)``, as torch.export sees it before decomposition.

    said: receives torch's messages. start: when the capture began (`time.perf_counter`).
    """
    with (
        explained(name),
        recurrences_right(),
        linear_scans_whole(),
        choices_in_graph(),
        inverse_spectra_in_graph(),
        data_assignments_refused(),
        distributions_unchecked(),
        kept_messages(said),
    ):
        program = torch.export.export(module, inputs, strict=False)
        if _is_mapped(program.graph):
            program = program.run_decompositions({})
    inline_regions(program.graph_module)
    hold_complex_literals(program.graph_module)
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
    """True if it enters and leaves functions of torch.func, such as vmap, which a second trace
    resolves; nothing else changes by it."""
    return any(
        getattr(node.target, "__module__", "") == "torch._functorch.predispatch"
        for node in graph.nodes
    )
