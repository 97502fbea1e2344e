"""Networks with new weights answer to their inputs, so that a check of their outputs sees an error
in any layer; a record says so of those that do not."""

from __future__ import annotations

import copy
import math
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from golow.check.reference import Standard
from golow.check.rounding import FLOAT32, TF32
from golow.check.timed_results import SUM_ROUNDING, Limit
from golow.levels.starter import Starter
from golow.models import ZOO
from golow.records.comparison import Check, TensorError
from golow.workload.batch import Batch
from golow.workload.bundle import write_bundle
from golow.workload.prepare import Prepared, prepare
from golow.workload.request import Request
from golow.workload.variances import measure_variances

pytestmark = pytest.mark.usefixtures("forked")

BEHIND_NORMS = [
    "densenet121", "efficientnet_b0", "mobilenet_v1", "mobilenet_v2", "resnet18", "shufflenet_v2",
]  # fmt: skip
LARGE = ("alexnet", "vgg16", "vgg19", "resnet50", "convnext_tiny", "vit_b_16")
IMAGES = [
    pytest.param(name, marks=pytest.mark.whole_network if name in LARGE else ())
    for name, entry in ZOO.items()
    if entry.resolution >= 128
]


class Fading(nn.Module):
    """Each layer makes its input smaller, and nothing makes it larger again."""

    def __init__(self, norm: bool = True) -> None:
        super().__init__()
        layers = [
            nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4) if norm else nn.ReLU())
            for _ in range(8)
        ]
        self.layers = nn.Sequential(*layers)
        for layer in layers:
            nn.init.normal_(layer[0].get_parameter("weight"), 0.0, 0.01)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers(x)
        return result


