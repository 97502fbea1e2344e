"""Batch norm and a linear layer in NumPy that train, or that train something else.

``softmax.py [--error NAME] [--pause SECONDS] [--dies-after BATCHES]``; it starts in a tenth of a
second. The errors are those that people make who write a training loop.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load_file, save_file

from golow.worker.feed import Feed, augmented, normalised
from golow.worker.protocol import LoadReport
from golow.worker.serve import run
from golow.workload.bundle import Bundle

Arrays = dict[str, np.ndarray]
GAMMA, BETA, WEIGHT, BIAS = PARAMETERS = ("1.weight", "1.bias", "2.weight", "2.bias")
MEAN, VARIANCE, COUNT = BUFFERS = ("1.running_mean", "1.running_var", "1.num_batches_tracked")
EPSILON = np.float32(1e-5)
ERRORS = (
    "bias",  # of the last layer is not learnt
    "statistics",  # take a hundredth of each batch instead of a tenth
    "momentum",  # there is none
    "decay",  # of the weights is forgotten
    "order",  # an epoch's samples come from its end
)


class Step(NamedTuple):
    """What a batch brings: the mean loss, scores, and gradients without weight decay."""

    loss: np.ndarray
    scores: np.ndarray
    gradients: Arrays


class Softmax:
    """`golow.worker.protocol.TrainableProgram` and `PredictingProgram` in one."""

    def __init__(self, error: str, pause: float, dies_after: int | None) -> None:
        self.error, self.pause, self.left = error, pause, dies_after

    def load(self, bundle: Path) -> LoadReport:
        self.folder, self.workload = bundle, Bundle(bundle).workload
        self._start()
        return LoadReport(phases={"load": 0.0})

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """For the check, in training."""
        given, tensors = load_file(self.folder / "batches.safetensors"), {}
        self._start()
        for number, index in enumerate(batches):
            step = self._step(given[f"{index}/input/0"], given[f"{index}/target/0"])
            self._update(step.gradients, learning_rate)
            tensors |= {f"{number}/loss/loss": step.loss, f"{number}/output/0": step.scores}
            tensors |= {f"{number}/buffer/{n}": array.copy() for n, array in self.buffers.items()}
            if number == 0:
                tensors |= {f"0/gradient/{n}": array for n, array in step.gradients.items()}
        last = len(batches) - 1
        tensors |= {f"{last}/parameter/{n}": array for n, array in self.parameters.items()}
        tensors |= {f"{last}/momentum/{n}": array for n, array in self.momentum.items()}
        save_file(tensors, file)
        self._start()

    def iterate(self) -> None:
        """Nothing: only epochs are looked at."""

    def last(self) -> float:
        return 0.0

    def allocated_peak(self) -> int | None:
        return None

    def epoch(self, feed: Feed, rates: Sequence[float]) -> list[float]:
        if self.error == "order":
            feed._order = feed._order._replace(rows=feed._order.rows[::-1])
        losses = []
        for fed, rate in zip(feed, rates, strict=True):
            if self.left is not None:
                if self.left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                self.left -= 1
            time.sleep(self.pause)
            step = self._step(normalised(augmented(fed), feed.scale, feed.shift), fed.labels)
            self._update(step.gradients, rate)
            losses.append(float(step.loss))
        return losses

    def predict(self, feed: Feed) -> np.ndarray:
        inputs = [normalised(fed.pixels, feed.scale, feed.shift) for fed in feed]
        mean, variance = self.buffers[MEAN], self.buffers[VARIANCE]
        return self._scores(_standardised(np.concatenate(inputs), mean, variance))

    def save(self, file: Path) -> None:
        parameters = {f"parameter/{name}": array for name, array in self.parameters.items()}
        buffers = {f"buffer/{name}": array for name, array in self.buffers.items()}
        momentum = {f"momentum/{name}": array for name, array in self.momentum.items()}
        save_file(parameters | buffers | momentum, file)

    def restore(self, file: Path) -> None:
        state = load_file(file)
        for name, array in self.parameters.items():
            array[:] = state[f"parameter/{name}"]
            self.momentum[name][:] = state.get(f"momentum/{name}", 0)
        for name, array in self.buffers.items():
            array[...] = state[f"buffer/{name}"]

    def _start(self) -> None:
        weights = load_file(self.folder / "weights.safetensors")
        self.parameters = {name: weights[name].copy() for name in PARAMETERS}
        self.buffers = {name: weights[name].copy() for name in BUFFERS}
        self.momentum = {name: np.zeros_like(array) for name, array in self.parameters.items()}

    def _scores(self, standardised: np.ndarray) -> np.ndarray:
        gamma, beta, weight, bias = self.parameters.values()
        return (standardised * gamma + beta) @ weight.T + bias

    def _step(self, inputs: np.ndarray, labels: np.ndarray) -> Step:
        flat = inputs.reshape(len(inputs), -1)
        mean, variance = flat.mean(0), flat.var(0)
        standardised = _standardised(flat, mean, variance)
        self._follow(mean, variance * np.float32(len(flat) / (len(flat) - 1)))
        scores = self._scores(standardised)
        shifted = scores - scores.max(1, keepdims=True)
        logarithms = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        wanted = np.eye(scores.shape[1], dtype=np.float32)[labels]
        error = (np.exp(logarithms) - wanted) / np.float32(len(labels))
        back = error @ self.parameters[WEIGHT]
        gradients = {
            GAMMA: (back * standardised).sum(0),
            BETA: back.sum(0),
            WEIGHT: error.T @ (standardised * self.parameters[GAMMA] + self.parameters[BETA]),
            BIAS: error.sum(0),
        }
        loss = np.asarray(-(logarithms * wanted).sum(1).mean())
        return Step(loss, scores, gradients)

    def _follow(self, mean: np.ndarray, variance: np.ndarray) -> None:
        share = np.float32(0.01 if self.error == "statistics" else 0.1)
        for name, seen in ((MEAN, mean), (VARIANCE, variance)):
            self.buffers[name] += share * (seen - self.buffers[name])
        self.buffers[COUNT] += 1

    def _update(self, gradients: Arrays, rate: float) -> None:
        settings = self.workload.optimizer
        decay = np.float32(0 if self.error == "decay" else settings.weight_decay)
        kept = np.float32(0 if self.error == "momentum" else settings.momentum)
        for name, parameter in self.parameters.items():
            momentum = self.momentum[name]
            momentum *= kept
            momentum += gradients[name] + decay * parameter
            if not (self.error == "bias" and name == BIAS):
                parameter -= np.float32(rate) * momentum


def _standardised(inputs: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return (inputs.reshape(len(inputs), -1) - mean) / np.sqrt(variance + EPSILON)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--error", choices=ERRORS, default="")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--dies-after", type=int)
    given = parser.parse_args()
    run(lambda: Softmax(given.error, given.pause, given.dies_after))
