"""The level libtorch for another device and in half precision, as far as a CPU can tell."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from golow.levels.libtorch.build import SOURCES, Artifact, _key, build
from golow.levels.libtorch.emit import emit_program
from golow.levels.libtorch.project import write_project
from golow.levels.libtorch.toolchain import Toolchain, cuda_version, find_toolchain, probe
from golow.lower.aten.translation import Captured
from golow.lower.capture.capture import capture_inference
from golow.records.errors import GolowError
from golow.records.record import encode
from golow.records.workload import Precision, Workload
from support.one_run import program_cache
from support.workers.libtorch_bundle import Batch, workload, write_bundle
from support.workers.protocol_driver import RawWorker

pytestmark = pytest.mark.slow

TORCH = Path(torch.__file__).parent
WITHOUT_CUDA = pytest.mark.skipif(
    torch.version.cuda is not None, reason="this PyTorch was built with CUDA"
)


class Small(nn.Module):
    """Makes a tensor from nothing, has a buffer outside the state dict, and counts in integers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)
        self.offset: Tensor
        self.order: Tensor
        self.register_buffer("offset", torch.linspace(-1, 1, 8), persistent=False)
        self.register_buffer("order", torch.arange(7, -1, -1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.relu(self.norm(self.stem(x))).mean((2, 3))
        x = x[:, self.order] + self.offset + torch.arange(8, device=x.device)
        return self.head(x), self.order + torch.ones_like(self.order)


BATCHES: list[Batch] = [
    (torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(i)), torch.zeros(2))
    for i in range(2)
]


@pytest.fixture(scope="module")
def module() -> Small:
    torch.manual_seed(0)
    module = Small().eval()
    module.norm.running_mean = torch.randn(8)
    return module


@pytest.fixture(scope="module")
def captured(module: Small) -> Captured:
    return capture_inference("small", module, (BATCHES[0][0],))


@pytest.fixture(scope="module")
def artifact(captured: Captured, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return build(captured.graph, program_cache(tmp_path_factory.getbasetemp()))


def written(
    folder: Path, module: nn.Module, captured: Captured, **changes: str
) -> tuple[Path, Workload]:
    described = msgspec.structs.replace(workload("infer", BATCHES), **changes)
    return write_bundle(folder, module, captured, described, BATCHES), described


# ---------------------------------------------------------------- the program's text


def test_what_is_made_from_nothing_is_made_on_the_device(captured: Captured) -> None:
    on_cpu, on_gpu = emit_program(captured.graph), emit_program(captured.graph, "cuda")
    assert "at::kCPU" in on_cpu
    assert "at::kCUDA" not in on_cpu
    assert on_gpu == on_cpu.replace("at::kCPU", "at::kCUDA")
    assert emit_program(captured.graph, "cpu") == on_cpu


# ---------------------------------------------------------------- a PyTorch with CUDA


@pytest.fixture
def with_cuda(tmp_path: Path) -> Path:
    """A folder like that of a PyTorch with CUDA: this one, and a library of that name beside it."""
    folder = tmp_path / "torch"
    (folder / "lib").mkdir(parents=True)
    (folder / "share" / "cmake").mkdir(parents=True)
    (folder / "include").symlink_to(TORCH / "include")
    for library in (TORCH / "lib").glob("lib*"):
        (folder / "lib" / library.name).symlink_to(library)
    (folder / "lib" / "libtorch_cuda.so").unlink(missing_ok=True)
    # As the real one: it needs a library that is elsewhere, and has a symbol that is in it.
    (tmp_path / "runtime.c").write_text("int cudart_of_a_test(void) { return 0; }\n")
    (tmp_path / "cuda.c").write_text(
        "int cudart_of_a_test(void); int of_torch(void) { return cudart_of_a_test(); }\n"
    )
    runtime = tmp_path / "elsewhere" / "libcudart_of_a_test.so"
    runtime.parent.mkdir()
    shared = ["cc", "-shared", "-fPIC", "-o"]
    subprocess.run([*shared, runtime, tmp_path / "runtime.c"], check=True)
    needs = [f"-L{runtime.parent}", "-lcudart_of_a_test", f"-Wl,-rpath,{runtime.parent}"]
    target = folder / "lib" / "libtorch_cuda.so"
    subprocess.run([*shared, target, tmp_path / "cuda.c", *needs], check=True)
    (folder / "version.py").write_text(
        "from typing import Optional\n__version__ = '2.11.0+cu130'\ndebug = False\n"
        "cuda: Optional[str] = '13.0'\ngit_version = 'abc'\nhip: Optional[str] = None\n"
    )
    return folder


def needed(program: Path) -> str:
    """The libraries that the program asks the loader for."""
    if shutil.which("readelf") is None:
        pytest.skip("there is no readelf")
    return subprocess.run(
        ["readelf", "--dynamic", program], check=True, capture_output=True, text=True
    ).stdout


def test_the_version_of_cuda_is_read_from_torch(with_cuda: Path, tmp_path: Path) -> None:
    assert cuda_version(with_cuda) == "13.0"
    (with_cuda / "lib" / "libtorch_cuda.so").unlink()
    assert cuda_version(with_cuda) == ""
    assert cuda_version(tmp_path) == ""


@WITHOUT_CUDA
def test_this_torch_has_no_cuda_and_the_probe_says_so(captured: Captured, tmp_path: Path) -> None:
    assert cuda_version(TORCH) == ""
    assert probe().available
    found = probe("cuda")
    assert not found.available
    assert "without CUDA" in found.missing
    with pytest.raises(GolowError, match="built without CUDA") as caught:
        build(captured.graph, tmp_path, "cuda")
    assert "torch with CUDA" in caught.value.hint


def test_a_program_for_a_gpu_loads_the_library_of_the_gpu(
    artifact: Artifact, with_cuda: Path, captured: Captured, tmp_path: Path
) -> None:
    tools = find_toolchain()._replace(torch=with_cuda, cuda="13.0")
    source = tmp_path / "program.cpp"
    source.write_text(emit_program(captured.graph, "cuda"))
    objects = [
        tmp_path / "program.o",
        next(artifact.program.parent.parent.glob("worker-*/worker.o")),
    ]
    subprocess.run(tools.compile_command(source, objects[0], SOURCES), check=True)
    program = tmp_path / "program"
    subprocess.run(tools.link_command(objects, program), check=True)
    assert "libtorch_cuda.so" in needed(program)
    assert "libtorch_cuda.so" not in needed(artifact.program)
    with RawWorker([program]) as worker:
        assert worker.request(do="quit") == {"ok": True}


def test_the_cache_tells_devices_apart(with_cuda: Path) -> None:
    cpu = find_toolchain()
    keys = [_key(cpu._replace(cuda=cuda), "code") for cuda in ("", "12.8", "13.0")]
    assert len(set(keys)) == 3
    assert Toolchain(*cpu[:4]) == cpu


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_the_project_asks_for_no_toolkit_of_cuda(
    with_cuda: Path, module: Small, captured: Captured, tmp_path: Path
) -> None:
    bundle, described = written(tmp_path / "bundle", module, captured)
    batches = {k: v for k, v in load_file(bundle / "batches.safetensors").items() if k[0] == "0"}
    weights, constants = module.state_dict(), captured.constants
    folder = tmp_path / "project"
    write_project(captured.graph, weights, constants, batches, {}, described, folder)
    prefix = f"-DCMAKE_PREFIX_PATH={with_cuda / 'share' / 'cmake'}"
    for command in (["cmake", "-S", ".", "-B", "b", prefix], ["cmake", "--build", "b", "-j2"]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "libtorch_cuda.so" in needed(folder / "b" / "run")
    done = subprocess.run(["b/run", ".", "1"], cwd=folder, capture_output=True, text=True)
    assert "ms per iteration" in done.stdout, done.stderr


@WITHOUT_CUDA
def test_a_workload_for_a_gpu_is_refused_without_one(
    artifact: Artifact, module: Small, captured: Captured, tmp_path: Path
) -> None:
    bundle, _ = written(tmp_path / "gpu", module, captured, device="cuda")
    here, _ = written(tmp_path / "cpu", module, captured)
    with RawWorker([artifact.program]) as worker:
        answer = worker.request(do="load", bundle=str(bundle))
        assert answer["error"] == "failed"
        assert "CUDA" in answer["message"]
        assert worker.request(do="load", bundle=str(here))["ok"]


# ---------------------------------------------------------------- precision


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_half_precision_is_that_of_the_module_cast_to_it(
    artifact: Artifact,
    module: Small,
    captured: Captured,
    tmp_path: Path,
    precision: Precision,
    dtype: torch.dtype,
) -> None:
    bundle, _ = written(tmp_path / "bundle", module, captured, precision=precision)
    file = tmp_path / "o.safetensors"
    with RawWorker([artifact.program]) as worker:
        assert worker.request(do="load", bundle=str(bundle))["ok"]
        assert len(worker.request(do="time", iterations=3, warmup=1)["host_ns"]) == 3
        asked = {"batches": [1], "learning_rate": 0.1, "file": str(file)}
        assert worker.request(do="outputs", **asked) == {"ok": True}
    found = load_file(file)
    cast = copy.deepcopy(module).to(dtype)
    with torch.inference_mode():
        expected, counted = cast(BATCHES[1][0].to(dtype))
        exact, _ = module(BATCHES[1][0])
    assert found["0/output/0"].dtype == torch.float32
    assert torch.equal(found["0/output/0"], expected.float())
    assert not torch.equal(found["0/output/0"], exact)
    assert torch.equal(found["0/output/1"], counted)


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_the_precisions_of_float32_are_one_on_a_cpu(
    artifact: Artifact, module: Small, captured: Captured, tmp_path: Path, precision: Precision
) -> None:
    bundle, _ = written(tmp_path / "bundle", module, captured, precision=precision)
    file = tmp_path / "o.safetensors"
    with RawWorker([artifact.program]) as worker:
        assert worker.request(do="load", bundle=str(bundle))["ok"]
        worker.request(do="outputs", batches=[0], learning_rate=0.1, file=str(file))
    with torch.inference_mode():
        assert torch.equal(load_file(file)["0/output/0"], module(BATCHES[0][0])[0])


@pytest.mark.parametrize(("name", "value"), [("device", "abacus"), ("precision", "fp7")])
def test_what_nobody_knows_is_named(
    artifact: Artifact, module: Small, captured: Captured, tmp_path: Path, name: str, value: str
) -> None:
    bundle, _ = written(tmp_path / "bundle", module, captured)
    described = json.loads((bundle / "workload.json").read_text())
    (bundle / "workload.json").write_text(json.dumps(described | {name: value}))
    with RawWorker([artifact.program]) as worker:
        answer = worker.request(do="load", bundle=str(bundle))
    assert answer["message"] == f"there is no {name} {value}"


# ---------------------------------------------------------------- the clock and the optimizer


def test_cold_does_no_harm_on_a_cpu(
    artifact: Artifact, module: Small, captured: Captured, tmp_path: Path
) -> None:
    bundle, _ = written(tmp_path / "bundle", module, captured)
    with RawWorker([artifact.program]) as worker:
        worker.request(do="load", bundle=str(bundle))
        for cold in (True, False):
            answer = worker.request(do="time", iterations=2, warmup=0, cold=cold)
            assert len(answer["host_ns"]) == 2
            assert answer["device_ns"] is None
        answer = worker.request(do="time", iterations=2, warmup=0, cold=1)
    assert answer["error"] == "failed"


UPDATES = """
#include <cstdio>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include "optimizer.h"

struct Pair final : golow::Program {
  golow::Parameter first{*this, "first"}, second{*this, "second"};
  Pair() : Program(true) {}
  void step(const golow::Batch&, golow::Result&) override {}
};

int main() {
  const c10::InferenceMode no_autograd;
  using golow::Optimizer;
  for (const Optimizer& rates : {Optimizer{"sgd", 0.1, 0.9, 0.01}, Optimizer{"sgd", 0.5, 0.0, 0.0},
                                 Optimizer{"sgd", 0.1, 0.0, 0.01}, Optimizer{"sgd", 0.1, 0.5, 0.0},
                                 Optimizer{"sgd", 0.1, 0.9, 0.01, true}}) {
    Pair one, all;
    for (std::size_t i = 0; i < 2; ++i) {
      static_cast<at::Tensor&>(*one.parameters[i]) = at::randn({37, 5});
      static_cast<at::Tensor&>(*all.parameters[i]) = one.parameters[i]->clone();
    }
    for (int step = 0; step < 4; ++step) {
      for (std::size_t i = 0; i < 2; ++i) {
        one.parameters[i]->gradient = at::randn({37, 5});
        all.parameters[i]->gradient = one.parameters[i]->gradient.clone();
      }
      golow::update_parameters(one, rates);
      golow::update_together(all.parameters, rates);
      for (std::size_t i = 0; i < 2; ++i)
        if (!one.parameters[i]->equal(*all.parameters[i])) return 1;
    }
    if (one.first.momentum.defined() != (rates.momentum != 0)) return 2;
    if (one.first.momentum.defined() && !one.first.momentum.equal(all.first.momentum)) return 3;
  }
  return 0;
}
"""


@pytest.mark.whole_network
def test_updating_all_parameters_at_once_gives_the_same(tmp_path: Path) -> None:
    tools = find_toolchain()
    source, program = tmp_path / "updates.cpp", tmp_path / "updates"
    source.write_text(UPDATES)
    subprocess.run(
        tools.compile_command(source, tmp_path / "updates.o", SOURCES),
        check=True,
        stdout=sys.stderr,
    )
    subprocess.run(tools.link_command([tmp_path / "updates.o"], program), check=True)
    assert subprocess.run([program], check=False).returncode == 0


def test_the_workload_of_a_cpu_may_leave_device_and_precision_out(
    artifact: Artifact, module: Small, captured: Captured, tmp_path: Path
) -> None:
    bundle, described = written(tmp_path / "bundle", module, captured)
    older = json.loads(encode(described))
    del older["device"], older["precision"]
    (bundle / "workload.json").write_text(json.dumps(older))
    with RawWorker([artifact.program]) as worker:
        assert worker.request(do="load", bundle=str(bundle))["ok"]
