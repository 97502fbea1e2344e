"""Weights, losses and targets of a workload: the caller's own, or the usual ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from golow.records.errors import GolowError
from golow.records.workload import Optimizer
from golow.workload.losses import mse_of_outputs
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.models.model_files import (
    assert_computes,
    eager_outputs,
    refusal,
)

pytestmark = pytest.mark.usefixtures("forked", "own_imports")


# ---------------------------------------------------------------- weights

WEIGHTS = {"weight": torch.ones(4, 16), "bias": torch.ones(4)}


def test_weights_of_a_file(file: Path, tmp_path: Path) -> None:
    state = {"fc.weight": torch.randn(4, 16), "fc.bias": torch.randn(4)}
    save_file(state, tmp_path / "mine.safetensors")
    prepared = prepare(
        Request(f"{file}:Net", input_shape=(16,), weights=tmp_path / "mine.safetensors")
    )
    assert prepared.workload.initialisation == "weights of mine.safetensors"
    assert torch.equal(prepared.module.state_dict()["fc.weight"], state["fc.weight"])


def test_a_module_that_reads_its_version_is_loaded(file: Path, tmp_path: Path) -> None:
    """As torchvision's MNASNet, which refuses tensors without a version."""
    weights = tmp_path / "mine.safetensors"
    save_file({"fc.weight": torch.randn(4, 16), "fc.bias": torch.randn(4)}, weights)
    prepared = prepare(Request(f"{file}:Versioned", input_shape=(16,), weights=weights))
    with pytest.raises(ValueError, match="instead of None"):
        prepared.module.load_state_dict(load_file(weights))
    assert_computes(prepared, tmp_path)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.table(tokens))
        return found


@pytest.mark.parametrize("name", ["table.weight", "head.weight"])
def test_a_tied_weight_may_have_either_name(name: str, tmp_path: Path) -> None:
    """``safetensors.torch.save_model`` writes one of them."""
    weights, wanted = tmp_path / "tied.safetensors", torch.randn(6, 4)
    save_file({name: wanted}, weights)
    module = prepare(Request(Tied(), torch.zeros(2, 3, dtype=torch.int64), weights=weights)).module
    assert torch.equal(module.state_dict()["table.weight"], wanted)
    assert torch.equal(module.state_dict()["head.weight"], wanted)


def test_a_file_without_what_older_modules_lack_is_loaded(tmp_path: Path) -> None:
    """Batch norm of version 1 had no count of batches."""
    weights = tmp_path / "old.safetensors"
    state = nn.BatchNorm1d(16).state_dict()
    save_file({name: t for name, t in state.items() if t.dim()}, weights)
    prepare(Request(nn.BatchNorm1d(16), torch.randn(2, 16), weights=weights))


@pytest.mark.parametrize(
    ("name", "write", "message", "hint"),
    [
        ("a.pt", lambda p: torch.save({}, p), "is not a .safetensors file", "weights_only=True"),
        ("a.safetensors", lambda p: p.write_bytes(b"pickled"), "cannot be read", ""),
        ("a.safetensors", lambda p: torch.save({}, p), "cannot be read", ""),
        ("b.safetensors", lambda p: None, "there is no file", ""),
        (
            "a.safetensors",
            lambda p: save_file({"linear.weight": torch.ones(2)}, p),
            'Missing key(s) in state_dict: "fc.weight", "fc.bias"',
            "",
        ),
        (
            "a.safetensors",
            lambda p: save_file({"fc.weight": torch.ones(4, 15), "fc.bias": torch.ones(4)}, p),
            "size mismatch for fc.weight",
            "",
        ),
        (
            "a.safetensors",
            lambda p: save_file(
                {"module.fc.weight": torch.ones(4, 16), "module.fc.bias": torch.ones(4)}, p
            ),
            "Missing key(s) in state_dict",
            "its names begin with module.; save the state dict without it",
        ),
    ],
)
def test_weights_that_do_not_fit(
    file: Path, tmp_path: Path, name: str, write: Callable[[Path], Any], message: str, hint: str
) -> None:
    write(tmp_path / name)
    refused = refusal(f"{file}:Net", input_shape=(16,), weights=tmp_path / name)
    assert message in refused.message
    assert hint in refused.hint


def test_hundreds_of_names_that_do_not_fit_are_cut(file: Path, tmp_path: Path) -> None:
    weights = tmp_path / "many.safetensors"
    save_file({f"layers.{n}.weight": torch.ones(2) for n in range(500)}, weights)
    message = refusal(f"{file}:Net", input_shape=(16,), weights=weights).message
    assert "Unexpected key(s)" in message and "..." in message
    assert max(map(len, message.splitlines())) < 300


