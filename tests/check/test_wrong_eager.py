"""Eager itself is judged: a wrong one is found, and one that only rounds is believed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from golow.check.checked_level import CheckedLevel
from golow.check.reference import Standard
from golow.levels import ladder
from golow.levels.starter import Starter
from golow.records.comparison import Check
from golow.records.errors import GolowError, WorkerFailure
from golow.records.workload import Mode, Optimizer, Precision
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.models.ill_conditioned import FLAT, IMAGES
from support.models.wrong_eagers import (
    COARSE,
    FAULTS,
    FEATURES,
    GRADIENT_FAULTS,
    OF_EACH_KIND,
    RIGHT,
    WrongEager,
    WrongImages,
)
from support.workers.kept_workers import kept_workers
from support.workers.precisions import in_precision

pytestmark = [pytest.mark.usefixtures("forked"), pytest.mark.slow]


@pytest.fixture(scope="module")
def starter() -> Iterator[Starter]:
    """Starts workers that serve every test here."""
    with kept_workers() as kept:
        yield kept.starter()


def judged(
    module: nn.Module,
    inputs: Tensor,
    mode: Mode,
    folder: Path,
    starter: Starter,
    precision: Precision = "ieee",
) -> tuple[Check, Standard]:
    """Eager's verdict, as a comparison finds it."""
    bundle = bundled(module, inputs, mode, folder / "bundle", precision)
    with CheckedLevel(ladder.choose("eager", mode, "cpu"), bundle, folder, starter) as eager:
        standard = Standard(bundle, folder, starter, eager.outputs("1 of 1"))
        eager.start(standard, False, "1 of 1")
    return eager.check, standard


def bundled(
    module: nn.Module, inputs: Tensor, mode: Mode, folder: Path, precision: Precision = "ieee"
) -> Bundle:
    """The workload of this module."""
    request = Request(
        module,
        inputs,
        mode=mode,
        threads=1,
        precision="ieee",
        loss=square if mode == "train" else None,
        optimizer=Optimizer(learning_rate=1e-3, momentum=0.9),
    )
    return in_precision(write_bundle(prepare(request), folder)[0], precision)


def square(output: Tensor) -> Tensor:
    """A loss to which every output counts, with a weight of its own."""
    weights = torch.linspace(0.5, 1.5, output.numel(), dtype=output.dtype).view_as(output)
    return (weights * output).mean() + output.square().mean()


def samples(name: str = "") -> Tensor:
    """Rows of features, drawn anew alike for each test."""
    torch.manual_seed(1)
    return torch.randn(2 if "two rows" in name else 8, FEATURES)


def images() -> Tensor:
    """A few images."""
    torch.manual_seed(1)
    return torch.randn(4, 3, 24, 24)


# ---------------------------------------------------------------- wrong


def in_both_modes(faults: Iterable[str]) -> pytest.MarkDecorator:
    """In inference all, which nothing but the output shows; in training one of each kind, and the
    others in make test-long."""
    return pytest.mark.parametrize(
        ("mode", "fault"),
        [
            *(pytest.param("infer", fault) for fault in faults),
            *(
                pytest.param(
                    "train", fault, marks=() if fault in OF_EACH_KIND else pytest.mark.whole_network
                )
                for fault in faults
            ),
        ],
    )


@in_both_modes(FAULTS)
def test_a_wrong_output_of_eager_is_found(
    fault: str, mode: Mode, tmp_path: Path, starter: Starter
) -> None:
    check, standard = judged(WrongEager(fault), samples(), mode, tmp_path, starter)
    print(check.reason)
    assert check.verdict == "differs"
    assert mode == "train" or "/output/0" in check.reason
    assert any("eager is farther" in note for note in standard.notes)
    assert not any("the check cannot see" in note for note in standard.notes)


@pytest.mark.parametrize("fault", GRADIENT_FAULTS)
def test_a_wrong_gradient_of_eager_is_found(fault: str, tmp_path: Path, starter: Starter) -> None:
    check, _ = judged(WrongEager(fault), samples(), "train", tmp_path, starter)
    print(check.reason)
    assert check.verdict == "differs"
    wrong = {item.name.split("/")[1] for item in check.tensors if not item.passed}
    assert "gradient" in wrong
    assert all(item.passed for item in check.tensors if item.name.startswith(("0/out", "0/loss")))


