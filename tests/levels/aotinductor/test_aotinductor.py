"""The level `aotinductor` as golow runs it: packages that Inductor compiles, called from C++."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import golow
from golow.levels import ladder
from golow.levels.aotinductor import compilation
from golow.levels.aotinductor import level as aotinductor
from golow.levels.aotinductor.compilation import DESCRIPTION
from golow.levels.libtorch.build import build_from
from golow.levels.peers import exported_program
from golow.records.errors import Unsupported
from golow.records.record import encode
from golow.worker.process import worker_environment
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.one_run import one_at_a_time, program_cache
from support.workers.conformance import CHECKS, dies_with_its_parent, ends_with_its_input
from support.workers.conversation import Conversation, Subject
from support.workers.workers_kept import kept_loaded, require_threads

pytestmark = [
    pytest.mark.skipif(not aotinductor.probe().available, reason="there is no C++ compiler"),
    pytest.mark.usefixtures("forked"),
    pytest.mark.slow,
]
REQUEST = Request("lenet5", batch=4, threads=1)


@pytest.fixture(scope="session")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """A package of LeNet-5, compiled once in a run of the tests."""
    return subject_of(REQUEST, tmp_path_factory)


def subject_of(request: Request, factory: pytest.TempPathFactory) -> Subject:
    bundle = write_bundle(prepare(request), factory.mktemp("bundle") / "bundle")[0]
    with one_at_a_time(factory.getbasetemp(), "packages"):
        launch = aotinductor.prepare(bundle, "", program_cache(factory.getbasetemp()))
    environment = worker_environment(launch.command[0], request.threads, launch.environment)
    return Subject(launch.command, environment, bundle)


# ---------------------------------------------------------------- the protocol


@pytest.fixture(scope="module")
def loaded(subject: Subject) -> Iterator[Callable[[], Conversation]]:
    """One process for all checks, and another once it has ended."""
    with kept_loaded(subject) as conversation:
        yield conversation


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_conforms(
    loaded: Callable[[], Conversation], check: Callable[[Conversation], None]
) -> None:
    check(loaded())


def test_it_ends(subject: Subject) -> None:
    ends_with_its_input(subject)
    dies_with_its_parent(subject, at_work=True)


def test_requests_after_several_loads_are_answered(subject: Subject) -> None:
    """The same each time: a package is opened and closed with its session."""
    with Conversation(subject) as worker:
        found = []
        for _ in range(3):
            worker.load()
            worker.time(5, 1)
            found.append(worker.outputs(1, 0))
    assert sorted(found[0]) == ["0/output/0", "1/output/0"]
    for name, tensor in found[0].items():
        assert all((other[name] == tensor).all() for other in found)


def test_there_is_no_python_in_the_worker(subject: Subject) -> None:
    """The package's own library is, and one library of OpenMP: a second would start threads."""
    with Conversation(subject) as worker:
        worker.load()
        worker.time(2, 0)
        maps = Path(f"/proc/{worker.process.pid}/maps").read_text()
    assert subject.environment[exported_program.VARIABLE] in maps
    assert "libtorch_cpu" in maps
    files = {Path(line.split()[-1]).name for line in maps.splitlines() if "/" in line}
    assert [file for file in files if "python" in file] == []
    assert len([file for file in files if "omp" in file]) == 1


def test_its_layers_cannot_be_told_apart(loaded: Callable[[], Conversation]) -> None:
    answer = loaded().ask(do="layers", iterations=2)
    assert answer["error"] == "unsupported"
    assert answer["message"] == "Inductor has fused its layers into generated kernels"


def test_it_takes_no_other_weights(loaded: Callable[[], Conversation], tmp_path: Path) -> None:
    """They are in the package; running on those would be another network than was asked for."""
    answer = loaded().ask(do="restore", file=str(tmp_path / "any.safetensors"))
    assert answer["error"] == "unsupported"
    assert "contains its weights" in answer["message"]


