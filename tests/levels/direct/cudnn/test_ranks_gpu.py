"""`cudnn` on two GPUs, which exchange gradients by NCCL within one CUDA graph: results, and what is
known to hang. Each hang has a time limit of its own here: a test fails instead of waiting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

import golow
from golow.levels.direct.cudnn import level as cudnn
from golow.records.workload import Optimizer, Precision
from golow.worker.process import worker_environment
from golow.workload.bundle import Bundle
from support.direct.onednn_subjects import written
from support.direct.rank_networks import (
    CLIPPED,
    NETWORKS,
    SGD,
    STEPS,
    assert_ranks_right,
    prepared,
)
from support.places import WORKERS
from support.workers.conversation import Conversation, Subject
from support.workers.rank_workers import rank_workers

if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
    pytest.skip("there are no two GPUs", allow_module_level=True)

pytestmark = pytest.mark.gpu
RANKS, LIMIT = 2, 300  # seconds


def bundle_of(
    network: str, folder: Path, precision: Precision = "ieee", optimizer: Optimizer = SGD
) -> Bundle:
    workload = prepared(network, optimizer)
    on_gpu = msgspec.structs.replace(workload.workload, device="cuda", precision=precision)
    return written(workload._replace(workload=on_gpu), folder)


def subject_of(bundle: Bundle, cache: Path) -> Subject:
    launch = cudnn.prepare(bundle, "", cache)
    environment = worker_environment(launch.command[0], 1, launch.environment)
    return Subject(launch.command, environment, bundle)


def outputs(worker: Conversation) -> dict[str, np.ndarray]:
    rate = worker.subject.bundle.workload.optimizer.learning_rate
    found = worker.outputs(*range(STEPS), learning_rate=rate)
    return {name: array.astype(np.float32) for name, array in found.items()}


@pytest.mark.parametrize("optimizer", [SGD, CLIPPED], ids=lambda found: found.name)
@pytest.mark.parametrize("network", NETWORKS)
def test_gradients_are_the_means_of_all_ranks(
    network: str, optimizer: Optimizer, tmp_path: Path
) -> None:
    """Loaded twice, as a comparison does; parameters stay equal over launches of the graph."""
    bundle = bundle_of(network, tmp_path / "bundle", "ieee", optimizer)
    with rank_workers(subject_of(bundle, tmp_path / "cache")) as ranks:
        ranks.together(Conversation.load)
        ranks.together(Conversation.load)
        assert_ranks_right(prepared(network, optimizer), ranks.together(outputs))
        for _ in range(3):
            ranks.ask(do="time", iterations=20, warmup=2)
        first, other = ranks.ask(do="digest")
        assert first["digest"] == other["digest"]


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
@pytest.mark.parametrize("network", ["Network", "resnet18"])
def test_the_level_matches_in_every_precision(
    network: str, precision: Precision, tmp_path: Path
) -> None:
    """Against float64 by golow's own rule, checked and raced against DistributedDataParallel."""
    from support.workers.bundles import NETWORKS as FILE

    result = golow.compare(
        network if network.islower() else f"{FILE}:{network}",
        mode="train", device="cuda", precision=precision, ranks=RANKS, batch=8,
        input_shape=(3, 32, 32), optimizer=SGD, levels=["ddp", "direct"], time_limit=5,
        cache=tmp_path, quiet=True,
    )  # fmt: skip
    run = result.run("cudnn")
    assert run.check.verdict == "match", f"{run.check.words}\n{run.log}"


@pytest.mark.parametrize("last", ["graph", "mixed", "pointed"])
def test_ranks_end(last: str, tmp_path: Path) -> None:
    """The graphs first, then the communicator; after launches without a pause, and after steps
    that wait for the host among them."""
    bundle, place = bundle_of("lenet", tmp_path / "bundle", "bf16"), tmp_path / "meeting"
    place.mkdir(mode=0o700)
    program = str(WORKERS / "ranks_at_their_end.py")
    started = [
        subprocess.Popen(
            (sys.executable, program, str(place), str(rank), str(RANKS), str(bundle.folder),
             str(tmp_path / "cache"), last),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    try:
        for process in started:
            said, log = process.communicate(timeout=LIMIT)
            assert process.returncode == 0, log[-3000:]
            assert said.strip().endswith("ended")
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_step_of_torchrun_trains_on_both_gpus(tmp_path: Path) -> None:
    """`golow.compile_step` in two processes, NCCL's group beside golow's own."""
    done = subprocess.run(
        (sys.executable, "-m", "torch.distributed.run", "--standalone",
         f"--nproc-per-node={RANKS}", str(WORKERS / "torchrun_gpu_step.py"), str(tmp_path)),
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    first, other = (torch.load(tmp_path / f"{rank}.pt") for rank in range(RANKS))
    for name, tensor in first["parameters"].items():
        assert torch.equal(tensor, other["parameters"][name]), name
    wanted: dict[str, torch.Tensor] = first["wanted"]
    for name, tensor in wanted.items():
        assert torch.allclose(first["parameters"][name], tensor, 1e-3, 1e-4), name