def images(batch: int = 2) -> Tensor:
    return torch.randn(batch, 4, 8, 8, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def outputs(module: nn.Module, prepared: Prepared) -> Tensor:
    return torch.cat([module(*batch.inputs) for batch in prepared.batches])


def spread(samples: Tensor) -> float:
    """How far samples are from their mean, as a share of their size."""
    apart = (samples - samples.mean(dim=0)).square().mean().sqrt()
    return float(apart / samples.square().mean().sqrt())


@cache
def prepared_network(name: str) -> Prepared:
    """With new weights, for two small images."""
    entry = ZOO[name]
    side = min(entry.resolution, max(64, entry.minimum_resolution))
    return prepare(Request(name, batch=2, resolution=side))


@pytest.mark.slow
@pytest.mark.parametrize("name", IMAGES)
def test_a_new_network_answers_to_its_images(name: str) -> None:
    """By far more than rounding; without statistics six of these differ by a thousandth or less."""
    prepared = prepared_network(name)
    assert spread(outputs(prepared.module, prepared)) > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("name", BEHIND_NORMS)
def test_an_error_in_the_first_layer_is_seen(name: str) -> None:
    prepared = prepared_network(name)
    wrong = copy.deepcopy(prepared.module)
    first = next(layer for layer in wrong.modules() if isinstance(layer, nn.Conv2d))
    with torch.no_grad():
        first.weight[0] *= 1.5  # one of its filters
    right = outputs(prepared.module, prepared)
    moved = (outputs(wrong, prepared) - right).square().mean().sqrt()
    assert moved > 100 * FLOAT32.own * FLOAT32.size * right.square().mean().sqrt()


@pytest.mark.slow
def test_variances_are_those_of_the_first_samples() -> None:
    """Of eight, or of more batches if those are smaller; what a record says of the weights."""
    few = prepare(Request("resnet18", batch=1, resolution=32))
    assert few.workload.initialisation == "default, seed 0, norms' variances of 4 samples"
    assert few.batches[0].inputs[0].shape[0] == 1
    many = prepare(Request("resnet18", batch=16, resolution=32))
    assert many.workload.initialisation == "default, seed 0, norms' variances of 8 samples"
    image = many.batches[0].inputs[0][:8].double()
    size = many.module.get_submodule("conv1").double()(image).square().mean()
    state = many.module.state_dict()
    torch.testing.assert_close(state["bn1.running_var"], size.float().expand(64))
    assert not state["bn1.running_mean"].any()
    assert not any(layer.training for layer in many.module.modules())


@pytest.mark.slow
@pytest.mark.parametrize("name", BEHIND_NORMS)
def test_an_unusual_image_is_no_larger_and_rounds_no_more(name: str) -> None:
    """A race writes one value into an eighth of every sample, which the norms have not seen."""
    prepared = prepare(Request(name, batch=1, resolution=64))
    exact = copy.deepcopy(prepared.module).double()
    usual = outputs(prepared.module, prepared)
    for value in (-1.0, 2.0):
        image = prepared.batches[0].inputs[0].clone()
        image[:, 1, 16:40] = value
        with torch.no_grad():
            found, right = prepared.module(image), exact(image.double())
        assert right.abs().max() < 20 * usual.abs().max()
        assert (found - right).norm() < 1e-4 * right.norm()


def test_training_starts_with_fresh_statistics() -> None:
    prepared = prepare(Request("resnet18", mode="train", batch=2, resolution=32))
    assert prepared.workload.initialisation == "default, seed 0"
    assert set(prepared.module.state_dict()["bn1.running_var"].tolist()) == {1.0}


@pytest.mark.slow
def test_given_weights_stay_as_they_are(tmp_path: Path) -> None:
    """Those of a file, and those of a live module, even if they have seen no batch."""
    module = Fading()
    given = prepare(Request(module, images(), batch=2))
    assert given.workload.initialisation == "as given"
    file = tmp_path / "weights.safetensors"
    fresh = prepare(Request("resnet18", mode="train", batch=2, resolution=32)).module
    save_file(fresh.state_dict(), file)
    loaded = prepare(Request("resnet18", batch=2, resolution=32, weights=file)).module
    for own, there in ((given.module, module), (loaded, fresh)):
        for name, tensor in there.state_dict().items():
            assert torch.equal(own.state_dict()[name], tensor), name


def test_norms_that_have_seen_a_batch_keep_what_they_saw() -> None:
    module = Fading()
    module.train()(images())
    module.eval()
    before = copy.deepcopy(module.state_dict())
    assert measure_variances(module, [Batch((images(),))]) == 0
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_one_value_a_channel_is_enough_and_zeros_are_none() -> None:
    module = nn.Sequential(nn.BatchNorm1d(4)).eval()
    assert measure_variances(module, [Batch((torch.zeros(1, 4),))]) == 1
    assert module.state_dict()["0.running_var"].tolist() == [1.0] * 4
    assert measure_variances(module, [Batch((torch.tensor([[1.0, -1.0, 3.0, 1.0]]),))]) == 1
    assert module.state_dict()["0.running_var"].tolist() == [3.0] * 4


def test_a_module_that_cannot_run_in_float64_changes_nothing() -> None:
    module = Fading().eval()
    module.register_forward_pre_hook(require_float32)
    assert measure_variances(module, [Batch((images(),))]) == 0


def require_float32(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    if inputs[0].dtype != torch.float32:
        raise NotImplementedError("this module computes in float32 only")


@pytest.mark.slow
@pytest.mark.parametrize("norm", [True, False], ids=["norm", "relu"])
def test_a_record_says_which_outputs_do_not_answer(norm: bool, tmp_path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = Fading(norm)
    notes = standard_notes(module, images(), tmp_path)
    assert any("hardly depend on the inputs" in note for note in notes)
    assert "With trained weights" in " ".join(notes)


@pytest.mark.slow
def test_a_record_says_nothing_of_outputs_that_answer(tmp_path: Path) -> None:
    """Nor of a model that gets the same sample each time, which shows nothing of this."""
    answering = nn.Sequential(nn.Flatten(), nn.Linear(256, 4))
    assert standard_notes(answering, images(), tmp_path / "answering") == []
    words, same = nn.Embedding(8, 4), torch.ones(2, 3, dtype=torch.int64)
    assert standard_notes(words, same, tmp_path / "same") == []


@pytest.mark.parametrize("kind", ["argmax", "truth"])
def test_outputs_without_rounding_have_nothing_to_note(kind: str, tmp_path: Path) -> None:
    class Deciding(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            scores = super().forward(x)
            return scores.argmax(-1) if kind == "argmax" else scores > 0

    assert standard_notes(Deciding(3, 4), torch.randn(2, 3), tmp_path) == []


def standard_notes(module: nn.Module, example: Tensor, folder: Path) -> list[str]:
    bundle, _ = write_bundle(prepare(Request(module, example, batch=2)), folder / "bundle")
    return Standard(bundle, folder, Starter()).notes


def test_a_move_is_none_if_the_sum_of_a_result_may_round_by_it() -> None:
    """Outputs may be right to a ten-millionth; their sum in float32 is known less well."""
    workload = prepare(Request("mlp", batch=2)).workload
    tensor = TensorError(
        name="0/output/0", elements=1000, scale=0.5, error=0.0, eager_error=1e-7, zero_scale=0.0,
        limit=TF32.size, passed=True,
    )  # fmt: skip
    limit = Limit.of(Check(verdict="match", tensors=(tensor,)), workload)
    assert limit.rounding >= SUM_ROUNDING * 0.5 * math.sqrt(1000)
