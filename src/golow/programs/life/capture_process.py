"""The capturing process: ``python -m golow.programs.life.capture_process BUNDLE REPORT``.

It captures the bundle's graph as golow does, in a separate process, so that each capture is a
first one, and writes the seconds. This file imports torch, so no other file imports it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec
import torch

from golow.levels.torch import bundle as torch_bundle
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.programs.life.capturing import CaptureReport
from golow.records.errors import GolowError
from golow.worker.serve import end_with_parent
from golow.workload.batch import Batch
from golow.workload.bundle import Bundle
from golow.workload.graph_capture import capture
from golow.workload.prepare import Prepared


def captured(bundle: Bundle) -> CaptureReport:
    """Capture the bundle's workload and clean the graph; the graph itself is not kept."""
    workload = bundle.workload
    torch.set_num_threads(workload.threads)
    module = torch_bundle.module(bundle)
    tensors = torch_bundle.tensors(bundle, "batches")
    first = Batch(
        tuple(tensors[f"0/input/{i}"] for i in range(len(workload.inputs))),
        tuple(tensors[f"0/target/{i}"] for i in range(len(workload.targets))),
    )
    loss = torch_bundle.loss(bundle) if workload.mode == "train" else None
    start = time.perf_counter()
    try:
        apply(capture(Prepared(workload, module, (first,), loss)).graph, CLEAN_UP)
    except GolowError as error:
        return CaptureReport(failed=error.message)
    return CaptureReport(seconds=time.perf_counter() - start)


def main(bundle: str, report: str) -> None:
    """Capture and write the report."""
    end_with_parent()
    Path(report).write_bytes(msgspec.json.encode(captured(Bundle(Path(bundle)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
