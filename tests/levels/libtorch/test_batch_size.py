"""One C++ training step for the batches of an epoch and its smaller last one; text only."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from golow import models
from golow.levels.libtorch.batch_size import step_for_any, step_for_both
from golow.levels.libtorch.emit import emit_program, without_comments
from golow.lower.capture.capture import capture_training
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.models.swin import Block
from golow.records.errors import Unsupported
from golow.records.record import encode
from golow.workload.bundle import Bundle
from support.workers.libtorch_bundle import workload

Step = tuple[Bundle, Graph]


def step(folder: Path, name: str, module: nn.Module, image: Tensor) -> Step:
    """The captured step on such an image, and as much of its bundle as is read."""
    target = torch.zeros(len(image), dtype=torch.int64)
    captured = capture_training(name, module, (image,), (target,), functional.cross_entropy)
    bundle = folder / str(len(image))
    bundle.mkdir()
    (bundle / "workload.json").write_bytes(encode(workload("train", [(image, target)])))
    save_file(captured.constants, bundle / "constants.safetensors")
    return Bundle(bundle), apply(captured.graph, CLEAN_UP)


def zoo_step(folder: Path, name: str, batch: int) -> Step:
    entry = models.ZOO[name]
    size = 64 if name == "resnet18" else entry.resolution
    return step(folder, name, models.build(name), torch.zeros(batch, entry.in_channels, size, size))


def code(graph: Graph) -> str:
    """The program without comments and without line breaks, which depend on the numbers."""
    return "".join(without_comments(emit_program(graph)).split())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet5", "mnist_cnn", "resnet18"])
@pytest.mark.parametrize("last", [3, 1])
def test_the_program_at_either_size_is_the_step_of_that_size(
    tmp_path: Path, name: str, last: int
) -> None:
    whole, rest = zoo_step(tmp_path, name, 8), zoo_step(tmp_path, name, last)
    program = code(step_for_both(*whole, *rest))
    declared = "conststd::int64_tsamples=batch.input(0).size(0);"
    assert program.count(declared) == 1
    for size, (_, graph) in ((8, whole), (last, rest)):
        assert program.replace(declared, "").replace("samples", str(size)) == code(graph)


@pytest.mark.slow
def test_one_program_serves_every_pair_of_sizes(tmp_path: Path) -> None:
    programs = set()
    for name, sizes in (("first", (8, 3)), ("second", (12, 7))):
        (tmp_path / name).mkdir()
        steps = [zoo_step(tmp_path / name, "lenet5", size) for size in sizes]
        programs.add(without_comments(emit_program(step_for_both(*steps[0], *steps[1]))))
    assert len(programs) == 1


def opened(folder: Path, name: str, batch: int) -> str:
    """The program of one step alone, which is the captured one at its size."""
    (folder / str(batch)).mkdir()
    _, graph = zoo_step(folder / str(batch), name, batch)
    program = without_comments(emit_program(step_for_any(graph, batch)))
    flat = "".join(program.split()).replace("conststd::int64_tsamples=batch.input(0).size(0);", "")
    assert flat.replace("samples", str(batch)) == code(graph)
    return program


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "lenet5", "mnist_cnn", "resnet18"])
def test_one_program_serves_many_sizes(tmp_path: Path, name: str) -> None:
    assert len({opened(tmp_path, name, batch) for batch in (3, 8, 20)}) == 1


class Windows(nn.Module):
    """A Swin transformer's block: its views multiply the number of samples by that of windows."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block(6, heads=2, size=10, shift=3, dropped=0.3)
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 10, 10, 6] -> [batch, 5]"""
        return self.head(self.block(x).mean((1, 2)))


@pytest.mark.slow
def test_windows_and_masks_follow_the_number_of_samples(tmp_path: Path) -> None:
    whole, rest = (step(tmp_path, "w", Windows(), torch.zeros(n, 10, 10, 6)) for n in (8, 3))
    program = code(step_for_both(*whole, *rest))
    declared = "conststd::int64_tsamples=batch.input(0).size(0);"
    assert "new_ones::call" in program
    assert "samples*4" in program or "4*samples" in program
    assert program.replace(declared, "").count("samples") > 10


@pytest.mark.slow
def test_a_size_that_is_a_width_too_is_right(tmp_path: Path) -> None:
    """LeNet-5 has a layer of 84."""
    assert "samples" in opened(tmp_path, "lenet5", 84)


class Counting(nn.Module):
    """Calculates with the number of samples."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 4] -> [batch, 5]"""
        count, y = x.shape[0], self.head(x)
        if self.how == "a multiple":
            return y / (3 * count)
        if self.how == "another number":
            return y * (count - 1)
        if self.how == "a constant":
            return y * torch.tensor(count)
        return torch.stack([row.exp() for row in y.unbind()])


def counting_steps(folder: Path, how: str) -> tuple[Step, Step]:
    steps = [step(folder, "counting", Counting(how), torch.zeros(size, 4)) for size in (4, 3)]
    return steps[0], steps[1]


def test_numbers_that_are_multiples_of_the_size_are_calculated(tmp_path: Path) -> None:
    whole, last = counting_steps(tmp_path, "a multiple")
    assert "number(3 * samples)" in emit_program(step_for_both(*whole, *last))


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("another number", "aten.mul.Tensor depends on the batch size, and not only through"),
        ("a constant", "a different step"),
        ("operations", "a different step"),
    ],
)
def test_a_step_that_depends_on_its_size_otherwise_is_unsupported(
    tmp_path: Path, how: str, reason: str
) -> None:
    whole, last = counting_steps(tmp_path, how)
    with pytest.raises(Unsupported, match=reason):
        step_for_both(*whole, *last)
