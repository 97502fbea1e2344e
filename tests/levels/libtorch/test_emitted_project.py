"""The project of `golow emit` at the level libtorch: any batch, inputs and outputs in files, and
files that do not fit."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from golow.levels.libtorch.emission import emit
from golow.workload.prepare import prepare
from golow.workload.request import Request

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed"),
]


class Words(nn.Module):
    """A transformer's layer over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 7)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.table(tokens)))


def words() -> Words:
    torch.manual_seed(0)
    return Words().eval()


def tokens(rows: int) -> Tensor:
    return torch.randint(50, (rows, 16), generator=torch.Generator().manual_seed(rows))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written for a batch of one."""
    folder = tmp_path_factory.mktemp("emitted") / "words"
    emit(prepare(Request(words(), tokens(1), threads=1)), folder)
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    for command in (
        ["cmake", "-S", ".", "-B", "build", prefix],
        ["cmake", "--build", "build", "--parallel", "2"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def test_writing_a_project_leaves_the_threads_of_the_process(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    emit(prepare(Request(words(), tokens(1), threads=2 if before == 1 else 1)), tmp_path / "words")
    assert torch.get_num_threads() == before


@pytest.fixture
def project(built: Path) -> Iterator[Path]:
    """The project, with its own weights again afterwards."""
    weights = (built / "weights.safetensors").read_bytes()
    yield built
    (built / "weights.safetensors").write_bytes(weights)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["./build/run", ".", *arguments], cwd=folder, capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"]},
    )  # fmt: skip


def difference(said: str) -> float:
    """To eager's outputs, whose layer has a fused form of its own."""
    [line] = [one for one in said.splitlines() if one.startswith("largest difference")]
    return float(line.rpartition(" ")[2])


def test_the_example_gives_what_was_stored_on_the_threads_of_the_workload(project: Path) -> None:
    done = run(project, "3")
    assert difference(done.stdout) < 1e-6
    assert "(median of 3, threads: 1)" in done.stdout


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_it_runs_any_batch_on_inputs_of_ones_own(rows: int, project: Path) -> None:
    save_file({"input/0": tokens(rows)}, project / "in.safetensors")
    done = run(project, "--inputs", "in.safetensors", "--outputs", "out.safetensors")
    assert (done.returncode, done.stderr) == (0, "")
    with torch.inference_mode():
        wanted = words()(tokens(rows))
    torch.testing.assert_close(load_file(project / "out.safetensors")["output/0"], wanted)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"x": tokens(1)}, "in.safetensors has no tensor input/0"),
        ({"input/0": tokens(1).float()}, "input/0 is not Long of 2 dimensions"),
        ({"input/0": tokens(1)[0]}, "input/0 is not Long of 2 dimensions"),
        ({"input/0": tokens(1) + 50}, "index out of range"),
    ],
)
def test_inputs_that_do_not_fit_are_one_line(
    tensors: dict[str, Tensor], said: str, project: Path
) -> None:
    save_file(tensors, project / "in.safetensors")
    done = run(project, "--inputs", "in.safetensors", "--outputs", "out.safetensors")
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_other_weights_have_nothing_to_compare_with(project: Path) -> None:
    weights = load_file(project / "weights.safetensors")
    weights["head.bias"] += 1
    save_file(weights, project / "weights.safetensors")
    done = run(project, "3")
    assert done.returncode == 0
    assert "largest difference" not in done.stdout
    assert "the weights are others than those of the stored outputs" in done.stdout


def test_weights_of_another_shape_are_one_line(project: Path) -> None:
    weights = load_file(project / "weights.safetensors")
    weights["head.weight"] = torch.zeros(7, 33)
    save_file(weights, project / "weights.safetensors")
    done = run(project)
    assert done.returncode == 1
    assert done.stderr == (
        "./weights.safetensors: head.weight is [7, 33]; the network has [7, 32]\n"
    )


def test_what_is_installed_runs_elsewhere(project: Path, tmp_path: Path) -> None:
    install = ["cmake", "--install", "build", "--prefix", str(tmp_path / "there")]
    subprocess.run(install, cwd=project, check=True, capture_output=True)
    files = tmp_path / "there" / "share" / "network"
    done = subprocess.run(
        [tmp_path / "there" / "bin" / "run", files, "3"], capture_output=True, text=True, check=True
    )
    assert difference(done.stdout) < 1e-6
    assert (tmp_path / "there" / "lib" / "libnetwork.a").exists()
    assert (tmp_path / "there" / "include" / "network" / "program.h").exists()
