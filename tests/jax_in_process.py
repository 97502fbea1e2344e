"""The level `jax` in the test's own process: `compute` writes and runs the real source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import msgspec
import numpy as np
from torch import Tensor, nn

from golow.levels import jax as level
from golow.levels.jax.execution import Execution
from golow.levels.sources.lowered import SOURCE
from golow.levels.vendor.bundle_arrays import Batch
from golow.lower.passes import CLEAN_UP, apply
from golow.record import Device, Mode, Optimizer, Precision
from golow.workload.captured import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from in_process import OPTIMIZER, STEPS, Network, Tensors


def lower(
    module: nn.Module,
    inputs: Tensor | tuple[Tensor, ...],
    mode: Mode,
    optimizer: Optimizer = OPTIMIZER,
    loss: str = "cross_entropy",
    precision: Precision = "default",
    device: Device = "cpu",
) -> Network:
    """A workload as the level lowers it. precision: also one that golow offers on a GPU only.
    device: for which the source is written; it runs here."""
    request = Request(
        module, inputs, mode=mode, optimizer=optimizer, loss=loss if mode == "train" else None
    )
    prepared = prepare(request)
    workload = msgspec.structs.replace(prepared.workload, precision=precision, device=device)
    prepared = prepared._replace(workload=workload)
    captured = capture(prepared)
    clean = apply(captured.graph, CLEAN_UP)
    return Network(prepared, apply(clean, level.passes(prepared.workload)), captured.constants)


@contextmanager
def loaded(network: Network) -> Iterator[Execution]:
    """The source, written and imported, with the network's weights."""
    with TemporaryDirectory() as folder:
        text = level.source(network.graph, network.prepared.workload)
        Path(folder, SOURCE).write_text(text)
        execution = Execution(Path(folder), network.graph, network.prepared.workload)
        jax.config.update("jax_enable_compilation_cache", False)  # the folder goes away
        execution.load(lambda kind, target: _weight(network, kind, target))
        yield execution


def batch_of(network: Network, step: int) -> Batch:
    """The arrays of a batch."""
    batch = network.prepared.batches[step]
    arrays = {("input", str(i)): t.numpy() for i, t in enumerate(batch.inputs)}
    if network.trains:
        arrays |= {("target", str(i)): t.numpy() for i, t in enumerate(batch.targets)}
    return arrays


def compute(network: Network) -> Tensors:
    """What the level gives in `STEPS` iterations, by ``STEP/KIND/TARGET``."""
    with loaded(network) as execution:
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
