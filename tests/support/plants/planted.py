"""A worker with one error of one's choice, which the check must find.

``python tests/support/plants/planted.py`` serves `networks.Network` as eager does, but for the
error that the bundle's file ``plant`` names. The errors are those that people make who write a
level.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from golow.levels.torch.program import TorchProgram
from golow.worker.protocol import LoadReport
from golow.worker.serve import run


class WrongBias(TorchProgram):
    """One element of one layer's bias is a hundredth off."""

    def _reset(self) -> None:
        super()._reset()
        with torch.no_grad():
            self.module.get_parameter("fc.bias")[3] += 0.01


class RoundedWeights(TorchProgram):
    """One layer's weights have the ten bits that a matrix unit would leave them."""

    def _reset(self) -> None:
        super()._reset()
        with torch.no_grad():
            weight = self.module.get_parameter("conv2.weight")
            weight.copy_(weight.half())


class WrongVariance(TorchProgram):
    """Batch norm with another epsilon than the model's."""

    def _read(self, bundle: Any) -> None:
        super()._read(bundle)
        self.module.get_submodule("bn1").eps = 1e-3  # type: ignore[assignment]


class Changed(TorchProgram):
    """The tensors that it writes are changed by `change`."""

    def change(self, tensors: dict[str, Tensor]) -> None:
        """Change them in place."""

    def _infer_outputs(self, batches: list[int]) -> dict[str, Tensor]:
        tensors = super()._infer_outputs(batches)
        self.change(tensors)
        return tensors

    def _train_outputs(self, batches: list[int], learning_rate: float) -> dict[str, Tensor]:
        tensors = super()._train_outputs(batches, learning_rate)
        tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        self.change(tensors)
        return tensors


class ShiftedOutput(Changed):
    """The output is shifted by 1."""

    def change(self, tensors: dict[str, Tensor]) -> None:
        for name in ("0/output/0", "1/output/0"):
            tensors[name] = tensors[name] + 1


class OneNotANumber(Changed):
    """One element of one tensor is NaN."""

    def change(self, tensors: dict[str, Tensor]) -> None:
        name = "0/gradient/fc.weight" if self.train else "1/output/0"
        tensors[name].view(-1)[5] = float("nan")


class MissingTensor(Changed):
    """One tensor is not there."""

    def change(self, tensors: dict[str, Tensor]) -> None:
        del tensors["1/parameter/bn2.bias" if self.train else "1/output/0"]


class WrongShape(Changed):
    """The output's dimensions are exchanged, and broadcasting would hide it nowhere."""

    def change(self, tensors: dict[str, Tensor]) -> None:
        tensors["0/output/0"] = tensors["0/output/0"].T


class OneElementForAll(Changed):
    """The loss of each sample where the mean is asked for: a shape that broadcasts."""

    def change(self, tensors: dict[str, Tensor]) -> None:
        name = "0/loss/loss" if self.train else "0/output/0"
        tensors[name] = tensors[name].unsqueeze(0)


class SamplesExchanged(Changed):
    """Every sample gets its neighbour's answer."""

    def change(self, tensors: dict[str, Tensor]) -> None:
        tensors["0/output/0"] = tensors["0/output/0"].roll(1, 0)


class PreviousOutput(TorchProgram):
    """From the second batch on it gives the output of the one before: a buffer not yet filled."""

    previous: Any = None

    def _reset(self) -> None:
        super()._reset()
        self.previous = None

    def _forward(self, index: int) -> Any:
        output = super()._forward(index)
        given = output if self.previous is None else self.previous
        self.previous = output
        return given


# ---------------------------------------------------------------- the training step


class FrozenStatistics(TorchProgram):
    """One layer's running statistics are not updated."""

    def _step(self, index: int) -> tuple[Tensor, Any]:
        norm = self.module.get_submodule("bn1")
        before = norm.get_buffer("running_mean").clone(), norm.get_buffer("running_var").clone()
        result = super()._step(index)
        norm.get_buffer("running_mean").copy_(before[0])
        norm.get_buffer("running_var").copy_(before[1])
        return result


class BiasedVariance(TorchProgram):
    """The running variance takes the batch's variance over n instead of n - 1."""

    def _step(self, index: int) -> tuple[Tensor, Any]:
        running = self.module.get_buffer("bn1.running_var")
        before = running.clone()
        result = super()._step(index)
        count = self.inputs[index][0][:, 0].numel()
        running.copy_(0.9 * before + (running - 0.9 * before) * (count - 1) / count)
        return result


