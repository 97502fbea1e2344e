"""The way down of a layer: real processes under Valgrind, and what the table says of them."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

import golow
from golow.levels import ladder
from golow.levels.level import Launch
from golow.programs.profiling import store
from golow.programs.profiling.profile_record import Profile
from golow.programs.profiling.way_down.callgrind import read_parts
from golow.programs.profiling.way_down.reading import Counted, read
from golow.programs.profiling.way_down.valgrind import (
    build_switch,
    require_valgrind,
    under_callgrind,
)
from golow.programs.profiling.way_down.way_down_record import Frame, LevelWay, WayDown
from golow.records.workload import ModelSource, TensorType, Workload
from golow.report.profiling.table import render
from golow.report.profiling.way_down import short_name
from support.command import golow as command

needs_valgrind = pytest.mark.skipif(
    not (shutil.which("valgrind") and shutil.which("cc")), reason="Valgrind or cc is not installed"
)

PROGRAM = """
#include <dlfcn.h>
#include <stdlib.h>
void *volatile kept;
volatile int sum;
__attribute__((noinline)) void sgemm_(void) { for (int i = 0; i < 1000; ++i) sum += i; }
__attribute__((noinline)) void prepare(int n) { while (n--) kept = malloc(16); }
__attribute__((noinline)) void layer(int n) { prepare(n); sgemm_(); sum += 1; }
int main(int count, char **words) {
  void *library = dlopen(words[1], RTLD_NOW);
  void (*begin)(void) = (void (*)(void))dlsym(library, "golow_begin");
  void (*end)(void) = (void (*)(void))dlsym(library, "golow_end");
  int allocations = atoi(words[2]);
  layer(1);  /* not counted */
  begin();
  layer(allocations);
  end();
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.c").write_text(PROGRAM)
    command = ["cc", "-O0", "program.c", "-o", "program", "-ldl"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "program"


def counted(program: Path, folder: Path, allocations: int) -> Counted:
    """What is counted of the program's layer with so many allocations."""
    switch = build_switch(folder)
    launch = Launch((str(program), str(switch), str(allocations)))
    output = folder / f"{allocations}.callgrind"
    slow = under_callgrind(launch, require_valgrind(), 1, output)
    subprocess.run(slow.command, env=dict(slow.environment), check=True)
    return read(read_parts(folder, output.name))


@needs_valgrind
def test_only_what_lies_between_the_switches_counts(program: Path, tmp_path: Path) -> None:
    found = counted(program, tmp_path, 3)
    assert found.allocations == 3
    assert found.entries == 1
    assert found.entry == Frame(name="sgemm_", place="program")
    assert found.owner == "BLAS"
    assert [frame.name for frame in found.native][-1] == "layer"
    assert found.inside > 1000  # one instruction or more a pass of its loop
    assert 0 < found.after < found.before < found.inside


@pytest.mark.slow
@needs_valgrind
def test_one_more_allocation_is_seen(program: Path, tmp_path: Path) -> None:
    one, other = counted(program, tmp_path, 3), counted(program, tmp_path, 4)
    print(f"instructions of one more allocation: {other.before - one.before}")
    assert other.allocations == one.allocations + 1
    assert one.before < other.before
    assert (one.inside, one.after) == (other.inside, other.after)


@pytest.mark.slow
@needs_valgrind
def test_counts_repeat_exactly(program: Path, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    assert counted(program, tmp_path, 3) == counted(program, tmp_path / "again", 3)


@needs_valgrind
@pytest.mark.whole_network
def test_a_layer_of_a_network_is_counted_at_every_level(tmp_path: Path) -> None:
    levels = ["eager", "libtorch", "onednn"]
    here = [name for name in levels if ladder.choose(name, "infer").level.probe().available]
    result = golow.profile(
        "lenet5",
        batch=1,
        levels=here,
        threads=1,
        way_down="conv2",
        time_limit=0.5,
        folder=tmp_path / "saved",
        cache=tmp_path / "cache",
    )
    [way] = result.profiles[0].ways
    assert [level.level for level in way.levels] == here
    for level in way.levels:
        print(level.level, level.before, level.inside, level.after, level.allocations)
        assert (level.verdict, level.missing) == ("match", "")
        assert level.before > 0
        assert level.entry is not None, level.native
    eager = way.levels[0]
    assert eager.python[-1].name == "Conv2d._conv_forward"
    assert any("at::_ops::conv2d::call" in frame.name for frame in eager.native)
    assert eager.dispatches > 0
    for level in way.levels[1:]:
        assert level.before < eager.before
    if "onednn" in here:
        assert way.levels[-1].dispatches == 0
        assert way.levels[-1].owner == "oneDNN"
    assert store.load(tmp_path / "saved") == result.profiles


@pytest.mark.slow
def test_without_valgrind_the_package_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = command("profile", "lenet5", "--way-down", "conv2", folder=tmp_path)
    assert done.status == 2
    assert "Valgrind, which is not installed" in done.error
    assert "apt-get install valgrind" in done.error
    assert "Traceback" not in done.error


@pytest.mark.slow
@needs_valgrind
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--way-down", "layer9.conv1"), "the network has no layer 'layer9.conv1'"),
        (("--way-down", "conv2", "--mode", "train"), "leave out --mode train"),
    ],
)
def test_what_cannot_be_counted_is_refused_at_once(
    options: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = command("profile", "lenet5", *options, folder=tmp_path)
    assert done.status == 2, done.error
    assert said in done.error
    assert "Traceback" not in done.error


def test_a_level_that_was_not_counted_says_why() -> None:
    failed = LevelWay(level="compile", verdict="match", missing="died: it was ended by SIGILL")
    shown = table([LEVEL, failed])
    assert "compile: conv2 was not counted: died: it was ended by SIGILL" in shown


def test_a_layer_without_a_vendors_entry_says_so() -> None:
    shown = table([LevelWay(level="eager", verdict="match", before=1234)])
    assert "eager: conv2 reaches no vendor's entry" in shown
    assert "1,234" in shown


def test_a_long_stack_is_folded_and_fits() -> None:
    shown = table([LEVEL], top=4)
    assert "(26 more)" in shown
    assert max(map(len, shown.splitlines())) <= 100
    for frame in ("at::native::f0", "at::native::f29", "SGEMM"):
        assert frame in shown
    assert "at::native::f15" not in shown
    assert "25%" in shown  # (100 + 50) of 600 instructions


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "at::_ops::conv2d::call(at::Tensor const&, c10::ArrayRef<c10::SymInt>)",
            "at::_ops::conv2d::call",
        ),
        ("void f<int, g<2>>(std::vector<int>) const", "f"),
        (
            "at::native::(anonymous namespace)::k(int) [clone .isra.0]",
            "at::native::(anonymous namespace)::k",
        ),
        ("std::function<void (int)>::operator()(int) const", "std::function::operator()"),
        ("operator new(unsigned long)", "operator new"),
        ("SGEMM", "SGEMM"),
    ],
)
def test_names_are_shortened(name: str, short: str) -> None:
    assert short_name(name) == short


LEVEL = LevelWay(
    level="eager",
    verdict="match",
    python=(Frame(name="Conv2d.forward", place="torch/nn/modules/conv.py"),),
    native=tuple(
        Frame(name=f"at::native::f{number}({'long, ' * 40})", place="libtorch_cpu.so")
        for number in range(30)
    ),
    interpreter=12,
    entry=Frame(name="SGEMM", place="libtorch_cpu.so"),
    owner="BLAS",
    entries=1,
    before=100,
    inside=450,
    after=50,
)


def table(levels: list[LevelWay], top: int = 10) -> str:
    tensor = TensorType(shape=(1, 1, 28, 28), dtype="float32")
    way = WayDown(layer="conv2", operation="Conv2d", inputs=(tensor,), levels=tuple(levels))
    workload = Workload(
        model="lenet5",
        source=ModelSource(kind="zoo", name="lenet5"),
        mode="infer",
        batch=1,
        inputs=(tensor,),
    )
    text = io.StringIO()
    profile = Profile(workload=workload, levels=(), ways=(way,))
    render([profile], top=top, console=Console(file=text, width=100))
    return text.getvalue()
