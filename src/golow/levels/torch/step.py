"""One iteration of a workload inside PyTorch: its module, optimizer and batches, and a forward pass
or a training step on the next batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.amp import GradScaler

from golow.levels.choices.chooser import Chooser
from golow.levels.torch import batch_sources, optimizers
from golow.levels.torch import bundle as torch_bundle
from golow.levels.torch import device as torch_device
from golow.levels.torch import state as torch_state
from golow.levels.torch.batches import Batch
from golow.levels.torch.loop_defaults import Habits
from golow.levels.torch.placing import order_of, place
from golow.records.workload import Workload
from golow.workload.as_prepared import in_mode
from golow.workload.bundle import Bundle
from golow.workload.draws import install_draws
from golow.workload.dropout_calls import DROPOUT_CALLS, is_dropout_call
from golow.workload.patched_functions import install
from golow.workload.source import random_layers_off
from golow.workload.weights import load_weights

Lowered = Callable[..., Any]


class Parts(Protocol):
    """Receives the part of an iteration that begins."""

    def enter_forward(self) -> None:
        """The forward pass."""

    def enter_backward(self, loss: Tensor) -> None:
        """The backward pass, from this loss."""

    def enter_update(self) -> None:
        """The optimizer."""


class TorchStep(Chooser):
    """A workload's iteration in PyTorch; the level overrides ``lower`` and the settings below.

    constant_dropout, constant_weights: the lowered module contains them as constants, and is
    lowered again when they change. loss, optimizer: set in training only, because creating an
    optimizer imports torch's compiler, and this second would count as the level's start.
    """

    dtype = torch.float32
    memory_format = torch.contiguous_format
    constant_dropout = False
    constant_weights = False

    workload: Workload
    module: nn.Module
    inputs: list[tuple[Tensor, ...]]
    targets: list[tuple[Tensor, ...]]
    call: Lowered
    loss: Callable[..., Tensor]
    optimizer: torch.optim.Optimizer

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.habits = Habits()

    def lower(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> Lowered:
        """The module as this level calls it; eager calls it as it is."""
        return module

    def iterate(self) -> None:
        """One forward pass or training step on the next batch; on a GPU it is enqueued."""
        index = self._next()
        self._last = self._step(index)[0] if self.train else self._forward(index)

    def seek(self, iteration: int) -> None:
        """Let the next iteration be that one."""
        self.position = iteration
        self.source.seek(iteration % len(self.inputs))

    # ------------------------------------------------------------ in the caller's process

    def adopt(self, module: nn.Module, inputs: tuple[Tensor, ...], workload: Workload) -> None:
        """Take a module instead of a bundle, for inference on inputs like these, and lower it. Its
        tensors are converted in place."""
        self._set_up(workload)
        self._take(module)
        self.inputs, self.targets = [inputs], [()]
        self._lower()

    def infer(self, inputs: tuple[Tensor, ...]) -> Any:
        """The output for these inputs, in memory that later calls leave alone."""
        return self._infer(inputs)

    # ------------------------------------------------------------ implementation

    def _read(self, bundle: Bundle) -> None:
        torch.set_num_threads(self.habits.thread_count(bundle.workload.threads))
        self.bundle = bundle
        self._set_up(bundle.workload)
        if self.workload.draws or any(map(is_dropout_call, self.workload.random_layers)):
            self._stand_in()
        self._take(torch_bundle.module(bundle))
        if self.habits.frozen and not self.train:
            self.module.requires_grad_(False)
        self.inputs = self._batches("input", self.device)
        self.targets = self._batches("target", self.device)
        batches = [Batch(*pair) for pair in zip(self.inputs, self.targets, strict=True)]
        self.source = batch_sources.source(self.habits.batches, batches, self.device)
        if self.train:
            self.loss, self.optimizer = torch_bundle.loss(bundle), self._optimizer()
        self.position = 0
        self._unsaved = torch_state.unsaved(self.module)
        self._results: list[Tensor] = []
        self._weights: list[Tensor] | None = None
        self.scaler = GradScaler(self.device.type) if self.arithmetic.scaled else None
        self._settled: dict[str, Any] | None = None

    def _set_up(self, workload: Workload) -> None:
        self.workload = workload
        self.train = workload.mode == "train"
        self.device = torch.device(workload.device)
        self.arithmetic = torch_device.arithmetic(workload, self.dtype, self.habits)

    def _take(self, module: nn.Module) -> None:
        self.module = module
        place(module, self.device, self.arithmetic.storage, self.memory_format)
        in_mode(module, self.train)

    def _stand_in(self) -> None:
        """Let functions stand in for the random ones that this model calls, before its code is
        imported."""
        if self.train:
            install(DROPOUT_CALLS)
        if self.workload.draws:
            install_draws(self.workload.mode)

    def _lower(self) -> None:
        self.call = self.lower(self.module, self._arrange(self.inputs[0]))

    def _gradients(self) -> AbstractContextManager[Any]:
        """Context around a forward pass in inference."""
        if self.habits.gradients == "inference_mode":
            # A model that takes gradients itself cannot do so in inference mode.
            takes = self.workload.takes_gradients
            return torch.no_grad() if takes else torch.inference_mode()
        return torch.set_grad_enabled(self.habits.gradients == "recorded")

    def _optimizer(self) -> torch.optim.Optimizer:
        kernels = optimizers.Kernels(self.habits.optimizer or "")
        return optimizers.create(self.module.parameters(), self.workload.optimizer, kernels)

    def _kept_by_optimizer(self) -> Iterator[tuple[str, Tensor]]:
        return optimizers.kept(self.module, self.optimizer, self.workload.optimizer)

    def _batches(self, kind: str, device: torch.device, rank: int = 0) -> list[tuple[Tensor, ...]]:
        """The tensors of this kind in every batch, as an iteration gets them. rank: counted from
        that of the bundle."""
        tensors = torch_bundle.tensors(self.bundle.of_rank(rank), "batches")

        def batch(prefix: str) -> Iterator[Tensor]:
            for position in range(sum(name.startswith(prefix) for name in tensors)):
                yield self._given(tensors[f"{prefix}{position}"]).to(device, copy=True)

        return [tuple(batch(f"{index}/{kind}/")) for index in range(self.workload.batches)]

    def _given(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.arithmetic.given) if tensor.is_floating_point() else tensor

    def _reset(self) -> None:
        # Read again, not kept: a copy of the weights would count as the level's memory.
        self._write_weights(torch_bundle.tensors(self.bundle, "weights"))
        torch_state.write_unsaved(self.module, self._unsaved)
        self.seek(0)
        if self.train:
            self._forget(self.optimizer)
            self._set_learning_rate(self.workload.optimizer.learning_rate)
        if self.scaler is not None and self._settled is not None:
            self.scaler.load_state_dict(self._settled)

    def _write_weights(self, weights: dict[str, Tensor]) -> None:
        load_weights(self.module, weights)

    def _set_learning_rate(self, rate: float) -> None:
        self.optimizer.param_groups[0]["lr"] = rate

    def _forget(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.state.clear()

    def _arrange(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        # Part of the iteration: at every level the input arrives contiguous and in float32.
        storage, given = self.arithmetic.storage, self.arithmetic.given
        if self.memory_format is torch.contiguous_format and storage is given:
            return tensors
        return tuple(self._arrange_one(tensor, storage) for tensor in tensors)

    def _arrange_one(self, tensor: Tensor, storage: torch.dtype) -> Tensor:
        order = order_of(tensor, self.memory_format)
        if tensor.is_floating_point() and tensor.dtype != storage:
            return tensor.to(storage, memory_format=order)
        return tensor.contiguous(memory_format=order)

    def _next(self) -> int:
        index = self.position % len(self.inputs)
        self.position += 1
        return index

    def _forward(self, index: int) -> Any:
        return self._infer(self.source.take(index).inputs)

    def _step(self, index: int) -> tuple[Tensor, Any]:
        return self._learn(*self.source.take(index))

    def _infer(self, inputs: tuple[Tensor, ...]) -> Any:
        with self._gradients():
            return self.call(*self._arrange(inputs))

    def _learn(self, inputs: tuple[Tensor, ...], targets: tuple[Tensor, ...]) -> tuple[Tensor, Any]:
        """Run a training step; returns the loss and the output."""
        self.optimizer.zero_grad(set_to_none=self.habits.set_to_none)
        loss, output = self._loss_and_output(inputs, targets)
        self._backward(loss)
        self._update(self.optimizer)
        return loss.detach(), output

    def _loss_and_output(
        self, inputs: tuple[Tensor, ...], targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Any]:
        with self.arithmetic.casting(self.device.type):
            output = self.call(*self._arrange(inputs))
            return self.loss(output, *targets), output

    def _backward(self, loss: Tensor) -> None:
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        scaled.backward()  # type: ignore[no-untyped-call]

    def _update(self, optimizer: torch.optim.Optimizer) -> None:
        self._clip(optimizer)
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)
            self.scaler.update()

    def _clip(self, optimizer: torch.optim.Optimizer) -> None:
        """Scale the gradients down to the norm that the user gave."""
        if (norm := self.workload.optimizer.clip) is None:
            return
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(self.module.parameters(), norm)

    def _iterate_in_parts(self, parts: Parts) -> None:
        """Run an iteration as `iterate` does, and report which part begins."""
        index = self._next()
        if not self.train:
            parts.enter_forward()
            self._last = self._forward(index)
            return
        parts.enter_update()
        self.optimizer.zero_grad(set_to_none=self.habits.set_to_none)
        parts.enter_forward()
        loss, _ = self._loss_and_output(*self.source.take(index))
        parts.enter_backward(loss)
        self._backward(loss)
        parts.enter_update()
        self._update(self.optimizer)
        self._last = loss.detach()

    @contextmanager
    def _random_layers_off(self) -> Iterator[None]:
        call = self.call
        with random_layers_off(self.module):
            if self.constant_dropout and self.workload.random_layers:
                self.call = self.lower(self.module, self._arrange(self.inputs[0]))
            try:
                yield
            finally:
                self.call = call
