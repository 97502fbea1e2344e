"""Projects of `golow emit --level cudnn` give the bits that `golow.compile` gives on the GPU."""

from __future__ import annotations

import shutil
import subprocess
import threading
from ctypes import byref, c_void_p
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import golow
from golow.levels.called.emitted_library import EmittedNetwork
from golow.levels.called.project_building import missing
from golow.lower.capture.module_outputs import leaves_of
from support.direct.emitted_on_gpu import (
    NAMES,
    assert_same,
    case,
    compiled,
    enqueued,
    inputs,
    library,
    network,
    project,
    ran,
)

pytestmark = pytest.mark.gpu
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)
if (lacking := missing("cudnn")) is not None:
    pytest.skip(f"{lacking[0]}: {lacking[1]}", allow_module_level=True)


def require(name: str) -> None:
    if name == "llama":
        pytest.importorskip("transformers")


def called(name: str, given: tuple[Tensor, ...]) -> list[Tensor]:
    return leaves_of(compiled(name)(*given))


@pytest.mark.parametrize("name", [*NAMES, "llama"])
def test_through_its_header_a_project_gives_the_same_bits(name: str) -> None:
    """At every size, and at those between, which are padded; twice, as memory is used again."""
    require(name)
    batch, example = case(name).batch, case(name).example
    made = network(name)
    for rows in range(1, batch[-1] + 1) if batch else (len(example[0]),):
        for seed in (rows, rows + 100):
            given = inputs(name, rows, seed)
            other = tuple(item.clone() for item in given)
            wanted = called(name, other)
            found = enqueued(made, given, wanted)
            torch.cuda.synchronize()
            assert_same(found, wanted, f"{name} at {rows}")
            assert_same([*given], [*other], f"inputs of {name} at {rows}")
    made.close()


@pytest.mark.parametrize("name", [*NAMES, "llama"])
def test_the_program_reads_and_writes_files(name: str, tmp_path: Path) -> None:
    require(name)
    names = list(load_file(project(name) / "example.safetensors"))
    order = [line.split("`")[1] for line in _ends(name)][: len(names)]
    given = inputs(name, len(case(name).example[0]), 7)
    # It gets a copy: a network may change its inputs.
    wanted = called(name, tuple(item.clone() for item in given))
    answer, outputs = ran(name, dict(zip(order, given, strict=True)), tmp_path)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert_same(outputs, wanted, f"the program of {name}")


def _ends(name: str) -> list[str]:
    lines = (project(name) / "README.md").read_text().splitlines()
    start = lines.index("## Inputs and outputs")
    return [line for line in lines[start:] if line.startswith("| `")]


@pytest.mark.parametrize("name", ["lenet5", "resnet18_bf16", "transformer"])
def test_the_project_tests_itself_and_tells_its_time(name: str, tmp_path: Path) -> None:
    folder = project(name)
    stored = load_file(folder / "example.safetensors")
    expected = str(folder / "expected.safetensors")
    answer, _ = ran(name, stored, tmp_path, "--expect", expected, "--time", "20")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "equal bit for bit" in answer.stdout
    assert "ms an iteration, median of 20" in answer.stdout


