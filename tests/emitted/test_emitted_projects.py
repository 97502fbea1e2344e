"""Projects of `golow emit --level onednn` give the bits that `golow.compile` gives."""

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
from golow.levels.called.emitted_library import EmittedLibrary, EmittedNetwork
from golow.levels.called.project_building import missing
from golow.lower.capture.module_outputs import leaves_of
from support.direct.emitted_projects import NAMES, Ran, case, clean, compiled, drawn, project, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        missing("onednn") is not None, reason="what builds a project is not installed"
    ),
]


def library(name: str) -> EmittedLibrary:
    return EmittedLibrary(project(name) / "build" / f"lib{name}.so", name)


def called(network: EmittedNetwork, x: Tensor, like: list[Tensor]) -> list[Tensor]:
    outputs = [torch.full_like(item, torch.nan) for item in like]
    network.run(len(x), [x.data_ptr()], [item.data_ptr() for item in outputs])
    return outputs


def same(found: list[Tensor], wanted: list[Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))


def of(ran: Ran) -> list[Tensor]:
    assert (ran.status, ran.error) == (0, "")
    return list(ran.outputs.values())


@pytest.mark.parametrize("name", NAMES)
def test_through_its_header_a_project_gives_the_same_bits(name: str) -> None:
    """At every size, and at those between, which are padded."""
    _, example, batch = case(name)
    network = EmittedNetwork(library(name), project(name) / "weights.safetensors")
    for rows in range(1, batch[-1] + 1) if batch else (len(example),):
        x = drawn(rows, *example.shape[1:], seed=rows)
        wanted = leaves_of(compiled(name)(x))
        assert same(called(network, x, wanted), wanted)
    network.close()


@pytest.mark.parametrize("name", NAMES)
def test_the_program_reads_and_writes_files(name: str, tmp_path: Path) -> None:
    _, example, _ = case(name)
    x = drawn(*example.shape, seed=5)
    [key] = load_file(project(name) / "example.safetensors")
    assert same(of(run(name, {key: x}, tmp_path)), leaves_of(compiled(name)(x)))


def test_the_example_gives_what_was_stored(tmp_path: Path) -> None:
    folder = project("lenet5")
    stored = f"{folder / 'expected.safetensors'}"
    inputs = load_file(folder / "example.safetensors")
    ran = run("lenet5", inputs, tmp_path, "--expect", stored, "--time", "3")
    assert ran.status == 0
    assert "equal bit for bit" in ran.output
    assert "ms an iteration, median of 3" in ran.output
    inputs["images"][0] += 1
    ran = run("lenet5", inputs, tmp_path, "--expect", stored)
    assert ran.status == 1
    assert "different" in ran.output


def test_the_project_tests_itself() -> None:
    said = clean("ctest", "--test-dir", str(project("vit") / "build")).stdout
    assert "100% tests passed" in said


def test_it_needs_neither_python_nor_torch() -> None:
    needed = clean("ldd", str(project("lenet5") / "build" / "liblenet5.so")).stdout
    assert "libdnnl.so.3" in needed
    assert not [line for line in needed.splitlines() if "torch" in line or "python" in line]


def test_other_weights_of_the_same_shapes_are_taken(tmp_path: Path) -> None:
    """They are folded and packed anew, also for several sizes."""
    for name in ("resnet18", "lenet5"):
        module, example, _ = case(name)
        state = {key: item.clone() for key, item in module.state_dict().items()}
        for key, item in state.items():
            if item.is_floating_point():
                state[key] = item * (1.1 if "weight" in key else 0.9)
        save_file(state, tmp_path / "weights.safetensors")
        module, example, batch = case(name)
        other = golow.compile(module, example, batch=batch, quiet=True, threads=1)
        other.load_state_dict(state)
        network = EmittedNetwork(library(name), tmp_path / "weights.safetensors")
        for rows in batch or []:
            x = drawn(rows, *example.shape[1:], seed=3)
            wanted = [other(x)]
            assert not same(wanted, [compiled(name)(x)])
            assert same(called(network, x, wanted), wanted)


def resident() -> int:
    """Bytes of this process in memory."""
    [line] = [one for one in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in one]
    return int(line.split()[1]) * 1024