# ---------------------------------------------------------------- losses and targets


def test_the_loss_by_its_name(file: Path) -> None:
    prepared = prepare(Request(f"{file}:Net", input_shape=(16,), mode="train", loss="mse_loss"))
    assert (prepared.workload.loss, prepared.loss) == ("mse_loss", nn.functional.mse_loss)
    assert prepared.batches[0].targets[0].shape == (8, 4)
    assert prepared.workload.targets[0].dtype == "float32"


def test_classes_fit_the_output(file: Path) -> None:
    prepared = prepare(Request(f"{file}:Net", input_shape=(16,), mode="train", batch=32))
    labels = torch.cat([batch.targets[0] for batch in prepared.batches])
    assert prepared.workload.loss == "cross_entropy"
    assert labels.dtype == torch.int64
    assert set(labels.tolist()) == {0, 1, 2, 3}


def test_one_class_a_pixel() -> None:
    """Segmentation: the output has classes and places."""
    module = nn.Conv2d(3, 5, 1)
    prepared = prepare(Request(module, torch.randn(2, 3, 6, 6), mode="train"))
    assert prepared.workload.targets[0].shape == (2, 6, 6)


def test_the_callers_targets_and_loss(tmp_path: Path) -> None:
    """They travel to the worker as they are, the loss too."""
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0])
    module, targets = nn.Linear(16, 4), torch.randn(4, 4)

    def weighted(output: Tensor, target: Tensor) -> Tensor:
        return (weight * (output - target).abs()).sum()

    prepared = prepare(
        Request(module, torch.ones(4, 16), mode="train", loss=weighted, targets=targets)
    )
    assert prepared.workload.loss == "weighted"
    assert torch.equal(prepared.batches[0].targets[0], targets)
    assert torch.equal(prepared.batches[1].targets[0], targets.roll(1, 0))
    expected = weighted(prepared.module(torch.ones(4, 16)), targets)
    found = eager_outputs(prepared, tmp_path)["0/loss/loss"]
    torch.testing.assert_close(found, expected.detach())


def test_the_optimizer_is_the_callers(file: Path) -> None:
    optimizer = Optimizer(learning_rate=0.5, momentum=0.0, weight_decay=1e-4)
    asked = {"input_shape": (16,), "mode": "train", "optimizer": optimizer}
    assert prepare(Request(f"{file}:Net", **asked)).workload.optimizer == optimizer


@pytest.mark.parametrize(
    ("name", "loss", "message", "hint"),
    [
        (
            "Net",
            "cross_entropi",
            "has no loss 'cross_entropi'",
            "golow's token_cross_entropy or mse_of_outputs.",
        ),
        ("Scores", "cross_entropy", "needs one score per class", "--loss mse_loss"),
        ("Net", lambda output, target: output, "is not one number", ""),
        ("Net", lambda output, target: 3.0, "is not one number", ""),
        ("Net", lambda output: output.sum(), "the loss does not accept the output", "loss="),
    ],
)
def test_a_loss_that_is_none(file: Path, name: str, loss: Any, message: str, hint: str) -> None:
    refused = refusal(f"{file}:{name}", input_shape=(16,), mode="train", loss=loss)
    assert message in refused.message
    assert hint in f"{refused.hint} {refused.python_hint}"


def test_of_several_outputs_the_loss_that_takes_them_is_named() -> None:
    class Both(nn.Linear):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            return x, super().forward(x)

    with pytest.raises(GolowError, match="the loss does not accept the output") as refused:
        prepare(Request(Both(4, 4), torch.randn(8, 4), mode="train", loss="mse_loss"))
    assert refused.value.hint == "name another loss: --loss mse_of_outputs."


def test_a_try_leaves_the_statistics_of_a_layer_with_two_names() -> None:
    """``functional_call`` puts its copies into such a layer, and does not take them out again."""
    norm = nn.BatchNorm1d(4)
    module = nn.Sequential(nn.Linear(4, 4), norm, nn.Linear(4, 4), norm)
    targets = torch.zeros(8, dtype=torch.long)
    prepared = prepare(Request(module, torch.randn(8, 4), mode="train", targets=targets))
    state = prepared.module.state_dict()
    assert state["1.num_batches_tracked"] == 0
    assert not state["3.running_mean"].any()


def test_an_output_without_elements_adds_nothing_to_the_loss() -> None:
    output, target = torch.randn(2, 3), torch.randn(2, 3)
    found = mse_of_outputs((output, output[:, 3:]), target, target[:, 3:])
    torch.testing.assert_close(found, functional.mse_loss(output, target))
