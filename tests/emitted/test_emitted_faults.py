"""What does not fit is one line of text and a status, never a crash."""

from __future__ import annotations

import json
import random
import subprocess
from ctypes import byref, c_void_p
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file, save_model
from torch import Tensor, nn

import golow
from golow.levels.called.emission import write_called
from golow.levels.called.emitted_library import EmittedLibrary, EmittedNetwork
from golow.levels.called.project_building import missing
from golow.levels.direct.onednn.emit.plan_source import function_call_of
from golow.levels.direct.onednn.steps.built_plan import ArrayCall
from golow.records.errors import GolowError
from support.command import golow as command
from support.direct.emitted_projects import NAMES, build, case, compiled, drawn, project, run
from support.examples import examples

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        missing("onednn") is not None, reason="what builds a project is not installed"
    ),
]

BAD_FILE, BAD_WEIGHTS, BAD_CALL, ONEDNN = 1, 2, 3, 5


def lenet() -> EmittedLibrary:
    return EmittedLibrary(project("lenet5") / "build" / "liblenet5.so", "lenet5")


def refused(weights: Path) -> tuple[int, str]:
    """The status and the words of a network that is not made."""
    loaded, network = lenet(), c_void_p(1)
    status = loaded.create(str(weights).encode(), byref(network))
    assert not network.value
    return status, loaded.error().decode()


def state() -> dict[str, Tensor]:
    return {name: item.clone() for name, item in case("lenet5").module.state_dict().items()}


def changed(file: Path, **tensors: Tensor | None) -> Path:
    kept = state() | {name.replace("_", "."): item for name, item in tensors.items()}
    save_file({name: item for name, item in kept.items() if item is not None}, file)
    return file


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("weights") / "weights.safetensors"


def test_weights_that_do_not_fit_are_named(file: Path) -> None:
    assert refused(changed(file, fc1_weight=torch.zeros(120, 401))) == (
        BAD_WEIGHTS, f"{file}: fc1.weight is 120x401; lenet5 has 120x400",
    )  # fmt: skip
    assert refused(changed(file, conv2_bias=None)) == (BAD_WEIGHTS, f"{file} has no conv2.bias")
    assert refused(changed(file, conv2_bias=torch.zeros(16).double())) == (
        BAD_WEIGHTS, f"{file}: conv2.bias is F64; lenet5 has F32",
    )  # fmt: skip


def test_a_file_that_is_not_there_or_no_file_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path / "none") == (
        BAD_FILE, f"{tmp_path / 'none'} cannot be read: No such file or directory",
    )  # fmt: skip
    assert refused(tmp_path)[0] == BAD_FILE
    empty = tmp_path / "empty"
    empty.touch()
    status, words = refused(empty)
    assert (status, "too short" in words) == (BAD_FILE, True)


@given(st.floats(0, 1, exclude_max=True))
@examples(40)
def test_a_truncated_file_is_refused(share: float) -> None:
    whole = (project("lenet5") / "weights.safetensors").read_bytes()
    cut = project("lenet5").parent / "cut.safetensors"
    cut.write_bytes(whole[: int(share * len(whole))])
    status, words = refused(cut)
    assert status == BAD_FILE
    assert words.startswith(f"{cut} is not a complete safetensors file: ")
    assert "\n" not in words


@given(st.integers(0, 2**32))
@examples(200)
def test_a_damaged_header_is_refused_or_read_without_a_crash(seed: int) -> None:
    """A changed byte may leave a file that is whole, with the same or with other weights."""
    drawing = random.Random(seed)  # noqa: S311
    whole = bytearray((project("lenet5") / "weights.safetensors").read_bytes())
    length = int.from_bytes(whole[:8], "little")
    for _ in range(drawing.randint(1, 4)):
        whole[drawing.randrange(8 + length)] = drawing.randrange(256)
    damaged = project("lenet5").parent / "damaged.safetensors"
    damaged.write_bytes(whole)
    loaded, network = lenet(), c_void_p()
    status = loaded.create(str(damaged).encode(), byref(network))
    assert status in (0, BAD_FILE, BAD_WEIGHTS)
    assert bool(network.value) == (status == 0)
    loaded.destroy(network)


