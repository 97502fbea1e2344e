"""The level `cudnn` in the test's own process: `compute` builds and runs the real plan on the real
GPU."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from torch import Tensor, nn

from golow.check.rounding import BF16, FLOAT32, FP16, TF32, Rounding
from golow.levels.direct.bundle_arrays import Batch
from golow.levels.direct.cudnn.bindings.device import Gpu
from golow.levels.direct.cudnn.engines.engines import Engines
from golow.levels.direct.cudnn.passes import passes
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.run.execution import Execution
from golow.levels.direct.cudnn.shared_kernels.dropout import CONTROL
from golow.levels.direct.cudnn.shared_kernels.loss_scale import SCALER
from golow.levels.direct.cudnn.steps.built_plan import LOSS_SCALE
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.records.workload import Mode, Optimizer, Precision
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.direct.in_process import OPTIMIZER, STEPS, Network, Tensors, clipped
from support.direct.step_checks import steps_check

SCALE = 1024.0

ROUNDING: dict[Precision, float] = {"tf32": 2.0**-11, "bf16": 2.0**-8, "fp16": 2.0**-11}

WORKING: dict[Precision, Rounding] = {
    "default": TF32,
    "ieee": FLOAT32,
    "tf32": TF32,
    "bf16": BF16,
    "fp16": FP16,
}

OF_CUDNNS_LSTM = 256
"""Roundings of a tensor's size by which cuDNN's LSTM is off in float32. PyTorch's call of it on the
same GPU is off by 66 to 84 in the hidden states and 59 to 157 in the gradient of a linear layer
behind it, where PyTorch's own kernels are off by 2 and 2 to 4 (H100, cuDNN 9.19, six seeds)."""


class OnGpu:
    """The first GPU with its engines, for all tests of a session."""

    def __init__(self, cache: Path, autotune: bool = False) -> None:
        self.gpu = Gpu(cache / "kernels")
        self.engines = Engines(self.gpu, cache / "engines", autotune)


def lowered(
    module: nn.Module,
    inputs: Tensor | tuple[Tensor, ...],
    mode: Mode,
    optimizer: Optimizer = OPTIMIZER,
    loss: str = "cross_entropy",
    precision: Precision = "default",
) -> Network:
    """Prepared and captured as `golow.compare` does, and as this level lowers it."""
    prepared = prepare(
        Request(
            module, inputs, mode=mode, optimizer=optimizer, loss=loss if mode == "train" else None
        )
    )
    captured = capture(prepared)
    workload = msgspec.structs.replace(prepared.workload, precision=precision)
    graph = apply(apply(captured.graph, CLEAN_UP), passes(workload))
    return Network(prepared, graph, captured.constants)


class Running:
    """The plan of a network, loaded with its weights; dropout is off."""

    def __init__(self, network: Network, on: OnGpu, precision: Precision = "ieee") -> None:
        self.network, self.types = network, TYPES[precision]
        self.state = {
            name: tensor.detach().numpy().copy()
            for name, tensor in network.prepared.module.state_dict().items()
        }
        batches = [_arrays(batch) for batch in network.prepared.batches]
        self.built = build_plan(network.graph, on.engines, self.types, len(batches))
        sources = {item.value.name: item for item in network.graph.inputs}
        self.observed = False
        self.execution = Execution(self.built, on.gpu, sources, batches, self._weight)
        self.fill_state()

    def _weight(self, kind: str, target: str) -> np.ndarray:
        if kind == "constant":
            return self.network.constants[target].detach().numpy()
        return self.state[target]

    def fill_state(self) -> None:
        """Write weights, learning rate and loss scale; random layers are off."""
        rate = self.network.prepared.workload.optimizer.learning_rate
        for (kind, target), tensor in self.built.inputs.items():
            if kind == "learning_rate":
                self.execution.write(tensor, np.array(rate, np.float32))
            elif self.network.trains and kind in ("parameter", "buffer"):
                self.execution.write(tensor, self._weight(kind, target))
        self.execution.renew_copies()
        self.execution.write_cell(LOSS_SCALE, np.array((SCALE, 0, 0), SCALER))
        self.set_dropout(None)

    def set_dropout(self, probability: float | None) -> None:
        """Drop with this probability; as the layers say for a negative one, nothing for None."""
        for cell in self.built.cells:
            if cell.kind == "dropout":
                own = cell.probability
                chance = 0.0 if probability is None else own if probability < 0 else probability
                self.execution.write_cell(cell, np.array((7, 0, chance), CONTROL))

    def step(self, index: int) -> Tensors:
        """Run an iteration. The first is observed and gives every end of the graph; later ones run
        as one CUDA graph, in which gradients share memory with what follows them."""
        ends = self.built.outputs
        if self.network.trains and not self.observed:
            read = self.execution.run_observed(index, ends)
        else:
            self.execution.run(index)
            kept = {key: tensor for key, tensor in ends.items() if key[0] != "gradient"}
            read = {key: self.execution.read(tensor) for key, tensor in kept.items()}
        self.observed = True
        found = {"/".join(key): array for key, array in read.items()}
        scale = SCALE if self.types.scaled else 1.0
        return clipped(
            {
                name: array / np.float32(scale) if name.startswith("gradient/") else array
                for name, array in found.items()
            }
        )


def compute(network: Network, on: OnGpu, precision: Precision = "ieee") -> Tensors:
    """What the level gives in `STEPS` iterations, by ``STEP/KIND/TARGET``. Each operation of the
    first is right by itself."""
    running = Running(network, on, precision)
    assert_steps(running, precision)
    found: Tensors = {}
    for step in range(STEPS):
        found |= {f"{step}/{name}": array for name, array in running.step(step).items()}
    return found


def _arrays(batch: object) -> Batch:
    kinds = {"input": batch.inputs, "target": batch.targets}  # type: ignore[attr-defined]
    return {
        (kind, str(position)): tensor.contiguous().numpy()
        for kind, tensors in kinds.items()
        for position, tensor in enumerate(tensors)
    }


def assert_near(network: Network, on: OnGpu, precision: Precision, roundings: float = 60) -> None:
    """Every tensor is as near to float64 as a few roundings of each value let it be."""
    found, (wanted, _, _) = compute(network, on, precision), network.references
    for name in wanted.keys() & found.keys():
        right = wanted[name]
        distance = float(np.linalg.norm(found[name] - right))
        size = float(np.linalg.norm(right)) + 1e-2 * right.size**0.5
        error = distance / (ROUNDING[precision] * size)
        assert error <= roundings, f"{name}: {error:.0f} roundings"


def assert_steps(running: Running, precision: Precision) -> None:
    """Every operation of an iteration is right by itself; the state is then as it was before."""
    execution = running.execution
    run = partial(execution.run_watched, 0)
    found = steps_check(running.network, execution, run, WORKING[precision])
    execution.forget()
    running.fill_state()
    assert not found.failed, "; ".join(item.words for item in found.wrong)