class OneBatchTooMany(TorchProgram):
    """The counter of batches is one ahead."""

    def _step(self, index: int) -> tuple[Tensor, Any]:
        ahead = int(self.module.get_buffer("bn1.num_batches_tracked")) == 0
        result = super()._step(index)
        self.module.get_buffer("bn1.num_batches_tracked").add_(int(ahead))
        return result


def gradient_times(factor: float) -> type[TorchProgram]:
    """One layer's gradient is off by the factor."""

    class WrongGradient(TorchProgram):
        def _read(self, bundle: Any) -> None:
            super()._read(bundle)
            weight = self.module.get_parameter("conv2.weight")
            weight.register_hook(lambda gradient: gradient * factor)

    return WrongGradient


class OneGradientElement(TorchProgram):
    """One element of one gradient is left at zero."""

    def _read(self, bundle: Any) -> None:
        super()._read(bundle)

        def hook(gradient: Tensor) -> Tensor:
            changed = gradient.clone()
            changed[int(changed.abs().argmax())] = 0
            return changed

        self.module.get_parameter("fc.bias").register_hook(hook)


def with_settings(**settings: Any) -> type[TorchProgram]:
    """The optimizer has another setting than the workload."""

    class WrongOptimizer(TorchProgram):
        def _optimizer(self) -> torch.optim.Optimizer:
            optimizer = super()._optimizer()
            optimizer.param_groups[0].update(settings)
            return optimizer

    return WrongOptimizer


class MomentumNotUsed(TorchProgram):
    """The momentum is kept, and the weights go by the gradient alone."""

    def _step(self, index: int) -> tuple[Tensor, Any]:
        assert self.optimizer is not None
        group = self.optimizer.param_groups[0]
        before = {name: p.detach().clone() for name, p in self.module.named_parameters()}
        result = super()._step(index)
        for name, parameter in self.module.named_parameters():
            assert parameter.grad is not None
            change = parameter.grad + group["weight_decay"] * before[name]
            parameter.data = before[name] - group["lr"] * change
        return result


class WrongRate(TorchProgram):
    """The learning rate is off by a hundredth."""

    def _train_outputs(self, batches: list[int], learning_rate: float) -> dict[str, Tensor]:
        return super()._train_outputs(batches, 1.01 * learning_rate)


class StaleWeight(TorchProgram):
    """The second step computes with one layer's weights from before the first."""

    first: Tensor

    def _reset(self) -> None:
        super()._reset()
        self.first = self.module.get_parameter("conv1.weight").detach().clone()

    def _step(self, index: int) -> tuple[Tensor, Any]:
        weight = self.module.get_parameter("conv1.weight")
        late = weight.detach() - self.first
        weight.data = self.first.clone()
        result = super()._step(index)
        weight.data = weight.detach() + late
        return result


class LossOfTheSum(TorchProgram):
    """The loss is summed where the mean is asked for, and reported as if it were not."""

    def _read(self, bundle: Any) -> None:
        super()._read(bundle)
        self.loss = lambda output, target: nn.functional.cross_entropy(
            output, target, reduction="sum"
        )

    def _step(self, index: int) -> tuple[Tensor, Any]:
        loss, output = super()._step(index)
        return loss / len(self.inputs[index][0]), output


# ---------------------------------------------------------------- gradients that are exactly zero


class BiasGradient(TorchProgram):
    """The gradient of the bias before `bn1`, computed otherwise by `gradient`."""

    def _read(self, bundle: Any) -> None:
        super()._read(bundle)
        norm, bias = self.module.get_submodule("bn1"), self.module.get_parameter("conv1.bias")
        found: list[tuple[Tensor, Tensor]] = []

        def keep(_: nn.Module, before: tuple[Tensor], after: tuple[Tensor]) -> None:
            found[:] = [(before[0], after[0])]

        norm.register_full_backward_hook(keep)
        bias.register_hook(lambda gradient: self.gradient(gradient, *found[0]))

    def gradient(self, gradient: Tensor, before: Tensor, after: Tensor) -> Tensor:
        """[channels], of the bias. before, after: of the batch norm's input and output,
        [batch, channels, height, width]."""
        raise NotImplementedError