def test_a_header_may_be_written_in_other_ways(tmp_path: Path) -> None:
    """Spaces, escapes, an order of its own and metadata."""
    whole = (project("lenet5") / "weights.safetensors").read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    written = json.dumps({"__metadata__": {"a": 'b"'}, **dict(reversed(header.items()))}, indent=1)
    written = written.replace("conv1.weight", "c\\u006fnv1.weight").replace("conv", "conv")
    file = tmp_path / "weights.safetensors"
    file.write_bytes(len(written).to_bytes(8, "little") + written.encode() + whole[8 + length :])
    EmittedNetwork(lenet(), file).close()


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"images": torch.zeros(1, 1, 28, 27)}, "images is 1x1x28x27; lenet5 takes 1x1x28x28"),
        ({"images": torch.zeros(1, 28, 28)}, "images is 1x28x28; lenet5 takes 1x1x28x28"),
        ({"images": torch.zeros(1, 1, 28, 28).double()}, "images is F64; lenet5 takes F32"),
        ({"x": torch.zeros(1, 1, 28, 28)}, "has no images"),
        ({"images": torch.zeros(5, 1, 28, 28)}, "a batch of 5; lenet5 takes 1 to 4"),
        ({"images": torch.zeros(0, 1, 28, 28)}, "a batch of 0; lenet5 takes 1 to 4"),
    ],
)
def test_inputs_that_do_not_fit_are_named(
    inputs: dict[str, Tensor], words: str, tmp_path: Path
) -> None:
    ran = run("lenet5", inputs, tmp_path)
    assert (ran.status, ran.output, ran.outputs) == (2, "", {})
    assert words in ran.error
    assert ran.error.count("\n") == 1


def test_the_library_refuses_what_it_cannot_run() -> None:
    loaded, x = lenet(), drawn(1, 1, 28, 28)
    network, context = c_void_p(), c_void_p()
    weights = str(project("lenet5") / "weights.safetensors").encode()
    assert loaded.create(None, byref(network)) == BAD_CALL
    assert loaded.create(weights, byref(network)) == 0
    assert loaded.context_create(c_void_p(), byref(context)) == BAD_CALL
    assert loaded.context_create(network, byref(context)) == 0
    ends, nothing = (c_void_p * 1)(x.data_ptr()), (c_void_p * 1)()
    for batch in (0, 5, -1, 2**62):
        assert loaded.run(context, batch, ends, ends) == BAD_CALL
        assert loaded.error().decode() == f"a batch of {batch} is not 1 to 4"
    assert loaded.run(context, 1, nothing, ends) == BAD_CALL
    assert loaded.run(c_void_p(), 1, ends, ends) == BAD_CALL
    loaded.context_destroy(context)
    loaded.destroy(network)


def test_a_processor_with_other_layouts_is_refused(tmp_path: Path) -> None:
    """oneDNN is told to leave AVX-512 alone, as on another CPU."""
    if "avx512" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("without AVX-512 the library chooses the same layouts")
    ran = run("lenet5", {"images": drawn(4, 1, 28, 28)}, tmp_path, ONEDNN_MAX_CPU_ISA="AVX2")
    assert (ran.status, ran.error.count("\n")) == (2, 1)
    assert ran.error.startswith("conv1 + tanh (reorder): oneDNN wants another layout here")


def test_the_options_of_the_program_are_checked() -> None:
    program = project("lenet5") / "build" / "lenet5_run"
    for arguments in ([], ["a", "b", "c", "--time"], ["a", "b", "c", "--time", "0"]):
        ended = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)


# ---------------------------------------------------------------- writing


