"""The level libtorch compiled and run through the real protocol, compared with eager bit by bit."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from golow.levels.libtorch.build import Artifact, build
from golow.levels.libtorch.project import CONFIGURE, write_project
from golow.lower.aten.translation import Captured
from golow.lower.capture.capture import capture_inference, capture_training
from golow.records.errors import GolowError
from golow.records.workload import Optimizer
from golow.worker.client import Worker
from support.models import optimizers
from support.models.everything import Everything, loss
from support.one_run import program_cache
from support.processes import all_gone
from support.workers.libtorch_bundle import (
    Batch,
    eager_inference,
    eager_training,
    workload,
    write_bundle,
)
from support.workers.protocol_driver import RawWorker

pytestmark = pytest.mark.slow

RATE = 0.05
OPTIMIZER = Optimizer(learning_rate=RATE, momentum=0.9, weight_decay=0.01)


class Built(NamedTuple):
    """A network, its bundle and its compiled program."""

    module: Everything
    captured: Captured
    batches: list[Batch]
    bundle: Path
    artifact: Artifact


def prepare(mode: str, folder: Path, cache: Path) -> Built:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    module = Everything()
    batches = [(torch.randn(4, 3, 16, 16), torch.randint(5, (4,))) for _ in range(3)]
    if mode == "infer":
        captured = capture_inference("everything", module, (batches[0][0],))
    else:
        captured = capture_training("everything", module, (batches[0][0],), (batches[0][1],), loss)
    described = workload(mode, batches, OPTIMIZER)
    bundle = write_bundle(folder / mode, module, captured, described, batches)
    return Built(module, captured, batches, bundle, build(captured.graph, cache))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for both files that compile, in the folder of this run of the tests."""
    return program_cache(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def inference(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Built:
    return prepare("infer", tmp_path_factory.mktemp("bundle"), cache)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Built:
    return prepare("train", tmp_path_factory.mktemp("bundle"), cache)


def outputs_of(built: Built, bundle: Path, batches: list[int], rate: float) -> dict[str, Tensor]:
    file = bundle / "outputs.safetensors"
    with Worker("libtorch", [str(built.artifact.program)], threads=1) as worker:
        worker.load(bundle)
        worker.time(iterations=2, warmup=1)  # must leave no trace in the outputs
        worker.outputs(batches, rate, file)
    return load_file(file)


def assert_identical(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert sorted(found) == sorted(expected)
    assert [k for k in expected if not torch.equal(found[k], expected[k])] == []


# ---------------------------------------------------------------- the same as eager


def test_inference_is_eager_bit_by_bit(inference: Built) -> None:
    found = outputs_of(inference, inference.bundle, [2, 0], RATE)
    batches = [inference.batches[i] for i in (2, 0)]
    assert_identical(found, eager_inference(inference.module, batches))


def test_training_is_eager_bit_by_bit(training: Built) -> None:
    found = outputs_of(training, training.bundle, [1, 0], RATE)
    batches = [training.batches[i] for i in (1, 0)]
    expected = eager_training(training.module, batches, loss, OPTIMIZER)
    assert_identical(found, expected)
    kinds = {name.split("/")[1] for name in found}
    assert kinds == {"loss", "output", "gradient", "buffer", "parameter", "momentum"}
    assert "0/gradient/unused" not in found


@pytest.mark.parametrize("optimizer", optimizers.ALL, ids=str)
def test_the_rates_are_read_when_the_program_runs(
    training: Built, tmp_path: Path, optimizer: Optimizer
) -> None:
    described = workload("train", training.batches, optimizer)
    bundle = write_bundle(tmp_path, training.module, training.captured, described, training.batches)
    found = outputs_of(training, bundle, [0, 1], optimizer.learning_rate)
    assert_identical(found, eager_training(training.module, training.batches[:2], loss, optimizer))


def test_a_planted_error_is_seen(training: Built, tmp_path: Path) -> None:
    broken = {k: v.clone() for k, v in training.module.state_dict().items()}
    broken["head.bias"][0] += 1e-6
    module = Everything()
    module.load_state_dict(broken)
    bundle = write_bundle(
        tmp_path,
        module,
        training.captured,
        workload("train", training.batches, OPTIMIZER),
        training.batches,
    )
    found = outputs_of(training, bundle, [0], RATE)
    expected = eager_training(training.module, training.batches[:1], loss, OPTIMIZER)
    with pytest.raises(AssertionError):
        assert_identical(found, expected)


def test_dropout_is_on_while_it_is_timed_and_off_in_the_check(training: Built) -> None:
    with RawWorker([training.artifact.program]) as worker:
        worker.request(do="load", bundle=str(training.bundle))
        losses = []
        for _ in range(2):
            file = training.bundle / "once.safetensors"
            request = {"batches": [0], "learning_rate": RATE, "file": str(file)}
            assert worker.request(do="outputs", **request) == {"ok": True}
            losses.append(worker.request(do="time", iterations=1, warmup=0)["last"])
        # The first step from the same weights on the same batch: only dropout can differ.
        assert losses[0] != losses[1]


def test_dropout_is_on_in_an_epoch(training: Built, tmp_path: Path) -> None:
    data, order = tmp_path / "data.safetensors", tmp_path / "order.safetensors"
    pictures = torch.zeros(4, 3, 16, 16, dtype=torch.uint8)
    save_file({"images": pictures, "labels": torch.zeros(4, dtype=torch.int64)}, data)
    save_file({"rows": torch.arange(4)}, order)
    plain = {"scale": [1.0, 1.0, 1.0], "shift": [0.5, 0.5, 0.5]}
    with Worker("libtorch", [str(training.artifact.program)], threads=1) as worker:
        losses = []
        for _ in range(2):
            worker.load(training.bundle)
            losses.append(worker.epoch(data, order, [RATE], **plain).losses)
        assert losses[0] != losses[1]


# ---------------------------------------------------------------- the process


def test_there_is_no_python_in_the_process(training: Built) -> None:
    with RawWorker([training.artifact.program]) as worker:
        worker.request(do="load", bundle=str(training.bundle))
        worker.request(do="time", iterations=1, warmup=0)
        maps = Path(f"/proc/{worker.process.pid}/maps").read_text()
    # By name alone: torch's libraries are in a folder that is called after Python.
    libraries = {Path(line.split()[-1]).name for line in maps.splitlines() if "/" in line}
    assert "libtorch_cpu.so" in libraries
    assert not [name for name in libraries if "python" in name.lower()]


def test_memory_counts_what_one_iteration_holds(inference: Built, training: Built) -> None:
    def peak(built: Built) -> int:
        with Worker("libtorch", [str(built.artifact.program)], threads=1) as worker:
            worker.load(built.bundle)
            first, second = worker.allocated_peak(), worker.allocated_peak()
        assert first == second
        assert first is not None
        return first

    largest = 4 * 8 * 16 * 16 * 4
    every_value = sum(
        4 * torch.Size(v.shape).numel()
        for n in inference.captured.graph.nodes
        for v in n.outputs
        if v
    )
    # Values are freed on the way, so the peak is far from the sum of all of them.
    assert 2 * largest <= peak(inference) <= every_value / 2
    assert peak(training) > peak(inference)


def test_running_out_of_memory_is_an_answer(inference: Built) -> None:
    with RawWorker([inference.artifact.program]) as worker:
        worker.request(do="load", bundle=str(inference.bundle))
        used = int(Path(f"/proc/{worker.process.pid}/statm").read_text().split()[0])
        limit = used * resource.getpagesize() + (1 << 16)
        resource.prlimit(worker.process.pid, resource.RLIMIT_AS, (limit, limit))
        answer = worker.request(do="load", bundle=str(inference.bundle))
        for _ in range(200):
            if not answer["ok"]:
                break
            limit -= 1 << 20
            resource.prlimit(worker.process.pid, resource.RLIMIT_AS, (limit, limit))
            answer = worker.request(do="time", iterations=1, warmup=0)
        assert answer["error"] == "out_of_memory"


def test_it_ends_with_its_parent(inference: Built) -> None:
    script = (
        "import subprocess, sys, time;"
        f"p = subprocess.Popen([{str(inference.artifact.program)!r}]);"
        "print(p.pid, file=sys.stderr, flush=True); time.sleep(60)"
    )
    # The worker's input stays open here: it must end because its parent is gone.
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    assert parent.stderr is not None
    with parent.stdin, parent.stdout, parent.stderr:
        pid = int(parent.stderr.readline())
        parent.stdin.write(b"{}\n")
        parent.stdin.flush()
        assert parent.stdout.readline(), "it listens"
        parent.kill()
        parent.wait()
        assert all_gone(pid)


# ---------------------------------------------------------------- the cache


def test_the_second_build_is_found_in_the_cache(inference: Built, cache: Path) -> None:
    again = build(inference.captured.graph, cache)
    assert again.cached
    assert again == inference.artifact._replace(cached=True)
    assert again.build_seconds > 1
    assert again.bytes == again.program.stat().st_size


def test_another_batch_size_needs_no_compiler(
    inference: Built, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wider = capture_inference("everything", inference.module, (torch.randn(7, 3, 24, 24),))
    assert build(wider.graph, cache).cached


# ---------------------------------------------------------------- the project


@pytest.fixture
def project(training: Built, tmp_path: Path) -> Path:
    expected = eager_training(training.module, training.batches[:1], loss, OPTIMIZER)
    folder = tmp_path / "emitted"
    written = write_project(
        training.captured.graph,
        training.module.state_dict(),
        training.captured.constants,
        load_file(training.bundle / "batches.safetensors"),
        expected,
        workload("train", training.batches, OPTIMIZER),
        folder,
    )
    assert sorted(written) == sorted(folder.iterdir())
    return folder


def test_a_project_replaces_only_a_project(project: Path, inference: Built, tmp_path: Path) -> None:
    def write(folder: Path) -> list[Path]:
        return write_project(
            inference.captured.graph,
            inference.module.state_dict(),
            inference.captured.constants,
            load_file(inference.bundle / "batches.safetensors"),
            {},
            workload("infer", inference.batches),
            folder,
        )

    write(project)
    assert "Program(false)" in (project / "program.cpp").read_text()
    other = tmp_path / "other"
    other.mkdir()
    (other / "README.md").write_text("# My own notes")
    with pytest.raises(GolowError, match="is not empty"):
        write(other)
    with pytest.raises(GolowError, match="is a file"):
        write(other / "README.md")
    assert [p.name for p in other.iterdir()] == ["README.md"]


@pytest.mark.whole_network
@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_the_project_builds_and_runs_outside_golow(project: Path) -> None:
    """One for inference does, too, in test_emitted_project.py."""
    assert CONFIGURE in (project / "README.md").read_text()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    for command in (
        ["cmake", "-S", ".", "-B", "build", prefix],
        ["cmake", "--build", "build", "--parallel", "2"],
    ):
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    done = subprocess.run(
        ["./build/run", ".", "3"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "difference to the stored loss: 0\n" in done.stdout
    assert done.stdout.count(": loss ") == 3
