"""The exporting process: ``python -m golow.levels.peers.export_process EXPORTER BUNDLE FOLDER``.

It builds the bundle's module, calls ``export`` of the module EXPORTER, or the function that it
names behind a colon, to write it into the folder, and writes a report there. This file imports
torch, so no other file imports it.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from golow.levels.peers.exported_program import REPORT, ExportReport
from golow.lower.capture.module_outputs import leaves_of
from golow.records.errors import GolowError, Unsupported
from golow.worker.serve import end_with_parent
from golow.workload.as_prepared import as_prepared
from golow.workload.bundle import Bundle
from golow.workload.source import build_module
from golow.workload.weights import load_weights


class FlatOutputs(nn.Module):
    """The module with its outputs as a tuple in tree order, which every exporter can express."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> tuple[Any, ...]:
        """The leaves of the tree of tensors that the module returns."""
        return tuple(leaves_of(self.module(*inputs)))


def export(exporter: str, bundle: Bundle, folder: Path) -> ExportReport:
    """Export the bundle's module into the folder."""
    workload = bundle.workload
    torch.set_num_threads(workload.threads)
    try:
        module, inputs = _module(bundle), _inputs(bundle)
        # Timed from here: every level loads torch and the model.
        start = time.perf_counter()
        with torch.no_grad():
            name, _, function = exporter.partition(":")
            write = getattr(importlib.import_module(name), function or "export")
            write(module, inputs, workload, folder)
        return ExportReport(digest=workload.digest, seconds=time.perf_counter() - start)
    except Unsupported as error:
        return ExportReport(digest=workload.digest, unsupported=error.reason)
    except GolowError as error:
        return ExportReport(digest=workload.digest, failed=error.message)
    except Exception as error:
        traceback.print_exc()
        first = next(iter(str(error).strip().splitlines()), "")
        return ExportReport(digest=workload.digest, failed=f"{type(error).__name__}: {first}")


def _module(bundle: Bundle) -> nn.Module:
    module = build_module(bundle.workload.source, bundle.folder)
    load_weights(module, load_file(bundle.file("weights.safetensors")))
    return FlatOutputs(as_prepared(module, bundle.workload)).eval()


def _inputs(bundle: Bundle) -> tuple[Tensor, ...]:
    """The first batch, as the module takes it."""
    tensors = load_file(bundle.file("batches.safetensors"))
    return tuple(tensors[f"0/input/{i}"] for i in range(len(bundle.workload.inputs)))


def main(exporter: str, bundle: str, folder: str) -> None:
    """Export and write the report."""
    end_with_parent()
    report = export(exporter, Bundle(Path(bundle)), Path(folder))
    (Path(folder) / REPORT).write_bytes(msgspec.json.encode(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
