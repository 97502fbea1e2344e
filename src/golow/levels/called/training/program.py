"""The worker of the variant ``called`` in training: a PyTorch program that calls the step of
`golow.compile_step`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from golow.levels.called.level import BUILT_BEFORE, CALLED
from golow.levels.called.training.saved_state import WEIGHTS, SavedState
from golow.levels.called.training.step_building import built_step
from golow.levels.called.training.training_step import TrainingStep
from golow.levels.called.training.wanted_step import WantedStep
from golow.levels.torch import bundle as torch_bundle
from golow.levels.torch import device_feed
from golow.levels.torch.device import Arithmetic
from golow.levels.torch.program import TorchProgram
from golow.levels.torch.step import Parts
from golow.observer import Silent
from golow.worker.feed import Feed
from golow.worker.loss_scale import settle_loss_scale
from golow.workload.bundle import Bundle


class CalledStep(TorchProgram):
    """The step as `golow.compile_step` returns it, on float32 in every precision. The module stays
    as in the bundle. tune: whether a GPU's engines are chosen by timing them when it is built; a
    CPU's layouts are."""

    builds_on_first_iteration = True
    indivisible = "a compiled step is one call, which is not timed in parts"

    def __init__(self, tune: bool) -> None:
        super().__init__()
        self._tune = tune
        self._built: TrainingStep
        self._scaler: dict[str, Any] = {}

    # ------------------------------------------------------------ requests that differ

    def allocated_peak(self) -> int:
        """Bytes that a step needs besides weights and what the optimizer keeps."""
        return self._built.memory()["iteration"]

    def epoch(self, feed: Feed, rates: Sequence[float]) -> list[float]:
        """Train on the feed's batches; the losses stay on the device until the end."""
        losses = torch.empty(len(rates), dtype=torch.float64, device=self.device)
        fed = device_feed.batches(feed, self.device)
        for index, (rate, (inputs, labels)) in enumerate(zip(rates, fed, strict=True)):
            self._set_learning_rate(rate)
            losses[index] = self._learn((inputs,), (labels,))[0]
        self._set_learning_rate(self.workload.optimizer.learning_rate)
        return losses.tolist()

    def save(self, file: Path) -> None:
        """Write the state of the training run."""
        step, saved = self._built, self._saved
        save_file(dict([*saved.weights(step), *saved.kept(step), *saved.scaler(step)]), file)

    def restore(self, file: Path) -> None:
        """Continue from a saved state."""
        self._saved.load(self._built, load_file(file), self._scaler)

    def write_result(self, file: Path) -> None:
        """Write the loss of the last iteration, and the state."""
        tensors = dict([*self._saved.weights(self._built), *self._saved.kept(self._built)])
        save_file(tensors | {"loss/loss": self._last.detach().cpu()}, file)

    @contextmanager
    def bare_call(self) -> Iterator[Callable[[], object]]:
        """The step on the first batch."""
        yield partial(self._learn, self.inputs[0], self.targets[0])

    # ------------------------------------------------------------ implementation

    def _read(self, bundle: Bundle) -> None:
        super()._read(bundle)
        self.arithmetic, self.scaler = Arithmetic(torch.float32, torch.float32), None
        parameters = self.module.named_parameters
        names = [name for name, _ in parameters()]
        every_name = [name for name, _ in parameters(remove_duplicate=False)]
        self._saved = SavedState(self.workload.optimizer, names, every_name)

    def _lower(self) -> None:
        """Build the step. Layouts are chosen by measuring in the first process alone."""
        on_gpu, workload = self.device.type == "cuda", self.workload
        wanted = WantedStep(
            optimizer=workload.optimizer,
            seed=workload.seed,
            precision=workload.precision,
            threads=None if on_gpu else workload.threads,
            tune=(self._tune or not on_gpu) and not Path(os.environ[BUILT_BEFORE]).exists(),
        )
        example = (self.inputs[0], *self.targets[0])
        self._built = built_step(self.module, self.loss, example, wanted, Silent())
        self.call = self._built
        if self._built.scaler_state():
            self._set_learning_rate(0.0)
            scale = settle_loss_scale(
                lambda: self._step(self._next()), lambda: self._built.loss_scale, len(self.inputs)
            )
            self._scaler = {**self._built.scaler_state(), "scale": scale, "_growth_tracker": 0}

    def _learn(self, inputs: tuple[Tensor, ...], targets: tuple[Tensor, ...]) -> tuple[Tensor, Any]:
        return self._built(inputs if len(inputs) > 1 else inputs[0], *targets), None

    def _reset(self) -> None:
        self.seek(0)
        weights = torch_bundle.tensors(self.bundle, "weights")
        self._saved.load(
            self._built, {f"parameter/{n}": t for n, t in weights.items()}, self._scaler
        )
        self._set_learning_rate(self.workload.optimizer.learning_rate)

    def _set_learning_rate(self, rate: float) -> None:
        self._built.learning_rate = rate

    def _iterate_in_parts(self, parts: Parts) -> None:
        parts.enter_forward()
        self.iterate()

    @contextmanager
    def _random_layers_off(self) -> Iterator[None]:
        yield  # an observed step drops nothing

    def _train_outputs(self, batches: list[int], learning_rate: float) -> dict[str, Tensor]:
        self._set_learning_rate(learning_rate)
        tensors: dict[str, Tensor] = {}
        before = {f"buffer/{n}": t for n, t in torch_bundle.tensors(self.bundle, "weights").items()}
        trained: set[str] = set()
        for step, index in enumerate(batches):
            inputs, targets = self.source.take(index)
            seen = self._built.observed([item.contiguous() for item in (*inputs, *targets)])
            for (kind, target), array in seen.items():
                if kind == "gradient":
                    trained.add(f"parameter/{target}")
                if kind != "gradient" or step == 0:
                    tensors[f"{step}/{kind}/{target}"] = torch.from_numpy(array)
            for name, buffer in self._saved.weights(self._built):
                if name in before and not torch.equal(buffer, before[name]):
                    tensors[f"{step}/{name}"] = buffer
        last = len(batches) - 1
        state = dict([*self._saved.weights(self._built), *self._saved.kept(self._built)])
        for name, tensor in state.items():
            if name in trained or name.partition("/")[0] not in WEIGHTS:
                tensors[f"{last}/{name}"] = tensor
        return tensors


def program(variant: str) -> CalledStep:
    """The worker's side."""
    return CalledStep(tune=variant != CALLED)