class TermAfterTerm(BiasGradient):
    """Right: the terms are added in another order, the positive ones first, one after the other in
    float32."""

    def gradient(self, gradient: Tensor, before: Tensor, after: Tensor) -> Tensor:
        terms = before.transpose(0, 1).flatten(1).numpy()
        sums = np.add.accumulate(-np.sort(-terms, axis=1), axis=1)
        return torch.from_numpy(sums[:, -1].copy())


class NotCentred(BiasGradient):
    """The batch norm's mean counts as a constant."""

    def gradient(self, gradient: Tensor, before: Tensor, after: Tensor) -> Tensor:
        return after.sum((0, 2, 3))


class HalfTerms(BiasGradient):
    """The terms are rounded to half precision before they are added."""

    def gradient(self, gradient: Tensor, before: Tensor, after: Tensor) -> Tensor:
        return before.bfloat16().float().sum((0, 2, 3))


class OneTermMissing(BiasGradient):
    """One term of each sum is left out."""

    def gradient(self, gradient: Tensor, before: Tensor, after: Tensor) -> Tensor:
        return gradient - before[0, :, 5, 5]


def off_by_a_thousandth(name: str, neighbour: str) -> type[TorchProgram]:
    """One parameter's gradient is off by a thousandth of the size of another's."""

    class OffByAThousandth(TorchProgram):
        def _read(self, bundle: Any) -> None:
            super()._read(bundle)
            other = self.module.get_parameter(neighbour)

            def hook(gradient: Tensor) -> Tensor:
                assert other.grad is not None, f"{neighbour} is not further down"
                return gradient + other.grad.square().mean().sqrt() / 1000

            self.module.get_parameter(name).register_hook(hook)

    return OffByAThousandth


# ---------------------------------------------------------------- gradients that nearly cancel


def sums_off(roundings: float) -> type[TorchProgram]:
    """What batch norm takes away of its gradient, a sum for each channel, is off by so many
    float32 roundings of that sum's terms, up in one channel and down in the next."""

    class SumsOff(TorchProgram):
        def _read(self, bundle: Any) -> None:
            super()._read(bundle)

            def after(_: nn.Module, given: Any, output: Tensor) -> None:
                if output.requires_grad:
                    output.register_hook(shifted)

            def shifted(gradient: Tensor) -> Tensor:
                signs = 1 - 2.0 * (torch.arange(gradient.shape[1]) % 2)[:, None, None]
                terms = gradient.abs().mean((0, 2, 3), keepdim=True)
                return gradient + roundings * 2.0**-23 * signs * terms

            self.module.get_submodule("conv2").register_forward_hook(after)

    return SumsOff


# ---------------------------------------------------------------- Adam


class NoCorrection(TorchProgram):
    """Adam's running means are taken as they are, though they begin at zero."""

    LATE = 1e6  # after so many steps nothing is left to correct

    def _update(self, optimizer: torch.optim.Optimizer) -> None:
        for parameter in self.module.parameters():
            state = optimizer.state[parameter]
            if not state:
                state["step"] = torch.zeros(())
                for name in ("exp_avg", "exp_avg_sq"):
                    state[name] = torch.zeros_like(parameter)
            state["step"] += self.LATE
        super()._update(optimizer)
        for state in optimizer.state.values():
            state["step"] -= self.LATE


class UpdateSkipped(TorchProgram):
    """The second step leaves one layer's weights as they are; what is kept of them is right."""

    def _update(self, optimizer: torch.optim.Optimizer) -> None:
        weight = self.module.get_parameter("fc.weight")
        before, second = weight.detach().clone(), bool(optimizer.state[weight])
        super()._update(optimizer)
        if second:
            weight.data = before