def test_it_needs_neither_python_nor_torch() -> None:
    needed = subprocess.run(
        ["ldd", project("lenet5") / "build" / "liblenet5.so"], capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    assert "libcudnn.so.9" in needed and "libcuda.so.1" in needed
    names = [line.split()[0] for line in needed.splitlines()]
    assert not [name for name in names if "torch" in name or "python" in name]


@pytest.mark.parametrize("name", ["lenet5", "resnet18"])
def test_other_weights_of_the_same_shapes_are_taken(name: str, tmp_path: Path) -> None:
    module, example, batch, _ = case(name)
    state = {key: item.clone().cpu() for key, item in module.state_dict().items()}
    for key, item in state.items():
        if item.is_floating_point():
            state[key] = item * (1.1 if "weight" in key else 0.9)
    save_file(state, tmp_path / "weights.safetensors")
    on_gpu = tuple(item.cuda() for item in example)
    other = golow.compile(module.cuda(), on_gpu, batch=batch, level="cudnn", quiet=True)
    other.load_state_dict(state)
    made = EmittedNetwork(library(name), tmp_path / "weights.safetensors")
    for rows in batch or []:
        given = inputs(name, rows, 3)
        wanted = leaves_of(other(*given))
        assert not torch.equal(wanted[0], called(name, given)[0])
        assert_same(enqueued(made, given, wanted), wanted, f"other weights of {name}")
    torch.cuda.synchronize()
    made.close()


def test_contexts_run_at_once_in_several_threads() -> None:
    """Each on a stream of its own."""
    name, loaded = "resnet18", library("resnet18")
    weights, shared = str(project(name) / "weights.safetensors").encode(), c_void_p()
    loaded.require(loaded.create(weights, byref(shared)))
    given = [inputs(name, 2, seed)[0] for seed in range(2)]
    wanted = [called(name, (x,))[0] for x in given]
    torch.cuda.synchronize()
    wrong: list[str] = []

    def work(place: int) -> None:
        context, stream = c_void_p(), torch.cuda.Stream()
        loaded.require(loaded.context_create(shared, byref(context)))
        assert loaded.enqueue is not None
        for _ in range(40):
            output = torch.full_like(wanted[place], torch.nan)
            torch.cuda.synchronize()
            ends = (c_void_p * 1)(given[place].data_ptr()), (c_void_p * 1)(output.data_ptr())
            status = loaded.enqueue(context, 2, *ends, stream.cuda_stream)
            stream.synchronize()
            if status or not torch.equal(output, wanted[place]):
                wrong.append(f"thread {place}: {loaded.error() if status else 'other numbers'}")
        loaded.context_destroy(context)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loaded.destroy(shared)
    assert not wrong, wrong[:4]


def test_it_becomes_a_part_of_a_graph_that_is_captured() -> None:
    name, made = "lenet5", network("lenet5")
    x = inputs(name, 4, 1)[0]
    wanted = called(name, (x,))
    output, graph = torch.full_like(wanted[0], torch.nan), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stream = torch.cuda.current_stream().cuda_stream
        made.enqueue(4, [x.data_ptr()], [output.data_ptr()], stream)
    for seed in (5, 6):
        x.copy_(inputs(name, 4, seed)[0])
        graph.replay()
        torch.cuda.synchronize()
        assert_same([output], called(name, (x,)), f"the captured graph, {seed}")
    del graph
    made.close()


def test_faults_are_a_status_and_a_line(tmp_path: Path) -> None:
    name = "lenet5"
    made = network(name)
    x = inputs(name, 4, 1)[0]
    with pytest.raises(golow.GolowError, match="a batch of 5 is not 1 to 4"):
        made.enqueue(5, [x.data_ptr()], [x.data_ptr()], 0)
    made.close()
    state = load_file(project(name) / "weights.safetensors")
    gone = next(iter(state))
    del state[gone]
    save_file(state, tmp_path / "weights.safetensors")
    with pytest.raises(golow.GolowError, match=f"has no {gone}"):
        EmittedNetwork(library(name), tmp_path / "weights.safetensors")


def test_an_installed_project_runs_elsewhere(tmp_path: Path) -> None:
    """From another folder, without the folder in which it was built."""
    folder = project("lenet5")
    copied = tmp_path / "installed"
    cmake = shutil.which("cmake") or "cmake"
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not on the path")
    build = folder / "build"
    subprocess.run([cmake, "--install", build, "--prefix", copied], check=True)
    [program] = copied.glob("bin/*")
    folders = _folders_of(build / "liblenet5.so")
    answer = subprocess.run(
        [program, copied / "share/lenet5/weights.safetensors", folder / "example.safetensors",
         tmp_path / "out.safetensors", "--expect", folder / "expected.safetensors"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={"LD_LIBRARY_PATH": ":".join(folders)},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr


def _folders_of(file: Path) -> list[str]:
    lines = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout
    paths = [line.split("=>")[1].split()[0] for line in lines.splitlines() if "=> /" in line]
    return sorted({str(Path(path).parent) for path in paths if "libcu" in path})


def test_the_level_is_checked_and_raced(tmp_path: Path) -> None:
    module, (x,), _, _ = case("lenet5")
    result = golow.compare(
        module.cpu(), x, levels=["eager", "cudnn", "cudnn:emitted"], device="cuda", time_limit=2,
        quiet=True, cache=tmp_path,
    )  # fmt: skip
    module.cuda()
    run = result.comparison.runs[-1]
    assert run.level == "cudnn:emitted"
    assert run.check.verdict == "match", run.check
    assert run.time is not None, run