def test_it_refuses_a_bundle_that_was_not_compiled(subject: Subject, tmp_path: Path) -> None:
    other = write_bundle(prepare(Request("lenet5", batch=2)), tmp_path / "other")[0]
    with Conversation(subject) as worker:
        answer = worker.ask(do="load", bundle=str(other.folder))
        assert (answer["ok"], answer["error"]) == (False, "failed")
        assert "compiled for another workload" in answer["message"]
        worker.load()


# ---------------------------------------------------------------- the numbers


def test_a_model_of_the_zoo_matches(
    subject: Subject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With the package that the other tests have compiled: the workload is the same."""
    result = golow.compare(
        REQUEST.model,
        levels=["aotinductor"],
        batch=REQUEST.batch,
        threads=1,
        time_limit=0.1,
        cache=program_cache(tmp_path_factory.getbasetemp()),
    )
    run = result.run("aotinductor")
    assert (run.check.verdict, run.check.reason) == ("match", "")
    assert run.time is not None
    assert (run.quantity("build") or 0) > 0
    assert (run.quantity("allocated_peak") or 0) > 0
    assert (run.quantity("artifact") or 0) > 4 * run.workload.parameters


def test_the_check_finds_the_weights_of_another_network(
    subject: Subject,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Planted: a package that says it is of this workload, and is of another seed."""
    package = Path(subject.environment[exported_program.VARIABLE])

    def swapped(bundle: Bundle, *_arguments: object) -> exported_program.Exported:
        folder = shutil.copytree(package, tmp_path / "swapped", dirs_exist_ok=True)
        describe(folder, digest=bundle.workload.digest)
        return exported_program.Exported(folder, 1.0, True, 1, ())

    monkeypatch.setattr(exported_program, "exported", swapped)
    result = golow.compare(
        REQUEST.model,
        levels=["aotinductor"],
        batch=REQUEST.batch,
        seed=1,
        threads=1,
        time_limit=0.1,
        cache=program_cache(tmp_path_factory.getbasetemp()),
    )
    assert result.run("aotinductor").check.verdict == "differs"


class Everything(nn.Module):
    """Two outputs, an unused input, integers, weights that Inductor writes into its code, and
    buffers that each pass changes: one counts, the other serves the pass itself. golow refuses
    a network whose next result depends on them."""

    calls: Tensor
    sums: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 6))
        self.register_buffer("calls", torch.zeros(9))
        self.register_buffer("sums", torch.zeros(9))

    def forward(self, unused: Tensor, x: Tensor, tokens: Tensor) -> dict[str, object]:
        """[batch, 3], [batch, 6] and [batch] -> a dictionary with a tuple inside"""
        self.calls += 1
        self.sums.copy_(x.sum().expand(9))
        y = (x + self.embedding(tokens)) * self.scale
        return {"z": y + self.sums[0], "a": (y.relu().sum(), tokens)}


@pytest.mark.whole_network
def test_what_a_pass_changes_is_right_in_every_pass(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(4, 3), torch.randn(4, 6), torch.randint(0, 10, (4,)))
    module = Everything().eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    subject = subject_of(Request(module, inputs, threads=1), tmp_path_factory)
    stored = load_file(subject.bundle.file("batches.safetensors"))
    module.load_state_dict(before)
    expected = []
    with torch.no_grad():
        for index in (1, 0):
            answer = module(*(stored[f"{index}/input/{i}"] for i in range(3)))
            expected += [answer["z"].clone(), *answer["a"]]
    with Conversation(subject) as worker:
        worker.load()
        for _ in range(2):
            worker.time(3, 0)
            found = worker.outputs(1, 0)
            assert len(found) == len(expected)
            for place, tensor in enumerate(expected):
                got = torch.from_numpy(found[f"{place // 3}/output/{place % 3}"])
                assert torch.allclose(got, tensor.double(), atol=1e-6)


