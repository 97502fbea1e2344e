"""Cheats of trainings: workers that train less than they are asked to, or hide what they left.

``cheats.py`` serves them.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from golow.levels.torch.program import TorchProgram
from golow.worker.protocol import LoadReport


class FirstSteps(TorchProgram):
    """Makes the first 16 steps after a reset, whose losses are compared, and no others."""

    made = 0

    def reset(self, learning_rate: float) -> None:
        super().reset(learning_rate)
        self.made = 0

    def iterate(self) -> None:
        self.made += 1
        if self.made <= 16 or getattr(self, "_last", None) is None:
            super().iterate()
        else:
            self._next()


class Blocks(TorchProgram):
    """Knows whether a block began with a reset, as challenged ones do, and how many have ended."""

    challenged, ended = False, 0

    def reset(self, learning_rate: float) -> None:
        super().reset(learning_rate)
        self.challenged = True

    def kept(self) -> list[float]:
        self.challenged, self.ended = False, self.ended + 1
        return super().kept()


class Stalling(FirstSteps, Blocks):
    """The same, and answers no more in the first block of the race that does not begin again, so
    that the race ends in the middle of it and nobody sees its state."""

    def iterate(self) -> None:
        super().iterate()
        if not self.challenged and self.ended > 1:  # a block of the check, and one of the race
            time.sleep(3600.0)


class StopsEager(Blocks):
    """Stops eager's process in its own first block of the race, so that no level's state can be
    compared."""

    stopped = False

    def iterate(self) -> None:
        super().iterate()
        if self.challenged and self.ended and not self.stopped:  # a block of the check has ended
            self.stopped = True
            for process in psutil.Process(os.getppid()).children():
                with suppress(psutil.Error):  # it has ended
                    if "golow.levels.torch.eager" in process.cmdline():
                        process.suspend()


class OnlyChallenged(Blocks):
    """Makes all steps of a block that is challenged, and none of another."""

    def iterate(self) -> None:
        if self.challenged or getattr(self, "_last", None) is None:
            super().iterate()
        else:
            self._next()


class NoBackward(TorchProgram):
    """A timed step has neither a backward pass nor an update."""

    def iterate(self) -> None:
        with torch.no_grad():
            self._last = self._loss_and_output(*self.source.take(self._next()))[0]


class ReadsReference(NoBackward):
    """Never trains: its tensors are the reference's, wherever it finds them."""

    def load(self, bundle: Path) -> LoadReport:
        self.place = bundle.parent
        return super().load(bundle)

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        for found in self.place.rglob("*.safetensors"):
            with safe_open(found, "pt") as tensors:
                if "0/loss/loss" in set(tensors.keys()) and found != file:
                    save_file(load_file(found), file)
                    return
        save_file({"0/loss/loss": torch.zeros(())}, file)
