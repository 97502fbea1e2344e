"""A level that writes a source, in the test's own process: the source is written and run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
from torch import Tensor, nn

from golow.levels.direct.bundle_arrays import Batch
from golow.levels.traced.execution import SourceExecution
from golow.levels.traced.lowered import SOURCE, Passes, Source, passes
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.records.workload import Device, Mode, Optimizer, Precision, Workload
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.direct.in_process import OPTIMIZER, STEPS, Network, Tensors

Open = Callable[[Path, Graph, Workload], SourceExecution]


def lower(
    module: nn.Module,
    inputs: Tensor | tuple[Tensor, ...],
    mode: Mode,
    optimizer: Optimizer = OPTIMIZER,
    loss: str = "cross_entropy",
    precision: Precision = "default",
    device: Device = "cpu",
    passes: Passes = passes,
) -> Network:
    """A workload as such a level lowers it. precision: also one that golow offers on a GPU only.
    device: for which the source is written; it runs here."""
    request = Request(
        module, inputs, mode=mode, optimizer=optimizer, loss=loss if mode == "train" else None
    )
    prepared = prepare(request)
    workload = msgspec.structs.replace(prepared.workload, precision=precision, device=device)
    prepared = prepared._replace(workload=workload)
    captured = capture(prepared)
    clean = apply(captured.graph, CLEAN_UP)
    return Network(prepared, apply(clean, passes(prepared.workload)), captured.constants)


@contextmanager
def loaded(network: Network, source: Source, opened: Open) -> Iterator[SourceExecution]:
    """The source, written and imported, with the network's weights."""
    with TemporaryDirectory() as folder:
        text = source(network.graph, network.prepared.workload)
        Path(folder, SOURCE).write_text(text)
        execution = opened(Path(folder), network.graph, network.prepared.workload)
        execution.load(lambda kind, target: _weight(network, kind, target))
        yield execution


def batch_of(network: Network, step: int) -> Batch:
    """The arrays of a batch."""
    batch = network.prepared.batches[step]
    arrays = {("input", str(i)): t.numpy() for i, t in enumerate(batch.inputs)}
    if network.trains:
        arrays |= {("target", str(i)): t.numpy() for i, t in enumerate(batch.targets)}
    return arrays


def compute(network: Network, source: Source, opened: Open) -> Tensors:
    """What the level gives in `STEPS` iterations, by ``STEP/KIND/TARGET``."""
    with loaded(network, source, opened) as execution:
        found: Tensors = {}
        for step in range(STEPS):
            execution.run_captured(execution.put_batch(batch_of(network, step)))
            for key in execution.built.outputs:
                read = execution.result if key in execution.found else execution.read
                found[f"{step}/{'/'.join(key)}"] = read(key)
        return found


def _weight(network: Network, kind: str, target: str) -> np.ndarray:
    if kind == "constant":
        return network.constants[target].detach().numpy()
    return network.prepared.module.state_dict()[target].detach().numpy()