@pytest.mark.whole_network
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_it_runs_with_the_threads_that_golow_states(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    subject = subject_of(Request("lenet5", batch=512, threads=2), tmp_path_factory)
    require_threads(subject, 2, iterations=300)


@pytest.mark.whole_network
@pytest.mark.parametrize(
    ("model", "resolution"), [("resnet18", 32), ("llama_tiny", None), ("lstm", None)]
)
def test_other_models_match(
    model: str, resolution: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    result = golow.compare(
        model,
        levels=["aotinductor"],
        batch=2,
        resolution=resolution,
        threads=1,
        time_limit=0.1,
        cache=program_cache(tmp_path_factory.getbasetemp()),
    )
    check = result.run("aotinductor").check
    assert (check.verdict, check.reason) == ("match", "")


# ---------------------------------------------------------------- replayed


REPEATED = """
#include <functional>
#include "replayed.h"
namespace golow {
struct Repeated {
  template <typename Work>
  void record(at::Device, const Work& work) { (again = work)(); }
  void replay() { again(); }
  std::function<void()> again;
};
std::unique_ptr<Program> make_program() { return std::make_unique<Replayed<Repeated>>(); }
}
"""


@pytest.mark.whole_network
def test_a_replayed_package_conforms(
    subject: Subject, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without a GPU: what is replayed runs again on the tensors that were recorded."""
    (tmp_path / "repeated.cpp").write_text(REPEATED)
    cache = program_cache(tmp_path_factory.getbasetemp())
    program = build_from(tmp_path / "repeated.cpp", cache, system=(aotinductor.SOURCES,)).program
    replayed = subject._replace(command=(str(program),))
    with Conversation(replayed) as worker, Conversation(subject) as plain:
        for conversation in (worker, plain):
            conversation.load()
        assert set(worker.loaded["phases"]) == {"load", "capture"}
        assert (worker.ask(do="memory")["allocated_peak"] or 0) > 0
        expected = plain.outputs(0, 1, 0)
        for name, tensor in worker.outputs(0, 1, 0).items():
            assert (tensor == expected[name]).all()
        for check in CHECKS:
            check(worker)


# ---------------------------------------------------------------- faults


def describe(folder: Path, **changed: object) -> None:
    """Change what the package says of itself."""
    file = folder / DESCRIPTION
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))


def cut(folder: Path) -> None:
    """A copy that ended early."""
    [library] = folder.glob("*.so")
    os.truncate(library, library.stat().st_size // 2)


FAULTS = [
    pytest.param(cut, r"\.so has \d+ of \d+ bytes", id="truncated"),
    pytest.param(lambda f: [x.unlink() for x in f.glob("*.so")], "has 0 of", id="no library"),
    pytest.param(
        lambda f: describe(f, torch="2.9.1"),
        rf"was compiled with torch 2\.9\.1, and this is torch {torch.__version__.split('+')[0]}",
        id="another torch",
    ),
    pytest.param(
        lambda f: (
            [x.write_bytes(b"no library" * 99) for x in f.glob("*.so")] and describe(f, bytes=990)
        ),
        "invalid ELF header",
        id="no ELF",
    ),
    pytest.param(lambda f: describe(f, updated=["a.b"]), "has no buffer a.b", id="no buffer"),
    pytest.param(lambda f: (f / DESCRIPTION).write_text("{"), "package.json: ", id="no JSON"),
    pytest.param(shutil.rmtree, "there is no package", id="no package"),
]


@pytest.mark.parametrize(("damage", "message"), FAULTS)
def test_a_package_that_cannot_be_used_is_one_line(
    damage: Callable[[Path], object], message: str, subject: Subject, tmp_path: Path
) -> None:
    package = Path(subject.environment[exported_program.VARIABLE])
    folder = shutil.copytree(package, tmp_path / "package")
    damage(folder)
    environment = {**subject.environment, exported_program.VARIABLE: str(folder)}
    with Conversation(subject._replace(environment=environment)) as worker:
        for _ in range(2):
            answer = worker.ask(do="load", bundle=str(subject.bundle.folder))
            assert (answer["ok"], answer["error"]) == (False, "failed")
            assert str(folder) in answer["message"]
            assert "\n" not in answer["message"]
            assert re.search(message, answer["message"]), answer["message"]


def test_a_worker_without_a_package_says_so(subject: Subject) -> None:
    environment = {**subject.environment, exported_program.VARIABLE: ""}
    with Conversation(subject._replace(environment=environment)) as worker:
        answer = worker.ask(do="load", bundle=str(subject.bundle.folder))
        assert answer["message"] == "GOLOW_EXPORTED names no package"


def test_without_a_compiler_it_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(
        golow.GolowError, match=r"aotinductor cannot run here: no C\+\+ compiler"
    ) as e:
        golow.compare("mlp", batch=2, levels=["aotinductor"], cache=tmp_path / "cache")
    assert e.value.hint == "apt-get install g++ (or set CXX to a compiler)"


def test_training_is_refused() -> None:
    with pytest.raises(golow.GolowError, match="aotinductor is for infer only, not for train"):
        golow.compare("lenet5", mode="train", levels=["eager", "aotinductor"])


def test_it_runs_only_when_it_is_named() -> None:
    for device in ("cpu", "cuda"):
        assert not [name for name in ladder.default("infer", device) if "aotinductor" in name]


def test_what_cannot_be_captured_is_unavailable(tmp_path: Path) -> None:
    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            """Any shape -> the same"""
            return x + 1 if x.sum() > 0 else x

    bundle = write_bundle(prepare(Request(Branching(), torch.randn(4, 4))), tmp_path / "bundle")[0]
    with pytest.raises(Unsupported, match=r"torch\.export cannot capture it: ") as raised:
        aotinductor.prepare(bundle, "", tmp_path / "cache")
    assert "\n" not in raised.value.reason


@pytest.mark.whole_network
def test_the_update_of_an_assigned_buffer_is_in_the_package(tmp_path: Path) -> None:
    """`torch.export` loses that of a layer without a word, and a package would keep the old value;
    golow lets the module write it where the buffer is. What is lost all the same is named."""

    class Assigning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("passes", torch.ones(2))

        def forward(self, x: Tensor) -> Tensor:
            """[batch, 2] -> the same"""
            self.passes = self.passes * 2
            return x + 1

    module = nn.Sequential(Assigning())
    x = torch.randn(4, 2)
    bundle = write_bundle(prepare(Request(module, x)), tmp_path / "bundle")[0]
    launch = aotinductor.prepare(bundle, "", tmp_path / "cache")
    folder = Path(launch.environment[exported_program.VARIABLE])
    assert json.loads((folder / DESCRIPTION).read_bytes())["updated"] == ["module.0.passes"]
    program = torch.export.export(module, (x,))
    with pytest.raises(Unsupported, match=r"the buffer 0\.passes; write passes\.copy_"):
        compilation._require_updates(program, ["0.passes"])


def test_a_gpu_without_cudas_headers_is_refused(
    monkeypatch: pytest.MonkeyPatch, subject: Subject, tmp_path: Path
) -> None:
    """Before anything is compiled, with what to install."""
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    described = msgspec.structs.replace(subject.bundle.workload, device="cuda")
    folder = shutil.copytree(subject.bundle.folder, tmp_path / "bundle")
    (folder / "workload.json").write_bytes(encode(described))
    with pytest.raises(Unsupported, match="CUDA's headers") as raised:
        aotinductor.prepare(Bundle(folder), "", tmp_path / "cache")
    assert "CUDA_HOME" in raised.value.reason


def test_cudas_headers_are_found_where_pytorch_looks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    toolkit = tmp_path / "toolkit"
    for file in ("bin/nvcc", "include/cuda_runtime_api.h"):
        (toolkit / file).parent.mkdir(parents=True)
        (toolkit / file).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(toolkit / "bin"))
    assert aotinductor.cuda_headers() == toolkit / "include"
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "other"))
    assert aotinductor.cuda_headers() is None
