"""Errors planted into real workers are found, and what is right matches."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from golow.check.checked_level import CheckedLevel
from golow.check.reference import Standard
from golow.check.rule import Check
from golow.levels.ladder import ChosenLevel, Launch, Level, Probe
from golow.records.workload import Mode, Optimizer
from golow.workload.bundle import Bundle
from support.places import SUPPORT
from support.plants.planted import ADAM, INFERENCE, TRAINING, ZEROS
from support.workers.bundles import SGD, network_bundle
from support.workers.kept_workers import kept_workers

pytestmark = pytest.mark.usefixtures("forked")


class CheckFixture(NamedTuple):
    """A workload with its standard, and the worker that is compared with it."""

    standard: Standard
    level: CheckedLevel

    def verdict(self, plant: str) -> Check:
        """Of the worker with this error planted; the same process, loaded anew."""
        assert self.level.worker is not None
        bundle = self.level.bundle.folder
        planted = bundle.with_name(f"{bundle.name}-planted")
        shutil.copytree(bundle, planted)
        (planted / "plant").write_text(plant)
        try:
            self.level.worker.load(planted)
            return self.standard.judge(self.level.worker.outputs).check
        finally:
            shutil.rmtree(planted)


Fixtures = Callable[..., CheckFixture]
"""By mode, the name of a network in `networks`, and an optimizer."""

ADAMW = Optimizer(name="adamw", weight_decay=0.1)


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fixtures]:
    """The fixture of each mode and network, made when it is first needed."""
    with ExitStack() as stack:
        kept = stack.enter_context(kept_workers())

        @cache
        def fixture(
            mode: Mode, network: str = "Network", optimizer: Optimizer = SGD
        ) -> CheckFixture:
            folder = tmp_path_factory.mktemp(mode)
            bundle = network_bundle(
                folder / "bundle", mode, threads=1, network=network, optimizer=optimizer
            )
            standard = Standard(bundle, folder, kept.starter())
            level = stack.enter_context(
                CheckedLevel(planted_level(), bundle, folder, kept.starter())
            )
            assert level.start(standard, False, "1 of 1"), level.check.reason
            return CheckFixture(standard, level)

        yield fixture


def planted_level() -> ChosenLevel:
    command = (sys.executable, str(SUPPORT / "plants" / "planted.py"))

    def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
        return Launch(command)

    return ChosenLevel(Level("planted", "", "", lambda: Probe(True), prepare), "")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_what_is_right_matches(fixtures: Fixtures, mode: Mode) -> None:
    check = fixtures(mode).verdict("nothing")
    assert (check.verdict, check.reason) == ("match", "")
    assert all(tensor.passed for tensor in check.tensors)
    kinds = {tensor.name.split("/")[1] for tensor in check.tensors}
    training = {"output", "loss", "gradient", "parameter", "momentum", "buffer"}
    assert kinds == (training if mode == "train" else {"output"})


@pytest.mark.parametrize("plant", INFERENCE)
def test_an_error_planted_in_inference_is_found(fixtures: Fixtures, plant: str) -> None:
    check = fixtures("infer").verdict(plant)
    print(f"{plant}: {check.reason}")
    assert check.verdict == "differs"
    assert INFERENCE[plant][1] in check.reason


@pytest.mark.parametrize("plant", TRAINING)
def test_an_error_planted_in_training_is_found(fixtures: Fixtures, plant: str) -> None:
    check = fixtures("train").verdict(plant)
    print(f"{plant}: {check.reason}")
    assert check.verdict == "differs"
    assert TRAINING[plant][1] in check.reason


@pytest.mark.slow
def test_another_order_of_summation_is_right_where_the_exact_value_is_zero(
    fixtures: Fixtures,
) -> None:
    check = fixtures("train", "Biased").verdict("term after term")
    assert (check.verdict, check.reason) == ("match", "")
    zero = {tensor.name: tensor for tensor in check.tensors if tensor.zero_scale}
    assert set(zero) == {f"0/gradient/{n}.bias" for n in ("conv1", "conv2", "keys")}
    for tensor in zero.values():
        assert tensor.scale < 1e-15 < tensor.eager_error  # of the tensor's own size, eager is wrong
        assert tensor.error < 2e-6 * tensor.zero_scale
    other = zero["0/gradient/conv1.bias"]
    assert other.error > 3 * other.eager_error, "eager's own error explains this order, too"


@pytest.mark.parametrize("plant", [name for name, (_, found) in ZEROS.items() if found])
def test_an_error_in_a_gradient_that_is_exactly_zero_is_found(
    fixtures: Fixtures, plant: str
) -> None:
    check = fixtures("train", "Biased").verdict(plant)
    print(f"{plant}: {check.reason}")
    assert check.verdict == "differs"
    name = f"0/gradient/{ZEROS[plant][1]}"
    wrong = next(tensor for tensor in check.tensors if tensor.name == name)
    assert not wrong.passed
    assert 0 < wrong.error < wrong.zero_scale  # as a share of what cancels, the error has a size
    gradients = {tensor.name for tensor in check.tensors if "/gradient/" in tensor.name}
    assert not [t for t in check.tensors if t.name in gradients - {name} and not t.passed]


@pytest.mark.parametrize(("plant", "verdict"), [("20", "match"), ("400", "differs")])
def test_a_gradient_that_nearly_cancels_may_be_off_by_roundings_of_its_terms(
    fixtures: Fixtures, plant: str, verdict: str
) -> None:
    check = fixtures("train").verdict(f"sums off by {plant}")
    print(check.reason)
    assert check.verdict == verdict
    weight = next(tensor for tensor in check.tensors if tensor.name == "0/gradient/conv2.weight")
    own = 64 * 2.0**-23 * weight.scale
    assert weight.error > own + 3 * weight.eager_error, "its own size explains it, too"
    assert weight.passed == (verdict == "match")


@pytest.mark.slow
def test_what_is_right_matches_with_an_optimizer_that_divides_by_the_gradients_size(
    fixtures: Fixtures,
) -> None:
    check = fixtures("train", "Biased", ADAMW).verdict("term after term")
    assert (check.verdict, check.reason) == ("match", "")
    moved = next(tensor for tensor in check.tensors if tensor.name == "1/parameter/conv1.bias")
    assert moved.error > 0.1 * ADAMW.learning_rate, "it went where eager went"


@pytest.mark.parametrize("plant", ADAM)
def test_an_error_planted_in_adam_is_found(fixtures: Fixtures, plant: str) -> None:
    check = fixtures("train", "Biased", ADAMW).verdict(plant)
    print(f"{plant}: {check.reason}")
    assert check.verdict == "differs"
    assert ADAM[plant][1] in check.reason


@pytest.mark.parametrize("plant", ["not centred", "half terms", "one term missing", "bias off"])
def test_an_error_in_a_gradient_that_is_exactly_zero_is_found_under_adam(
    fixtures: Fixtures, plant: str
) -> None:
    check = fixtures("train", "Biased", ADAMW).verdict(plant)
    print(f"{plant}: {check.reason}")
    assert check.verdict == "differs"
    wrong = [t.name for t in check.tensors if not t.passed and "/gradient/" in t.name]
    assert wrong == ["0/gradient/conv1.bias"]
