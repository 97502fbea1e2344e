"""Which layers a quantisation loses most in: a layer that loses everything is found."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from golow.observer import Silent
from golow.programs.quantization.outputs import outputs_of
from golow.programs.quantization.samples import Samples
from golow.programs.quantization.sensitivity import ranking
from golow.report.quantization import table
from golow.workload.batch import Batch
from golow.workload.quantization.quantize import QuantizedModule, quantized
from support import command
from support.models.quantized_networks import samples_of


class Rows(nn.Module):
    """Linear layers; the weights of one have an outlier in each row, for an input that is zero."""

    def __init__(self, outlier: str | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = (nn.Linear(16, 16) for _ in range(3))
        if outlier is not None:
            self.get_submodule(outlier).get_parameter("weight").data[:, 0] = 1e4

    def forward(self, x: Tensor) -> Tensor:
        """[N, 16] -> [N, 16]"""
        dark = torch.ones(16)
        dark[0] = 0
        for layer in (self.first, self.second, self.third):
            x = layer(x * dark).relu() if layer is not self.third else layer(x * dark)
        return x


def samples(module: nn.Module, *, labelled: bool = True) -> Samples:
    """Samples that the module classifies rightly."""
    generator = torch.Generator().manual_seed(1)
    batches = []
    for _ in range(2):
        x = torch.randn(64, 16, generator=generator)
        with torch.no_grad():
            labels = module(x).argmax(-1)
        batches.append(Batch((x,), (labels,) if labelled else ()))
    return Samples(tuple(batches), "rows", "more rows", tuple(batches))


def made_of(module: nn.Module, given: Samples) -> QuantizedModule:
    inputs = [batch.inputs[0] for batch in given.calibration]
    return quantized(module, "int8", samples_of(*inputs))


@pytest.mark.parametrize("outlier", ["first", "second", "third"])
def test_the_layer_with_outliers_is_found(outlier: str) -> None:
    module = Rows(outlier).eval()
    given = samples(module)
    found = ranking(module, made_of(module, given), given, 0.99, Silent())
    assert found.layers[0].path == outlier
    assert found.layers[0].left < found.distance / 100
    assert all(layer.left > found.distance / 2 for layer in found.layers[1:])
    assert {layer.multiplications for layer in found.layers} == {256}
    assert found.original_right == found.samples == 128
    assert found.quantized_right is not None and found.quantized_right < 120
    assert found.proposal is not None
    assert found.proposal.keep == (outlier,)
    assert found.proposal.right >= 0.99 * 128


def test_nothing_is_kept_where_all_layers_may_be_quantised() -> None:
    module = Rows(None).eval()
    given = samples(module)
    found = ranking(module, made_of(module, given), given, 0.9, Silent())
    assert found.proposal is not None
    assert found.proposal.keep == ()
    assert found.proposal.right == found.quantized_right


def test_without_classes_layers_are_ranked_alone() -> None:
    module = Rows("second").eval()
    given = samples(module, labelled=False)
    found = ranking(module, made_of(module, given), given, 0.99, Silent())
    assert found.layers[0].path == "second"
    assert found.proposal is None and found.original_right is None
    assert list(table.ranking_lines(found))[-1].startswith("no proposal")


def test_the_network_is_as_it_was() -> None:
    module = Rows("first").eval()
    given = samples(module)
    made = made_of(module, given)
    before, names = copy.deepcopy(made.module.state_dict()), str(made.module)
    ranking(module, made, given, 0.99, Silent())
    assert str(made.module) == names
    after = made.module.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_command_keeps_what_was_proposed(tmp_path: Path) -> None:
    given = ("quantize", "mlp", "--calibrate", "inputs", "--out", "q.safetensors")
    ranked = command.golow(*given, "--rank-layers", folder=tmp_path)
    assert ranked.status == 0, ranked.error
    assert table.LAYERS in ranked.output
    kept = command.golow(*given, "--keep", "fc1,fc3", folder=tmp_path)
    assert "kept: 2 (fc1, ...): it is to be kept" in kept.output
    wrong = command.golow(*given, "--keep", "fc9", folder=tmp_path)
    assert wrong.status == 2
    assert "did you mean" in wrong.error


# ---------------------------------------------------------------- 4 bits


class Labelled(Samples):
    """Samples whose tested ones have classes."""

    def batches(self) -> Iterator[tuple[tuple[Tensor, ...], Tensor | None]]:
        """The calibration's."""
        yield from ((batch.inputs, batch.targets[0]) for batch in self.calibration)


def test_of_4_bits_the_wider_form_has_8() -> None:
    """An outlier that takes the other weights to zero in 4 bits, and not in 8."""
    module = Rows("second").eval()
    module.second.weight.data[:, 0] = 3.0
    given = Labelled(*samples(module))
    made = quantized(module, "int4-weights", samples_of(), group=16)
    found = ranking(module, made, given, 0.8, Silent())
    assert found.kept_in == "8 bits"
    assert found.layers[0].path == "second"
    assert found.layers[0].left < found.distance / 2
    assert found.proposal is not None and found.proposal.keep == ("second",)
    assert found.proposal.accuracy is not None
    assert found.proposal.accuracy.quantized.count == found.proposal.right
    assert "  --in-8-bits second" in table.ranking_lines(found)
    mixed = quantized(module, "int4-weights", samples_of(), group=16, in_8_bits=["second"])
    call = outputs_of(mixed.module)
    right = sum(int((call(x)[0].argmax(-1) == labels).sum()) for x, labels in given.batches())
    assert right == found.proposal.right
    again = ranking(module, mixed, given, 0.8, Silent())
    assert {layer.path for layer in again.layers} == {"first", "third"}