# Name, and a part of the name of the tensor by which it must be found.
INFERENCE: dict[str, tuple[Callable[[], TorchProgram], str]] = {
    "wrong bias": (WrongBias, "output"),
    "rounded weights": (RoundedWeights, "output"),
    "wrong epsilon": (WrongVariance, "output"),
    "shifted by 1": (ShiftedOutput, "output"),
    "NaN": (OneNotANumber, "1/output/0 is not finite"),
    "missing tensor": (MissingTensor, "1/output/0 is missing"),
    "wrong shape": (WrongShape, "0/output/0 has the shape (10, 8), not (8, 10)"),
    "broadcasting shape": (OneElementForAll, "0/output/0 has the shape (1, 8, 10)"),
    "samples exchanged": (SamplesExchanged, "0/output/0"),
    "previous output": (PreviousOutput, "1/output/0"),
}
TRAINING: dict[str, tuple[Callable[[], TorchProgram], str]] = {
    "wrong bias": (WrongBias, "/"),
    "rounded weights": (RoundedWeights, "/"),
    "shifted by 1": (ShiftedOutput, "output"),
    "NaN": (OneNotANumber, "0/gradient/fc.weight is not finite"),
    "missing tensor": (MissingTensor, "1/parameter/bn2.bias is missing"),
    "broadcasting shape": (OneElementForAll, "0/loss/loss has the shape (1,), not ()"),
    "statistics not updated": (FrozenStatistics, "buffer/bn1.running_"),
    "biased variance": (BiasedVariance, "buffer/bn1.running_var"),
    "one batch too many": (OneBatchTooMany, "buffer/bn1.num_batches_tracked"),
    "gradient x1.05": (lambda: gradient_times(1.05)(), "conv2.weight"),
    "gradient x2": (lambda: gradient_times(2.0)(), "conv2.weight"),
    "gradient x0": (lambda: gradient_times(0.0)(), "conv2.weight"),
    "gradient element zero": (OneGradientElement, "fc.bias"),
    "momentum ignored": (lambda: with_settings(momentum=0.0)(), "1/momentum/bn1.bias is missing"),
    "momentum not used": (MomentumNotUsed, "1/parameter/"),
    "wrong momentum": (lambda: with_settings(momentum=0.95)(), "1/"),
    "weight decay ignored": (lambda: with_settings(weight_decay=0.0)(), "1/"),
    "wrong learning rate": (WrongRate, "1/"),
    "stale weight": (StaleWeight, "1/"),
    "sum for mean": (LossOfTheSum, "/"),
}
# Of `networks.Biased`: what is right, and what is found by the gradient that is exactly zero.
ZEROS: dict[str, tuple[Callable[[], TorchProgram], str]] = {
    "term after term": (TermAfterTerm, ""),
    "not centred": (NotCentred, "conv1.bias"),
    "half terms": (HalfTerms, "conv1.bias"),
    "one term missing": (OneTermMissing, "conv1.bias"),
    "bias off": (lambda: off_by_a_thousandth("conv1.bias", "conv2.weight")(), "conv1.bias"),
    "keys off": (lambda: off_by_a_thousandth("keys.bias", "fc.weight")(), "keys.bias"),
}
# Of `networks.Network`: what is right, and what is not.
SUMS: dict[str, Callable[[], TorchProgram]] = {
    "sums off by 20": lambda: sums_off(20)(),
    "sums off by 400": lambda: sums_off(400)(),
}
# Of `networks.Biased`, trained by AdamW.
ADAM: dict[str, tuple[Callable[[], TorchProgram], str]] = {
    "wrong first beta": (lambda: with_settings(betas=(0.91, 0.999))(), "1/momentum/"),
    "wrong second beta": (lambda: with_settings(betas=(0.9, 0.9991))(), "1/square/"),
    "wrong epsilon": (lambda: with_settings(eps=1e-5)(), "1/"),
    "Adam's decay ignored": (lambda: with_settings(weight_decay=0.0)(), "1/parameter/"),
    "no correction": (NoCorrection, "1/parameter/"),
    "update skipped": (UpdateSkipped, "1/parameter/fc.weight"),
    "Adam's rate wrong": (WrongRate, "1/"),
}


class Planted:
    """Serves the program of the bundle's ``plant``; a bundle without one is served rightly."""

    def __init__(self) -> None:
        self.program = TorchProgram()

    def load(self, bundle: Path) -> LoadReport:
        """The program is another with each bundle, so that one process can serve all plants."""
        name = (bundle / "plant").read_text() if (bundle / "plant").exists() else ""
        trains = '"mode": "train"' in (bundle / "workload.json").read_text()
        plants = TRAINING | ZEROS | ADAM if trains else INFERENCE
        make, _ = plants.get(name, (SUMS.get(name, TorchProgram), ""))
        self.program = make()
        return self.program.load(bundle)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)


if __name__ == "__main__":
    run(Planted)  # type: ignore[arg-type]