class Tied(nn.Module):
    """A table that is also the last layer's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(40, 8)
        self.last = nn.Linear(8, 40, bias=False)
        self.last.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.last(self.table(tokens))


def test_a_title_is_no_code_and_tied_weights_are_found_by_either_name(tmp_path: Path) -> None:
    """`save_model` keeps one name of each weight."""
    torch.manual_seed(0)
    module, tokens = Tied().eval(), torch.randint(40, (2, 3))
    f = golow.compile(module, tokens, quiet=True, threads=1)
    write_called(f, '3d */ "mo\ndel', tmp_path / "project")
    build(tmp_path / "project")
    loaded = EmittedLibrary(tmp_path / "project" / "build" / "libn3d_mo_del.so", "n3d_mo_del")
    save_model(module, str(tmp_path / "one.safetensors"))
    assert len(load_file(tmp_path / "one.safetensors")) == 1
    for file in (tmp_path / "one.safetensors", tmp_path / "project" / "weights.safetensors"):
        network, output = EmittedNetwork(loaded, file), torch.empty(2, 3, 40)
        network.run(2, [tokens.data_ptr()], [output.data_ptr()])
        assert torch.equal(output, f(tokens))
        network.close()


@pytest.mark.parametrize("name", NAMES)
def test_every_step_of_a_plan_is_a_line_that_names_its_layer(name: str) -> None:
    for (batch, _), plan in compiled(name).plans.items():
        text = (project(name) / f"plan_{batch}.cpp").read_text()
        steps = [  # what NumPy computes once is in the project as numbers
            step
            for step, call in zip(plan.plan.steps, plan.built.calls, strict=True)
            if not (step.once and isinstance(call, ArrayCall) and not function_call_of(call))
        ]
        for verb, once in (("load", True), ("run", False)):
            wanted = sum(step.once == once for step in steps)
            found = text.count(f"  plan.{verb}(")
            assert wanted <= found <= wanted + (0 if once else 2)  # outputs that are copied
        for step in steps:
            layers = " + ".join(filter(None, step.modules)) or "the model"
            assert f'plan.layer("{layers}", "{step.operation}");' in text


class Pairs(nn.Module):
    """Places by tensors of indices that are inputs, for which there is no kernel."""

    def forward(self, x: Tensor, order: Tensor) -> Tensor:
        return torch.cumsum(x, 1) + order


def test_a_step_that_runs_in_numpy_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    example = drawn(2, 3), torch.zeros(2, 3)
    f = golow.compile(Pairs().eval(), example, quiet=True, threads=1)
    with pytest.raises(GolowError, match="cumulative_sum of the model runs in NumPy"):
        write_called(f, "pairs", tmp_path / "project")
    assert not (tmp_path / "project").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for words in ("--batch", "1"), ():
        ended = command("emit", "lenet5", "--level", "onednn", *words, "--out", str(tmp_path))
        assert ended.status == 2 or ended.status == 1
        assert "is not empty and is not a project that golow wrote" in ended.error
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_a_project_is_replaced_by_another_one(tmp_path: Path) -> None:
    for batch in ("1,4", "2"):
        ended = command("emit", "lenet5", "--level", "onednn", "--batch", batch, "--threads", "1",
                        "--out", str(tmp_path / "project"))  # fmt: skip
        assert ended.status == 0, ended.error
    assert [file.name for file in (tmp_path / "project").glob("plan_*")] == ["plan_2.cpp"]
    assert load_file(tmp_path / "project" / "example.safetensors")["images"].shape[0] == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--level", "onednn", "--batch", "1,x"], "--batch 1,x is not a batch size"),
        (["--level", "onednn", "--batch", "0,1"], "a batch of 0 has no sample"),
        (["--batch", "1,8"], "the libtorch program accepts any batch size"),
        (["--level", "onednn", "--threads", "0"], "0 threads compute nothing"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: list[str], words: str, tmp_path: Path
) -> None:
    ended = command("emit", "lenet5", *options, "--out", str(tmp_path / "project"))
    assert ended.status != 0
    assert words in ended.error
    assert not (tmp_path / "project").exists()
