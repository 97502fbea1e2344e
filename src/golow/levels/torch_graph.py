"""A workload in PyTorch whose iteration is one CUDA graph, captured when it is loaded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from golow.levels import torch_device
from golow.levels.torch_program import TorchProgram
from golow.record import LayerTime, Unsupported
from golow.worker.protocol import LoadReport

# Iterations before the capture, in which libraries set themselves up; as many as PyTorch's
# documentation takes.
WARM_UP = 3


class CapturedProgram(TorchProgram):
    """Each iteration copies its batch to where the graph reads it, and replays the graph.

    The graph has addresses in it and plain numbers: tensors must stay where they are, and with
    another learning rate, or without dropout, it is another graph.
    """

    _graph: torch.cuda.CUDAGraph | None = None

    def load(self, bundle: Path) -> LoadReport:
        """As eager does, and then capture."""
        self._graph = None
        report = super().load(bundle)
        start = time.perf_counter()
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._static_inputs = tuple(tensor.clone() for tensor in self.inputs[0])
        self._static_targets = tuple(tensor.clone() for tensor in self.targets[0])
        self._warm_up()
        self._capture()
        self._reset()
        seconds = report.phases["load"] + time.perf_counter() - start
        return msgspec.structs.replace(report, phases={**report.phases, "load": seconds})

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Run the batches; training by a graph of its own, that has this learning rate."""
        try:
            super().outputs(batches, learning_rate, file)
        finally:
            if self.train:
                self._capture()

    def allocated_peak(self) -> int | None:
        """Bytes that the graph holds beyond weights, gradients and state; a replay allocates
        nothing."""
        return self._graph_bytes

    def layers(self, iterations: int) -> tuple[LayerTime, ...]:
        """There are none to be seen."""
        raise Unsupported("", "a CUDA graph is replayed as a whole")

    # ------------------------------------------------------------ how it is done

    def _infer(self, inputs: tuple[Tensor, ...]) -> Any:
        if self._graph is None:
            return super()._infer(inputs)
        return self._replayed(self._graph, inputs, ())

    def _learn(self, inputs: tuple[Tensor, ...], targets: tuple[Tensor, ...]) -> tuple[Tensor, Any]:
        if self._graph is None:
            return super()._learn(inputs, targets)
        loss, output = self._replayed(self._graph, inputs, targets)
        return loss, output

    def _replayed(
        self, graph: torch.cuda.CUDAGraph, inputs: tuple[Tensor, ...], targets: tuple[Tensor, ...]
    ) -> Any:
        for static, tensor in zip(self._static_inputs, inputs, strict=True):
            static.copy_(tensor)
        if self.train:
            for static, tensor in zip(self._static_targets, targets, strict=True):
                static.copy_(tensor)
        graph.replay()
        return self._result

    def _train_outputs(self, batches: list[int], learning_rate: float) -> dict[str, Tensor]:
        assert self.optimizer is not None  # noqa: S101
        self.optimizer.param_groups[0]["lr"] = learning_rate
        self._capture()
        return super()._train_outputs(batches, learning_rate)

    def _sgd(self, fused: bool | None = None) -> torch.optim.SGD:
        # With a scaler only the fused one leaves the question whether to skip to the GPU; the other
        # asks the host, which cannot be captured.
        return super()._sgd(fused=True if self.arithmetic.scaled else fused)

    def _forget_momentum(self, optimizer: torch.optim.SGD) -> None:
        for state in optimizer.state.values():
            if state.get("momentum_buffer") is not None:
                state["momentum_buffer"].zero_()

    def _warm_up(self) -> None:
        """Some iterations on the stream that is captured afterwards, as PyTorch asks for."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UP):
                self._captured_iteration()
        torch.cuda.current_stream().wait_stream(self._stream)

    def _capture(self) -> None:
        """Capture the iteration as everything is set now; nothing runs and no state changes."""
        self._graph = self._result = None  # the memory of a graph captured before is free now
        if self.optimizer is not None:
            # Gradients are then made, and not added to, in the graph's own memory.
            self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()

        def capture() -> None:
            with torch.cuda.graph(graph, stream=self._stream):
                self._result = self._captured_iteration()

        peak = torch_device.allocated_peak(capture)
        # An eager iteration finds the gradients of the one before it, too.
        gradients = (p.grad for p in self.module.parameters() if p.grad is not None)
        self._graph_bytes = peak - sum(gradient.nbytes for gradient in gradients)
        self._graph = graph

    def _captured_iteration(self) -> Any:
        """Eager's iteration on the static batch; without autograd's graph, which would live on."""
        if not self.train:
            return super()._infer(self._static_inputs)
        result = super()._learn(self._static_inputs, self._static_targets)
        return pytree.tree_map_only(Tensor, Tensor.detach, result)
