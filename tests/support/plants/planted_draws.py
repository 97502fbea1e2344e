"""A worker that serves a network which draws, with one error in its draws.

``python tests/support/plants/planted_draws.py`` reads the error's name from the bundle's file
``plant``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from golow.levels.torch import batch_sources
from golow.levels.torch.batches import Batch
from golow.levels.torch.program import TorchProgram
from golow.worker.protocol import LoadReport
from golow.worker.serve import run


class Otherwise(TorchProgram):
    """It reads other batches than the bundle's."""

    def _read(self, bundle: Any) -> None:
        super()._read(bundle)
        first = len(self.workload.inputs) - self.workload.draws
        changed = [
            (*inputs[:first], *(self.draw(index, n) for n in range(first, len(inputs))))
            for index, inputs in enumerate(self.inputs)
        ]
        pairs = zip(changed, self.targets, strict=True)
        self.source = batch_sources.Resident([Batch(*pair) for pair in pairs])

    def draw(self, batch: int, position: int) -> torch.Tensor:
        """What is read as that draw."""
        return self.inputs[batch][position]


class OwnDraws(Otherwise):
    """It draws anew, from the right distribution."""

    def draw(self, batch: int, position: int) -> torch.Tensor:
        given = self.inputs[batch][position]
        return given.flatten()[torch.randperm(given.numel())].reshape(given.shape)


class PreviousDraws(Otherwise):
    """Every batch has the draws of the batch before."""

    def draw(self, batch: int, position: int) -> torch.Tensor:
        return self.inputs[batch - 1][position]


class OneElement(Otherwise):
    """One element of a mask of whole numbers is wrong."""

    def draw(self, batch: int, position: int) -> torch.Tensor:
        changed = self.inputs[batch][position].clone()
        if not changed.is_floating_point():
            changed[0] = 1 - changed[0]
        return changed


class TimedOnly(PreviousDraws):
    """While it is timed alone."""

    def _read(self, bundle: Any) -> None:
        TorchProgram._read(self, bundle)
        right = self.source
        super()._read(bundle)
        self._wrong, self.source = self.source, right

    def iterate(self) -> None:
        right, self.source = self.source, self._wrong
        super().iterate()
        self.source = right


class DropsInCheck(TorchProgram):
    """It leaves dropout on where it must be off."""

    @contextmanager
    def _random_layers_off(self) -> Iterator[None]:
        yield


PLANTS: dict[str, type[TorchProgram]] = {
    "nothing": TorchProgram,
    "own draws": OwnDraws,
    "previous draws": PreviousDraws,
    "one element": OneElement,
    "timed only": TimedOnly,
    "drops in the check": DropsInCheck,
}


class Planted:
    """Becomes the program that the bundle names, when it loads."""

    def __init__(self) -> None:
        self.program = TorchProgram()

    def load(self, bundle: Path) -> LoadReport:
        """As the protocol has it."""
        self.program = PLANTS[(bundle / "plant").read_text()]()
        return self.program.load(bundle)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)


if __name__ == "__main__":
    run(Planted)  # type: ignore[arg-type]