def test_two_sizes_cost_one_set_of_weights() -> None:
    weights = project("resnet18") / "weights.safetensors"
    loaded = library("resnet18")
    before = resident()
    network = EmittedNetwork(loaded, weights)
    assert resident() - before < 1.6 * weights.stat().st_size
    network.close()


class InTurn:
    """Two contexts of one network."""

    def __init__(self, loaded: EmittedLibrary, weights: Path) -> None:
        self.loaded, self.network = loaded, c_void_p()
        loaded.require(loaded.create(str(weights).encode(), byref(self.network)))
        self.contexts = [c_void_p(), c_void_p()]
        for context in self.contexts:
            loaded.require(loaded.context_create(self.network, byref(context)))

    def run(self, place: int, x: Tensor, like: Tensor) -> Tensor:
        output = torch.full_like(like, torch.nan)
        ends = (c_void_p * 1)(x.data_ptr()), (c_void_p * 1)(output.data_ptr())
        self.loaded.require(self.loaded.run(self.contexts[place], len(x), *ends))
        return output


def test_contexts_run_at_once_in_several_threads() -> None:
    contexts = InTurn(library("resnet18"), project("resnet18") / "weights.safetensors")
    inputs = [drawn(2, 3, 32, 32, seed=seed) for seed in range(2)]
    wanted = [compiled("resnet18")(x) for x in inputs]
    wrong: list[int] = []

    def work(place: int) -> None:
        for _ in range(40):
            if not torch.equal(contexts.run(place, inputs[place], wanted[place]), wanted[place]):
                wrong.append(place)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    contexts.loaded.destroy(contexts.network)  # contexts keep what they read
    assert torch.equal(contexts.run(1, inputs[1], wanted[1]), wanted[1])
    for context in contexts.contexts:
        contexts.loaded.context_destroy(context)


def test_the_header_is_c_and_what_is_installed_can_be_moved(tmp_path: Path) -> None:
    folder = project("lenet5")
    clean("cmake", "--install", str(folder / "build"), "--prefix", str(tmp_path / "installed"))
    shutil.move(tmp_path / "installed", tmp_path / "moved")
    consumer = tmp_path / "consumer"
    consumer.mkdir()
    (consumer / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(consumer LANGUAGES C)\n"
        "set(CMAKE_C_STANDARD 99)\nfind_package(lenet5 REQUIRED)\n"
        "add_executable(consumer main.c)\n"
        "target_compile_options(consumer PRIVATE -Wall -Wextra -Werror -pedantic)\n"
        "target_link_libraries(consumer PRIVATE lenet5)\n"
    )
    (consumer / "main.c").write_text(CONSUMER)
    prefix = f"-DCMAKE_PREFIX_PATH={tmp_path / 'moved'}"
    clean("cmake", "-S", str(consumer), "-B", str(consumer / "build"), prefix)
    clean("cmake", "--build", str(consumer / "build"))
    weights = tmp_path / "moved" / "share" / "lenet5" / "weights.safetensors"
    printed = clean(str(consumer / "build" / "consumer"), str(weights)).stdout.split()
    wanted = compiled("lenet5")(torch.zeros(1, 1, 28, 28)).flatten()
    assert [float(number) for number in printed] == pytest.approx(wanted.tolist(), rel=1e-5)
    moved = tmp_path / "moved" / "bin" / "lenet5_run"
    files = [weights, folder / "example.safetensors", tmp_path / "out.safetensors"]
    expected = load_file(folder / "expected.safetensors")
    subprocess.run([moved, *files], env={}, check=True)
    assert same(list(load_file(files[2]).values()), list(expected.values()))


CONSUMER = """
#include <stdio.h>

#include "lenet5.h"

int main(int count, char** arguments) {
  lenet5_network* network;
  lenet5_context* context;
  float images[28 * 28] = {0}, output[10];
  const void* inputs[] = {images};
  void* outputs[] = {output};
  int i;
  if (count != 2 || lenet5_create(arguments[1], &network) ||
      lenet5_context_create(network, &context) || lenet5_run(context, 1, inputs, outputs)) {
    fprintf(stderr, "%s\\n", lenet5_error());
    return 1;
  }
  for (i = 0; i < 10; ++i) printf("%.9g ", output[i]);
  lenet5_context_destroy(context);
  lenet5_destroy(network);
  return 0;
}
"""
