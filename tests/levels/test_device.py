"""What golow says and does about devices, as far as it shows without one; `test_gpu.py` has the
rest."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import golow
from golow.levels import gpu, ladder
from golow.levels.level_selection import choices
from golow.levels.torch.device import host_copies
from golow.records.errors import GolowError, WorkerFailure
from golow.records.workload import Precision
from golow.worker.client import Worker
from golow.workload.bundle import Bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from golow.workload.trial import require_device
from support.workers.bundles import network_bundle, product_bundle
from support.workers.out_of_memory import require_out_of_memory_recorded

pytestmark = pytest.mark.usefixtures("forked")

EAGER = [sys.executable, "-m", "golow.worker.serve", "golow.levels.torch.eager"]

without_cuda = pytest.mark.skipif(torch.version.cuda is not None, reason="torch has CUDA here")


# ---------------------------------------------------------------- asked for what is not there

MISTAKES = [
    pytest.param({"device": "cuda"}, "built without CUDA", "golow doctor", marks=without_cuda),
    ({"device": "tpu"}, "no device 'tpu'", "cpu and cuda"),
    ({"precision": "fp9"}, "no precision 'fp9'", "bf16"),
    ({"precision": "bf16"}, "bf16 is for a GPU", "--device cuda"),
    ({"precision": "tf32"}, "tf32 is for a GPU", "--device cuda"),
    ({"cold": True}, "cache of a GPU", "--device cuda"),
    ({"levels": ["cudagraph"]}, "cudagraph runs on cuda only", "--device cuda"),
    ({"levels": ["compile:cudagraphs"]}, "runs on cuda only", "--device cuda"),
]


@pytest.mark.parametrize(("settings", "said", "hint"), MISTAKES)
def test_a_mistake_is_explained(settings: dict[str, object], said: str, hint: str) -> None:
    with pytest.raises(GolowError, match=said) as raised:
        golow.compare("lenet5", **settings)  # type: ignore[arg-type]
    assert hint in raised.value.hint


def test_a_torch_with_cuda_and_no_gpu_is_told_from_one_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(GolowError, match="finds no GPU") as raised:
        require_device("cuda", "default")
    assert "golow doctor" in raised.value.hint


@pytest.mark.parametrize("precision", ["default", "ieee"])
def test_a_cpu_takes_both_names_of_its_precision(precision: Precision) -> None:
    prepared = prepare(Request("lenet5", precision=precision))
    assert (prepared.workload.device, prepared.workload.precision) == ("cpu", precision)


# ---------------------------------------------------------------- levels


def test_levels_know_where_they_run() -> None:
    devices = {level.name: level.devices for level in ladder.LADDER}
    assert devices["cudagraph"] == ("cuda",)
    for name in ("openvino", "executorch", "tvm", "iree", "onednn"):
        assert devices[name] == ("cpu",)
    for name in ("eager", "torchscript", "compile", "onnxruntime"):
        assert devices[name] == ("cpu", "cuda")
    with pytest.raises(GolowError, match="onednn runs on cpu only, not on cuda"):
        ladder.choose("onednn", "infer", "cuda")


def test_the_default_levels_run_where_they_are_the_default() -> None:
    for device in ("cpu", "cuda"):
        for mode in ("infer", "train"):
            names = ladder.default(mode, device)  # type: ignore[arg-type]
            assert names[0] == ladder.BASELINE
            found = [choice.name for choice in choices(names, {}, mode, device)]  # type: ignore[arg-type]
            assert found == names
    assert "compile:freezing" not in ladder.default("infer", "cuda")
    assert "cudagraph" in ladder.default("train", "cuda")
    assert "cudagraph" not in ladder.default("train", "cpu")


def test_the_vendors_library_is_another_on_each_device() -> None:
    for alias in ("direct", "vendor"):
        assert ladder.choose(alias, "infer").name == "onednn"
        assert ladder.ALIASES[alias]["cuda"] == "cudnn"


# ---------------------------------------------------------------- the probe of the GPU

VERSION = "from typing import Optional\n__version__ = '2.11.0'\ncuda: Optional[str] = {}\n"


def test_the_version_file_says_what_torch_was_built_for(tmp_path: Path) -> None:
    file = tmp_path / "version.py"
    file.write_text(VERSION.format("'13.0'"))
    assert gpu.cuda_of(file) == "13.0"
    file.write_text(VERSION.format("None"))
    assert gpu.cuda_of(file) is None
    assert gpu.cuda_of(Path(torch.__file__).with_name("version.py")) == torch.version.cuda


def test_the_probe_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu, "has_gpu", lambda: False)
    assert gpu.probe().missing == "there is no NVIDIA GPU"
    monkeypatch.setattr(gpu, "has_gpu", lambda: True)
    monkeypatch.setattr(gpu, "cuda_of", lambda file: None)
    assert gpu.probe().missing == "torch is built without CUDA"
    monkeypatch.setattr(gpu, "cuda_of", lambda file: "13.0")
    assert gpu.probe().available
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES" in gpu.probe().missing


def test_the_probe_imports_no_torch() -> None:
    code = (
        "import sys\nfrom golow.levels import gpu\ngpu.probe()\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------- requests


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "make"),
    [
        (EAGER, lambda folder: network_bundle(folder, "infer")),
        ([sys.executable, "-m", "golow.worker.plant", "--products", "1"], product_bundle),
    ],
    ids=["on a CPU", "without the request"],
)
def test_what_copies_nothing_says_so_and_lives_on(
    command: list[str], make: Callable[[Path], Bundle], tmp_path: Path
) -> None:
    with Worker("worker", command, threads=1) as worker:
        worker.load(make(tmp_path / "bundle").folder)
        assert worker.copies(2) is None
        sample = worker.time(2, 0)
    assert len(sample.host_ns) == 2
    assert sample.device_ns == ()


@pytest.mark.slow
def test_a_cpu_has_no_cold_cache(tmp_path: Path) -> None:
    bundle = network_bundle(tmp_path / "bundle", "infer")
    with Worker("eager", EAGER, threads=1) as worker:
        worker.load(bundle.folder)
        with pytest.raises(WorkerFailure, match="not run on a device whose cache"):
            worker.time(2, 0, cold=True)


def test_copies_are_read_from_a_trace() -> None:
    def copy(name: str, size: int, duration: float) -> dict[str, object]:
        return {"cat": "gpu_memcpy", "name": name, "dur": duration, "args": {"bytes": size}}

    pageable = "Memcpy HtoD (Pageable -> Device)"
    others: list[dict[str, object]] = [
        {"cat": "cpu_op", "name": "aten::copy_", "dur": 9.0},
        {"name": "process_name", "ph": "M"},
        copy("Memcpy DtoD (Device -> Device)", 999, 9.0),
    ]
    found = host_copies([*others, copy(pageable, 600, 1.5), copy(pageable, 400, 0.5)], 2)
    assert (found.bytes, found.nanoseconds, found.kind) == (500, 1000, "pageable")
    both = [copy(pageable, 1, 1.0), copy("Memcpy HtoD (Pinned -> Device)", 1, 1.0)]
    assert host_copies(both, 1).kind == "pageable and pinned"
    assert host_copies(others, 1).kind == "none"


@pytest.mark.slow
def test_out_of_memory_is_a_recorded_result(tmp_path: Path) -> None:
    require_out_of_memory_recorded(tmp_path, "cpu")


# ---------------------------------------------------------------- the workload's tries


def test_the_callers_module_and_tensors_stay_as_they_are() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    prepared = prepare(Request(module, torch.randn(3, 4), mode="train", loss="mse_loss"))
    for state in (module.state_dict(), prepared.module.state_dict()):
        assert all(torch.equal(state[name], tensor) for name, tensor in before.items())