@in_both_modes(COARSE)
def test_a_wrong_output_in_bf16_is_found(
    fault: str, mode: Mode, tmp_path: Path, starter: Starter
) -> None:
    check, _ = judged(WrongEager(fault), samples(), mode, tmp_path, starter, "bf16")
    print(check.reason)
    assert check.verdict == "differs"


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_wrong_channel_of_a_batch_norm_is_found(
    mode: Mode, tmp_path: Path, starter: Starter
) -> None:
    check, _ = judged(WrongImages(), images(), mode, tmp_path, starter)
    print(check.reason)
    assert check.verdict == "differs"


@pytest.mark.parametrize("fault", ["10% too large", "nan", "no gradients"])
def test_beside_a_wrong_eager_levels_are_held_against_float64_alone(
    fault: str, tmp_path: Path, starter: Starter
) -> None:
    """A right one matches, and one that is off by a thousandth does not."""
    torch.manual_seed(0)
    wrong = WrongEager(fault)
    check, standard = judged(wrong, samples(), "train", tmp_path, starter)
    assert check.verdict == "differs"
    found = {}
    for other in (RIGHT, fault, "0.1% too large"):
        module = WrongEager(other)
        module.load_state_dict(wrong.state_dict())
        bundle = bundled(module, samples(), "train", tmp_path / other)
        with CheckedLevel(ladder.choose("eager", "train", "cpu"), bundle, tmp_path, starter) as one:
            one.start(standard, False, "1 of 1")
        found[other] = one.check.verdict
    assert found == {RIGHT: "match", fault: "differs", "0.1% too large": "differs"}


def test_gradients_that_are_wrong_do_not_slow_the_check_down(
    tmp_path: Path, starter: Starter
) -> None:
    """The learning rate of its steps falls with what rounding does to gradients alone."""
    rates = [
        judged(WrongEager(fault), samples(), "train", tmp_path / fault, starter)[1].learning_rate
        for fault in (RIGHT, "gradients of the other sign", "nan")
    ]
    print(rates)
    assert rates[1] > 0.05 * rates[0]
    assert rates[2] > 0.05 * rates[0]


def test_a_reference_that_is_not_finite_names_the_layer(tmp_path: Path, starter: Starter) -> None:
    module = nn.Sequential(nn.Linear(FEATURES, 8), nn.Linear(8, 8), nn.ReLU())
    nn.init.constant_(module[1].bias, torch.inf)
    with pytest.raises(GolowError, match=r"is not finite from layer 1 \(Linear\) on"):
        judged(module, samples(), "infer", tmp_path, starter)


@pytest.mark.parametrize("fault", [RIGHT, "10% too large"])
def test_what_cannot_be_measured_accuses_nobody(
    fault: str, tmp_path: Path, starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operation may fail where its result is rounded; then eager is believed, and a note says
    so."""

    def fails(self: Standard, *given: object, rounded: bool = False) -> Iterator[Path]:
        raise WorkerFailure("failed", "planted", "")
        yield

    monkeypatch.setattr(Standard, "_moved", fails)
    check, standard = judged(WrongEager(fault), samples(), "infer", tmp_path, starter)
    assert check.verdict == "match"
    assert any("(planted): eager was not judged" in n for n in standard.notes) == (fault != RIGHT)


# ---------------------------------------------------------------- right


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_an_ill_conditioned_model_is_believed(
    name: str, mode: Mode, tmp_path: Path, starter: Starter
) -> None:
    check, standard = judged(FLAT[name](), samples(name), mode, tmp_path, starter)
    assert (check.verdict, check.reason) == ("match", "")
    assert not any("eager is farther" in note for note in standard.notes)


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_norm_of_which_a_mean_remains_is_believed(
    name: str, mode: Mode, tmp_path: Path, starter: Starter
) -> None:
    check, standard = judged(IMAGES[name](), images(), mode, tmp_path, starter)
    assert (check.verdict, check.reason) == ("match", "")
    assert not any("eager is farther" in note for note in standard.notes)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", ["deep, fading", "softmax of logits", "batch norm over two rows"])
def test_half_precisions_are_believed(
    name: str, mode: Mode, precision: Precision, tmp_path: Path, starter: Starter
) -> None:
    check, standard = judged(FLAT[name](), samples(name), mode, tmp_path, starter, precision)
    assert (check.verdict, check.reason) == ("match", "")
    assert not any("eager is farther" in note for note in standard.notes)
