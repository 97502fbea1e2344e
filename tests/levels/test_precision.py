"""What each precision means to a PyTorch program, and that the check still finds errors in it.

On a CPU PyTorch runs bf16 as on a GPU. TF32 it does not have; where it is meant, what a GPU rounds
is rounded by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from golow.check.reference import Standard
from golow.check.rule import Check
from golow.levels.starter import Starter
from golow.levels.torch import eager
from golow.levels.torch.program import TorchProgram
from golow.records.workload import Mode, Precision
from support.plants.planted import INFERENCE, TRAINING, gradient_times, with_settings
from support.workers.bundles import network_bundle
from support.workers.kept_workers import kept_workers
from support.workers.precisions import in_precision

pytestmark = pytest.mark.usefixtures("forked")

Trials = Callable[[Precision, Mode], "Trial"]


class Trial:
    """A workload with its standard, before which programs are brought in this process."""

    def __init__(self, folder: Path, precision: Precision, mode: Mode, starter: Starter) -> None:
        self.bundle = in_precision(network_bundle(folder / "bundle", mode), precision)
        self.standard = Standard(self.bundle, folder, starter)

    def verdict(self, program: TorchProgram) -> Check:
        program.load(self.bundle.folder)
        return self.standard.judge(program.outputs).check


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    """The trial of each precision and mode, prepared when it is first wanted."""
    with kept_workers() as kept:

        @cache
        def trial(precision: Precision, mode: Mode) -> Trial:
            folder = tmp_path_factory.mktemp(f"{precision}-{mode}")
            return Trial(folder, precision, mode, kept.starter())

        yield trial


# ---------------------------------------------------------------- levels that are right


def to_tf32(tensor: Tensor) -> Tensor:
    """Rounded to TF32's ten bits, to the nearest; gradients pass."""
    bits = tensor.detach().contiguous().view(torch.int32)
    rounded = ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
    return tensor + (rounded - tensor).detach()


class InTf32(TorchProgram):
    """What a GPU does with TF32 allowed: the operands of convolutions and products are rounded."""

    def _read(self, bundle: Any) -> None:
        super()._read(bundle)
        for layer in self.module.modules():
            if isinstance(layer, nn.Conv2d):
                layer.forward = partial(self._convolved, layer)  # type: ignore[method-assign]
            elif isinstance(layer, nn.Linear):
                layer.forward = partial(self._multiplied, layer)  # type: ignore[method-assign]

    def _convolved(self, layer: nn.Conv2d, x: Tensor) -> Tensor:
        return layer._conv_forward(to_tf32(x), to_tf32(layer.weight), layer.bias)

    def _multiplied(self, layer: nn.Linear, x: Tensor) -> Tensor:
        return nn.functional.linear(to_tf32(x), to_tf32(layer.weight), layer.bias)


RIGHT: list[tuple[Precision, Mode, Callable[[], TorchProgram]]] = [
    ("tf32", "infer", InTf32),
    ("tf32", "train", InTf32),
    ("tf32", "infer", TorchProgram),  # more exact than it need be
    ("bf16", "infer", TorchProgram),
    ("bf16", "infer", lambda: eager.program("channels_last")),
    ("bf16", "train", TorchProgram),
    ("bf16", "train", lambda: eager.program("channels_last")),
    ("fp16", "infer", TorchProgram),
    ("fp16", "train", lambda: eager.program("channels_last")),
]


@pytest.mark.parametrize(("precision", "mode", "make"), RIGHT)
def test_what_is_right_matches(
    trials: Trials, precision: Precision, mode: Mode, make: Callable[[], TorchProgram]
) -> None:
    found = trials(precision, mode).verdict(make())
    assert found.worst is not None
    print(f"{found.worst.name}: {found.worst.error / found.worst.limit:.2f} of the limit")
    assert (found.verdict, found.reason) == ("match", "")


# ---------------------------------------------------------------- planted errors


class MissingBias(TorchProgram):
    """The last layer adds no bias."""

    def _reset(self) -> None:
        super()._reset()
        with torch.no_grad():
            self.module.get_parameter("fc.bias").zero_()


class WrongPadding(TorchProgram):
    """A convolution repeats the border where zeros belong."""

    def _read(self, bundle: Any) -> None:
        super()._read(bundle)
        layer = self.module.get_submodule("conv1")
        assert isinstance(layer, nn.Conv2d)
        layer.padding_mode = "replicate"
        layer._reversed_padding_repeated_twice = [1, 1, 1, 1]


class WrongSign(TorchProgram):
    """One channel of a batch norm has the wrong sign."""

    def _reset(self) -> None:
        super()._reset()
        with torch.no_grad():
            self.module.get_parameter("bn1.weight")[0] *= -1


ERRORS: dict[Mode, dict[str, Callable[[], TorchProgram]]] = {
    "infer": {
        "missing bias": MissingBias,
        "wrong padding": WrongPadding,
        "one channel's sign": WrongSign,
        **{name: INFERENCE[name][0] for name in ("samples exchanged", "previous output", "NaN")},
    },
    "train": {
        "missing bias": MissingBias,
        "wrong padding": WrongPadding,
        "one channel's sign": WrongSign,
        "gradient x1.5": lambda: gradient_times(1.5)(),
        "weight decay ignored": lambda: with_settings(weight_decay=0.0)(),
        "wrong momentum": lambda: with_settings(momentum=0.8)(),
        **{
            name: TRAINING[name][0]
            for name in ("statistics not updated", "gradient x2", "momentum not used")
        },
    },
}
# One precision is enough for every day.
SLOW = pytest.mark.whole_network
TRIALS = [
    pytest.param(
        precision,
        mode,
        make,
        id=f"{precision}-{mode}-{name}",
        marks=() if precision == "bf16" else SLOW,
    )
    for precision in ("tf32", "bf16", "fp16")
    for mode, makers in ERRORS.items()
    for name, make in makers.items()
]


@pytest.mark.parametrize(("precision", "mode", "make"), TRIALS)
def test_a_planted_error_is_found(
    trials: Trials, precision: Precision, mode: Mode, make: Callable[[], TorchProgram]
) -> None:
    found = trials(precision, mode).verdict(make())
    print(found.reason)
    assert found.verdict == "differs"
