"""A workload as a C++ project that builds and runs without golow."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file

from golow.levels.libtorch.project import write_project
from golow.levels.torch.program import TorchProgram
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.lower.recognise.recurrences import unfold_recurrences
from golow.storage.files import writing
from golow.storage.scratch import scratch_folder
from golow.workload.bundle import write_bundle
from golow.workload.graph_capture import capture
from golow.workload.prepare import Prepared


def emit(prepared: Prepared, folder: Path) -> list[Path]:
    """Write the program of the level ``libtorch`` with weights, an example batch and eager's
    results for it; returns the files.

    Raises `GolowError` if the folder holds something else or cannot be written, `Unsupported` if
    the graph has an operation that cannot be emitted.
    """
    captured = capture(prepared)
    graph = apply(captured.graph, (unfold_recurrences, *CLEAN_UP))
    with scratch_folder() as scratch:
        bundle, prepared = write_bundle(prepared, scratch / "bundle")
        expected = scratch / "expected.safetensors"
        eager = TorchProgram()
        eager.load(bundle.folder)
        eager.outputs([0], prepared.workload.optimizer.learning_rate, expected)
        with writing(folder, "free some space, or name another folder with --out."):
            return write_project(
                graph,
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
            )
