"""The base of the levels inside PyTorch: answers the protocol's requests for one workload, whose
iteration is `TorchStep`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.amp import GradScaler

from golow.levels.torch import bundle as torch_bundle
from golow.levels.torch import device as torch_device
from golow.levels.torch import device_feed as torch_feed
from golow.levels.torch import known_memory, optimizers
from golow.levels.torch import memory as torch_memory
from golow.levels.torch import state as torch_state
from golow.levels.torch.batches import Batch
from golow.levels.torch.parts_of_ranks import own_part, whole
from golow.levels.torch.step import TorchStep
from golow.lower.capture.module_outputs import leaves_of
from golow.records.comparison import LayerTime
from golow.records.errors import Unsupported
from golow.records.workload import Mode
from golow.worker.feed import Feed
from golow.worker.loss_scale import settle_loss_scale
from golow.worker.protocol import CopiesReport, LoadReport, Marks
from golow.worker.results import weights
from golow.worker.served_program import Stopwatch
from golow.workload.bundle import Bundle

UNSEEN = 8 * 2.0**-23
"""Change of a float64 buffer, relative to its largest element, that float32 need not show."""


class TorchProgram(TorchStep):
    """A workload run by PyTorch, as a worker serves it."""

    builds_on_first_iteration = False
    indivisible = "it does not call a module whose layers can be timed"

    def load(self, bundle: Path) -> LoadReport:
        """Build the module, load the bundle's weights, lower it."""
        start = time.perf_counter()
        self._read(Bundle(bundle))
        loaded = time.perf_counter()
        self._lower()
        lowered = time.perf_counter()
        if self.builds_on_first_iteration:
            self.iterate()
            self._try_last_batch()
        built = time.perf_counter()
        if self.scaler is not None:
            self._settle_scale(self.scaler)
        # Lowering and building run the module, which changes its running statistics.
        self._reset()
        ready = time.perf_counter()
        # A trace is made at every start; compiled code comes from a cache the next time.
        builds = self.builds_on_first_iteration
        build = built - loaded if builds else 0.0
        phases = {"load": ready - start - build, "build": build}
        if not builds:
            phases["capture"] = lowered - loaded if self.call is not self.module else 0.0
        return LoadReport(phases=phases, notes=tuple(self.notes))

    def wake(self, mode: Mode) -> None:
        """Create an optimizer that is not used: the first one imports torch's compiler."""
        if mode == "train":
            torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.0)

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Run the batches from the bundle's weights with random layers off; write the tensors."""
        try:
            with self._random_layers_off():
                # Only now: switching them off may trace the module, which changes its statistics.
                self._reset()
                tensors = (
                    self._train_outputs(batches, learning_rate)
                    if self.train
                    else self._infer_outputs(batches)
                )
        finally:
            self._reset()
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)

    def last(self) -> float:
        """The loss, or the first element of the first output that has one."""
        first = next(leaf for leaf in leaves_of(self._last) if leaf.numel())
        return float(first.flatten()[0])

    def reset(self, learning_rate: float) -> None:
        """Back to the bundle's weights and to zero momentum, training then at this rate."""
        self._reset()
        if self.train:
            self._set_learning_rate(learning_rate)

    @contextmanager
    def marked(self, marks: Marks) -> Iterator[Callable[[int], None]]:
        """A function that writes values into the marked part of the next iteration's batch."""
        with self.source.marked(marks) as write:
            yield lambda start: write(self.position % len(self.inputs), start)

    def keep(self) -> None:
        """Keep the last loss, or the weighted sum of the last outputs, on the device."""
        with torch.inference_mode():
            self._results.append(self._last.clone() if self.train else self._weighted_sum())

    def kept(self) -> list[float]:
        """Tensors kept since the last call."""
        if len(self._results) == 1:  # as between two iterations of a chain
            return [self._results.pop().item()]
        numbers: list[float] = torch.stack(self._results).tolist() if self._results else []
        self._results.clear()
        return numbers

    def write_result(self, file: Path) -> None:
        """Write the outputs of the last iteration; in training its loss, and the state."""
        if self.train:
            tensors = torch_state.read(self.module, self._kept_by_optimizer(), None)
            tensors["loss/loss"] = _copy_for_check(self._last)
        else:
            leaves = enumerate(leaves_of(self._last))
            tensors = {f"output/{index}": _copy_for_check(leaf) for index, leaf in leaves}
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)

    def allocated_peak(self) -> int | None:
        """Peak bytes that one iteration holds beyond parameters, buffers and what the optimizer
        keeps, as reported by the GPU's allocator, or on a CPU to the profiler; None where nothing
        counts. The gradients that the iteration before has left are the iteration's own."""
        left = sum(own_part(p.grad).nbytes for p in self.module.parameters() if p.grad is not None)
        if self.device.type == "cuda":
            counted = torch_device.counts_memory()
            return left + torch_device.allocated_peak(self.iterate) if counted else None
        return left + torch_memory.allocated_peak(self.iterate)

    def epoch(self, feed: Feed, rates: Sequence[float]) -> list[float]:
        """Train on the feed's batches; the losses stay on the device until the end."""
        losses = torch.empty(len(rates), dtype=torch.float64, device=self.device)
        fed = torch_feed.batches(feed, self.device)
        batches = (Batch((self._given(inputs),), (labels,)) for inputs, labels in fed)
        for index, rate in enumerate(rates):
            self._set_learning_rate(rate)
            losses[index] = self._learn_fed(batches)
        self._set_learning_rate(self.workload.optimizer.learning_rate)
        return losses.tolist()

    def save(self, file: Path) -> None:
        """Write the state of the training run."""
        save_file(torch_state.read(self.module, self._kept_by_optimizer(), self.scaler), file)

    def restore(self, file: Path) -> None:
        """Continue from a saved state, or run inference with its weights."""
        state = load_file(file)
        self._write_weights(torch_state.weights(state))
        if self.train:
            self._forget(self.optimizer)
            optimizers.write(self.module, self.optimizer, self.workload.optimizer, state)
        elif self.constant_weights:
            self._lower()
        if self.scaler is not None:
            if self._settled is not None:  # for states without a loss scale
                self.scaler.load_state_dict(self._settled)
            torch_state.write_scale(self.scaler, state)

    def predict(self, feed: Feed) -> np.ndarray:
        """The first output for every row of the feed; a smaller last batch is filled up."""
        rows = iter(feed.sizes)
        found = []
        for inputs, _ in torch_feed.batches(feed, self.device, least=self.workload.batch):
            output = leaves_of(self._infer((self._given(inputs),)))[0]
            found.append(output[: next(rows)].to(torch.float32, copy=True))
        predicted: np.ndarray = torch.cat(found).cpu().numpy()
        return predicted

    def layers(self, iterations: int) -> tuple[LayerTime, ...]:
        """The time of each layer; only if the module itself is called."""
        if self.call is not self.module:
            raise Unsupported("", self.indivisible)
        from golow.levels.torch.layers import LayerClock

        optimizer = self.optimizer if self.train else None
        clock = LayerClock(self.module, optimizer, on_device=self.device.type == "cuda")
        return clock.run(self._iterate_in_parts, iterations)

    def profile(self, iterations: int, file: Path) -> None:
        """Write the profiler's trace of that many iterations."""
        from golow.levels.torch.profiling import write_trace

        module = self.module if self.call is self.module else None
        on_device = self.device.type == "cuda"
        write_trace(
            self._iterate_in_parts,
            iterations,
            file,
            module=module,
            known=self._known_memory,
            on_device=on_device,
        )

    @contextmanager
    def bare_call(self) -> Iterator[Callable[[], object]]:
        """The lowered module's forward pass on the first batch."""
        with self._gradients():
            yield partial(self.call, *self._arrange(self.inputs[0]))

    def stopwatch(self, iterations: int) -> Stopwatch | None:
        """Device events around that many iterations; None on a CPU."""
        return torch_device.EventStopwatch(iterations) if self.device.type == "cuda" else None

    def copies(self, iterations: int) -> CopiesReport:
        """The copies to the device when each batch comes from ordinary host memory, or from where
        the user chose."""
        if self.device.type == "cpu":
            raise Unsupported("", "on a CPU nothing is copied to a device")
        if self.habits.batches is not None:
            return torch_device.copies(self.iterate, iterations)
        host = torch.device("cpu")
        inputs, targets = self._batches("input", host), self._batches("target", host)

        def iterate() -> None:
            index = self._next()
            given = tuple(tensor.to(self.device) for tensor in inputs[index])
            wanted = tuple(tensor.to(self.device) for tensor in targets[index])
            self._last = self._learn(given, wanted)[0] if self.train else self._infer(given)

        return torch_device.copies(iterate, iterations)

    # ------------------------------------------------------------ implementation

    def _learn_fed(self, batches: Iterator[Batch]) -> Tensor:
        """Train on the next of these batches; returns the loss."""
        return self._learn(*next(batches))[0]

    def _try_last_batch(self) -> None:
        """Run a step on as many rows as an epoch's last batch has, if that is smaller."""
        last = self.bundle.last
        if self.train and last is not None:
            rows = slice(last.workload.batch)
            inputs, targets = self.inputs[0], self.targets[0]
            self._learn(tuple(t[rows] for t in inputs), tuple(t[rows] for t in targets))

    def _settle_scale(self, scaler: GradScaler) -> None:
        """Make the scaler start with a scale that suits all batches of the bundle."""
        self._set_learning_rate(0.0)
        scale = settle_loss_scale(
            lambda: self._step(self._next()), scaler.get_scale, len(self.inputs)
        )
        self._settled = {**scaler.state_dict(), "scale": scale, "_growth_tracker": 0}

    def _known_memory(self) -> Iterator[tuple[str, str, Tensor]]:
        """The tensors held between iterations, with their category and name."""
        yield from known_memory.of_training(self.module, self.optimizer if self.train else None)
        yield from known_memory.of_batches("input", self.inputs)
        yield from known_memory.of_batches("target", self.targets)

    def _infer_outputs(self, batches: list[int]) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for step, index in enumerate(batches):
            for position, leaf in enumerate(leaves_of(self._forward(index))):
                tensors[f"{step}/output/{position}"] = _copy_for_check(leaf)
        return tensors

    def _train_outputs(self, batches: list[int], learning_rate: float) -> dict[str, Tensor]:
        self._set_learning_rate(learning_rate)
        tensors: dict[str, Tensor] = {}
        last = len(batches) - 1
        before = torch_bundle.tensors(self.bundle, "weights")
        for step, index in enumerate(batches):
            loss, output = self._step(index)
            tensors |= self._own_tensors(step, loss, output, before)
            for name, parameter in self.module.named_parameters():
                if parameter.grad is None:
                    continue
                if step == 0:
                    tensors[f"0/gradient/{name}"] = _copy_for_check(parameter.grad)
                if step == last:
                    tensors[f"{step}/parameter/{name}"] = _copy_for_check(parameter)
        for name, kept in self._kept_by_optimizer():
            tensors[f"{last}/{name}"] = _copy_for_check(kept)
        return tensors

    def _own_tensors(
        self, step: int, loss: Tensor, output: Any, before: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Tensors of a step that depend on the samples of one rank alone."""
        tensors = {f"{step}/loss/loss": _copy_for_check(loss)}
        for position, leaf in enumerate(leaves_of(output)):
            tensors[f"{step}/output/{position}"] = _copy_for_check(leaf)
        for name, buffer in self.module.named_buffers():
            if name in before and _changes(buffer, before[name].to(buffer)):
                tensors[f"{step}/buffer/{name}"] = _copy_for_check(buffer)
        return tensors

    def _weighted_sum(self) -> Tensor:
        last = self._last
        leaves = [last] if isinstance(last, Tensor) else leaves_of(last)
        if self._weights is None:
            starts = itertools.accumulate((leaf.numel() for leaf in leaves), initial=0)
            self._weights = [
                torch.from_numpy(weights(start, leaf.numel())).to(leaf.device)
                for start, leaf in zip(starts, leaves, strict=False)
            ]
        sums = [
            torch.dot(leaf.reshape(-1).to(torch.float32), weight)
            for leaf, weight in zip(leaves, self._weights, strict=True)
        ]
        return sums[0] if len(sums) == 1 else torch.stack(sums).sum()


def _copy_for_check(tensor: Tensor) -> Tensor:
    """A copy for the check: on the CPU, half precision as float32."""
    half = tensor.dtype in torch_device.HALVES.values()
    return whole(tensor.detach()).to("cpu", torch.float32 if half else tensor.dtype, copy=True)


def _changes(buffer: Tensor, before: Tensor) -> bool:
    """True if a step changed the buffer; the reference's, by more than float32 shows: a vector of
    spectral norm that has converged stays the same there."""
    if buffer.dtype is not torch.float64 or torch.equal(buffer, before):
        return not torch.equal(buffer, before)
    largest = float((buffer - before).abs().max())
    return not largest <= UNSEEN * float(before.abs().max())
