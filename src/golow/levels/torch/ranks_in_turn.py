"""Training of several ranks in one process: the samples of every rank in turn, the mean of their
gradients, and separate running statistics. It is the baseline of training in several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from golow.levels.torch import state as torch_state
from golow.levels.torch.batches import Batch
from golow.levels.torch.program import TorchProgram
from golow.worker.ranks import own_name
from golow.workload.bundle import Bundle


class Result(NamedTuple):
    """Loss and output of a rank's forward pass."""

    loss: Tensor
    output: Any


class Turns:
    """Buffers of every rank; those of one rank at a time are in the module."""

    def __init__(self, module: nn.Module, ranks: int) -> None:
        self._module, self.count = module, ranks
        self.reset()

    def reset(self) -> None:
        """Give every rank the module's current buffers."""
        self._buffers = [self._copied() for _ in range(self.count)]

    def __iter__(self) -> Iterator[int]:
        """Yield each rank, with its buffers in the module until the next one is requested; then put
        back those of rank 0."""
        for rank in range(self.count):
            self._put(rank)
            yield rank
            self._buffers[rank] = self._copied()
        self._put(0)

    def _copied(self) -> dict[str, Tensor]:
        return {name: buffer.clone() for name, buffer in self._module.named_buffers()}

    def _put(self, rank: int) -> None:
        with torch.no_grad():
            for name, buffer in self._module.named_buffers():
                buffer.copy_(self._buffers[rank][name])


class RanksInTurn(TorchProgram):
    """A level in one process that trains for all ranks of its workload, if there are several."""

    turns: Turns | None = None
    _last_of_ranks: list[Result]

    def save(self, file: Path) -> None:
        """Write the state of training, with the running statistics of every rank."""
        super().save(file)
        if self.turns is not None:
            state = load_file(file)
            for rank in self.turns:
                buffers = torch_state.read(self.module, (), None).items()
                state |= {own_name(name, rank): tensor for name, tensor in buffers}
            save_file(state, file)

    def restore(self, file: Path) -> None:
        """Continue from a saved state."""
        super().restore(file)
        if self.turns is not None:
            state = load_file(file)
            for rank in self.turns:
                self._write_weights(torch_state.weights(state, rank))

    # ------------------------------------------------------------ implementation

    def _read(self, bundle: Bundle) -> None:
        super()._read(bundle)
        if self.workload.ranks > 1:
            self.turns = Turns(self.module, self.workload.ranks)
            self._of_ranks = list(map(self._batches_of, range(self.workload.ranks)))

    def _batches_of(self, rank: int) -> list[Batch]:
        """Return all batches of a rank."""
        pairs = (self._batches(kind, self.device, rank) for kind in ("input", "target"))
        return [Batch(*pair) for pair in zip(*pairs, strict=True)]

    def _reset(self) -> None:
        super()._reset()
        if self.turns is not None:
            self.turns.reset()

    def _step(self, index: int) -> tuple[Tensor, Any]:
        if self.turns is None:
            return super()._step(index)
        results = self._learn_in_turn(self.turns, lambda rank: self._of_ranks[rank][index])
        return results[0]

    def _learn_fed(self, fed: Iterator[Batch]) -> Tensor:
        if self.turns is None:
            return super()._learn_fed(fed)
        results = self._learn_in_turn(self.turns, lambda rank: next(fed))
        return torch.stack([result.loss for result in results]).mean()

    def _learn_in_turn(self, turns: Turns, batch: Callable[[int], Batch]) -> list[Result]:
        """Run a training step of all ranks. batch: returns the batch of a rank; called in turn."""
        self.optimizer.zero_grad(set_to_none=True)
        results = []
        for rank in turns:
            loss, output = self._loss_and_output(*batch(rank))
            self._backward(loss / turns.count)
            results.append(Result(loss.detach(), output))
        self._update(self.optimizer)
        self._last_of_ranks = results
        return results

    def _own_tensors(
        self, step: int, loss: Tensor, output: Any, before: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        if self.turns is None:
            return super()._own_tensors(step, loss, output, before)
        found: dict[str, Tensor] = {}
        for rank in self.turns:
            own = super()._own_tensors(step, *self._last_of_ranks[rank], before)
            found |= {own_name(name, rank): tensor for name, tensor in own.items()}
        return found
