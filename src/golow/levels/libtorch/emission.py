"""A workload as a C++ project that builds and runs without golow."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from golow.levels.libtorch.batch_size import step_for_sizes
from golow.levels.libtorch.project import write_project
from golow.levels.torch.program import TorchProgram
from golow.lower.aten.translation import Captured
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.lower.recognise.plain_calls import to_plain_calls
from golow.records.errors import GolowError, Unsupported
from golow.storage.files import writing
from golow.storage.scratch import scratch_folder
from golow.workload.batch import Batch
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.graph_capture import capture
from golow.workload.prepare import Prepared


def emit(prepared: Prepared, folder: Path) -> list[Path]:
    """Write the program of the ``libtorch`` level with weights, an example batch and eager's
    results for it; returns the files.

    Raises `GolowError` if the folder holds something else or cannot be written, `Unsupported` if
    the graph has an operation that cannot be emitted.
    """
    captured = capture(prepared)
    graph = _cleaned(captured.graph)
    for_any = _for_any_batch(prepared, captured)
    with scratch_folder() as scratch:
        bundle, prepared = write_bundle(prepared, scratch / "bundle")
        expected = scratch / "expected.safetensors"
        _write_results(bundle, expected)
        with writing(folder, "free some space, or name another folder with --out."):
            return write_project(
                for_any or graph,
                load_file(bundle.file("weights.safetensors")),
                captured.constants,
                {
                    name: tensor
                    for name, tensor in load_file(bundle.file("batches.safetensors")).items()
                    if name.startswith("0/")
                },
                {
                    name: tensor
                    for name, tensor in load_file(expected).items()
                    if name.split("/")[1] in ("output", "loss")
                },
                prepared.workload,
                folder,
                any_batch=for_any is not None,
            )


def _write_results(bundle: Bundle, file: Path) -> None:
    """Write eager's results. Eager sets PyTorch's threads as in a worker, which this process is
    not: they are put back."""
    threads, eager = torch.get_num_threads(), TorchProgram()
    try:
        eager.load(bundle.folder)
        eager.outputs([0], bundle.workload.optimizer.learning_rate, file)
    finally:
        torch.set_num_threads(threads)


def _cleaned(graph: Graph) -> Graph:
    return apply(graph, (to_plain_calls, *CLEAN_UP))


def _for_any_batch(prepared: Prepared, captured: Captured) -> Graph | None:
    """The graph of inference with the number of samples left open, from what is captured at two
    sizes; None if it depends on the batch in another way."""
    rows, inputs = prepared.workload.batch, prepared.batches[0].inputs
    if prepared.loss is not None or any(not x.dim() or x.shape[0] != rows for x in inputs):
        return None
    # A graph captured at a batch of one has other views and expansions.
    sizes = (rows, 2 * rows) if rows > 1 else (2, 3)
    found = [captured] if rows > 1 else []
    try:
        for size in sizes[len(found) :]:
            index = torch.arange(size) % rows
            resized = Batch(tuple(x.index_select(0, index) for x in inputs))
            found.append(capture(prepared._replace(batches=(resized,))))
        one, other = found
        same = one.constants.keys() == other.constants.keys() == captured.constants.keys() and all(
            torch.equal(item, captured.constants[name])
            for each in found
            for name, item in each.constants.items()
        )
        return step_for_sizes(_cleaned(one.graph), _cleaned(other.graph), sizes) if same else None
    except (GolowError, Unsupported):
        return None
