"""A workload in PyTorch whose iteration is one CUDA graph, captured at load."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from golow.levels.torch import device as torch_device
from golow.levels.torch import known_memory, optimizers
from golow.levels.torch.program import TorchProgram
from golow.levels.torch.step import Parts
from golow.lower.capture.module_outputs import mapped
from golow.records.comparison import LayerTime
from golow.records.errors import GolowError, Unsupported
from golow.records.workload import Workload
from golow.worker.protocol import LoadReport

# Iterations before the capture, in which libraries initialise; the number is from PyTorch's
# documentation.
WARM_UP = 3


class StaticBatch(NamedTuple):
    """The tensors from which a graph reads its batch."""

    inputs: tuple[Tensor, ...]
    targets: tuple[Tensor, ...]

    def take(self, inputs: tuple[Tensor, ...], targets: tuple[Tensor, ...]) -> None:
        """Copy a batch into these tensors."""
        given = (*inputs, *targets)
        for static, tensor in zip((*self.inputs, *self.targets), given, strict=True):
            static.copy_(tensor)


class Captured(NamedTuple):
    """A graph, the tensors from which it reads its batch, and those that hold its result."""

    graph: torch.cuda.CUDAGraph
    batch: StaticBatch
    result: Any

    def replay(self, inputs: tuple[Tensor, ...], targets: tuple[Tensor, ...]) -> Any:
        """Run the graph on this batch; the result is valid until the next run of any graph."""
        self.batch.take(inputs, targets)
        self.graph.replay()
        return self.result


class CapturedProgram(TorchProgram):
    """Each iteration copies its batch to where the graph reads it, and replays the graph.

    The graph contains addresses and plain numbers: tensors must stay where they are, and another
    batch size, or the step without dropout, needs another graph. The learning rate is a tensor.
    """

    def __init__(self) -> None:
        super().__init__()
        self._graphs: dict[int, Captured] = {}  # by the rows of a batch

    def load(self, bundle: Path) -> LoadReport:
        """Load as eager does, then capture."""
        self._graphs = {}
        report = super().load(bundle)
        start = time.perf_counter()
        self._record()
        captured = time.perf_counter() - start
        self._reset()
        phases = {
            "load": report.phases["load"] + time.perf_counter() - start,
            "capture": report.phases["capture"] + captured,
        }
        return msgspec.structs.replace(report, phases={**report.phases, **phases})

    def adopt(self, module: nn.Module, inputs: tuple[Tensor, ...], workload: Workload) -> None:
        """Take a module as eager does, then capture."""
        self._graphs = {}
        super().adopt(module, inputs, workload)
        self._record()

    def infer(self, inputs: tuple[Tensor, ...]) -> Any:
        """A copy of the output, which the next replay would overwrite."""
        return mapped(Tensor.clone, super().infer(inputs))

    def allocated_peak(self) -> int | None:
        """Bytes that the graph of a whole batch holds beyond weights, gradients and state; a
        replay allocates nothing."""
        return self._graph_bytes

    def layers(self, iterations: int) -> tuple[LayerTime, ...]:
        """Not supported: the layers cannot be told apart."""
        raise Unsupported("", "a CUDA graph is replayed as a whole")

    # ------------------------------------------------------------ implementation

    def _record(self) -> None:
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._static = self._static_batches()
        self._warm_up()
        self._capture()

    def _iterate_in_parts(self, parts: Parts) -> None:
        self.iterate()

    def _known_memory(self) -> Iterator[tuple[str, str, Tensor]]:
        yield from super()._known_memory()
        yield from known_memory.of_batches("static input", (batch.inputs for batch in self._static))
        yield from known_memory.of_batches(
            "static target", (batch.targets for batch in self._static)
        )

    def _infer(self, inputs: tuple[Tensor, ...]) -> Any:
        if not self._graphs:
            return super()._infer(inputs)
        return self._graph_for(inputs).replay(inputs, ())

    def _learn(self, inputs: tuple[Tensor, ...], targets: tuple[Tensor, ...]) -> tuple[Tensor, Any]:
        if not self._graphs:
            return super()._learn(inputs, targets)
        loss, output = self._graph_for(inputs).replay(inputs, targets)
        return loss, output

    def _graph_for(self, inputs: tuple[Tensor, ...]) -> Captured:
        rows = len(inputs[0])
        if rows not in self._graphs:
            raise GolowError(f"there is no graph for a batch of {rows}, only {list(self._graphs)}")
        return self._graphs[rows]

    def _optimizer(self) -> torch.optim.Optimizer:
        settings = self.workload.optimizer
        if settings.name == "rmsprop":
            if self.arithmetic.scaled:
                reason = "PyTorch's RMSprop asks the host whether to skip a step of fp16"
                raise Unsupported("cudagraph", reason)
            self.habits.optimizer = "foreach"
        else:
            # Only the fused kernels read the learning rate, and whether the scaler skips the step,
            # on the GPU. The others ask the host, which cannot be captured.
            self.habits.optimizer = "fused"
        kernels = optimizers.Kernels(self.habits.optimizer, captured=True)
        optimizer = optimizers.create(self.module.parameters(), settings, kernels)
        rate = torch.tensor(settings.learning_rate, device=self.device)
        optimizer.param_groups[0]["lr"] = rate
        return optimizer

    def _update(self, optimizer: torch.optim.Optimizer) -> None:
        # The fused SGD leaves new momentum uninitialised for its first step to write; if the scaler
        # skips that step, the next one reads it (seen with PyTorch 2.13).
        settings = self.workload.optimizer
        if self.scaler is not None and settings.name == "sgd" and settings.momentum:
            for parameter in self.module.parameters():
                if parameter.grad is not None and not optimizer.state[parameter]:
                    zeros = torch.zeros_like(parameter, requires_grad=False)
                    optimizer.state[parameter]["momentum_buffer"] = zeros
        super()._update(optimizer)

    def _set_learning_rate(self, rate: float) -> None:
        self.optimizer.param_groups[0]["lr"].fill_(rate)

    def _forget(self, optimizer: torch.optim.Optimizer) -> None:
        optimizers.forget(optimizer)

    @contextmanager
    def _random_layers_off(self) -> Iterator[None]:
        if not self.workload.random_layers:
            yield
            return
        try:
            with super()._random_layers_off():
                self._capture()
                yield
        finally:
            self._capture()

    def _static_batches(self) -> list[StaticBatch]:
        """One for a whole batch, and one for an epoch's smaller last batch, if there is one."""
        sizes = [self.workload.batch]
        if self.train and self.bundle.last is not None:
            sizes.append(self.bundle.last.workload.batch)
        return [
            StaticBatch(
                tuple(self._rows(tensor, rows) for tensor in self.inputs[0]),
                tuple(self._rows(tensor, rows) for tensor in self.targets[0]),
            )
            for rows in sizes
        ]

    def _rows(self, tensor: Tensor, rows: int) -> Tensor:
        # A draw need not have a row for each sample.
        return tensor.clone() if rows == self.workload.batch else tensor[:rows].clone()

    def _warm_up(self) -> None:
        """Run some iterations on the stream that is captured afterwards, as PyTorch requires."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for batch in self._static:
                for _ in range(WARM_UP):
                    self._iterate_on(batch)
        torch.cuda.current_stream().wait_stream(self._stream)

    def _capture(self) -> None:
        """Capture the iteration with the current settings; nothing runs and no state changes."""
        self._graphs = {}  # frees the memory of earlier graphs
        whole, *last = self._static
        graphs: list[Captured] = []
        peak = torch_device.allocated_peak(lambda: graphs.append(self._capture_batch(whole)))
        gradients = [parameter.grad for parameter in self.module.parameters()]
        # In eager, too, the gradients of the previous iteration are there before an iteration.
        self._graph_bytes = peak - sum(grad.nbytes for grad in gradients if grad is not None)
        # Only one graph runs at a time: the smaller shares the larger's memory, except gradients.
        graphs += [self._capture_batch(batch, graphs[0].graph.pool()) for batch in last]
        # Back to the gradients of the whole batch's graph, which `outputs` reads.
        for parameter, gradient in zip(self.module.parameters(), gradients, strict=True):
            parameter.grad = gradient
        self._graphs = {len(captured.batch.inputs[0]): captured for captured in graphs}

    def _capture_batch(self, batch: StaticBatch, pool: Any = None) -> Captured:
        if self.train:
            # Gradients are then created in the graph's own memory, not accumulated.
            self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=self._stream):
            result = self._iterate_on(batch)
        return Captured(graph, batch, result)

    def _iterate_on(self, batch: StaticBatch) -> Any:
        """Eager's iteration on the static batch; detached, to release autograd's graph."""
        if not self.train:
            return super()._infer(batch.inputs)
        result = super()._learn(batch.inputs, batch.targets)
        return mapped(Tensor.detach, result)
