"""A saved module gives what the compiled one gives, with PyTorch and without."""

from __future__ import annotations

import os
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_model
from torch import Tensor, nn

from golow.artifact.loaded_module import LoadedModule
from golow.artifact.loading import load_compiled
from golow.compiled.compiled_module import CompiledModule
from golow.records.errors import GolowError
from support.artifacts import in_new_process, names
from support.direct.compiled_modules import X, compiled, network


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_it_gives_what_the_compiled_module_gives(
    f: CompiledModule, loaded: LoadedModule, rows: int
) -> None:
    """Bit for bit; tensors for tensors, arrays for arrays, also those that are stored otherwise."""
    wanted = f(X[:rows])
    found = loaded(X[:rows])
    assert isinstance(found, Tensor)
    assert torch.equal(found, wanted)
    array = loaded(X[:rows].numpy())
    assert isinstance(array, np.ndarray)
    assert np.array_equal(array, wanted.numpy())
    turned = np.ascontiguousarray(X[:rows].numpy().transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert np.array_equal(loaded(turned), wanted.numpy())
    assert np.array_equal(loaded(X[:rows].numpy().astype(">f4")), wanted.numpy())


def test_it_says_what_it_is(f: CompiledModule, loaded: LoadedModule) -> None:
    assert loaded.manifest.model == "Sequential"
    assert loaded.notes == ()
    assert loaded.plan(batch=2) == f.plan(batch=2)
    assert loaded.memory() == f.memory()
    with pytest.raises(GolowError, match="there is no plan for batch 3"):
        loaded.plan(batch=3)


class Answer(NamedTuple):
    mean: Tensor
    parts: dict[str, list[Tensor | None]]


class Several(nn.Module):
    """Inputs by name, one without a batch and one that is changed; outputs nested."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 5), nn.Linear(4, 5)
        self.register_buffer("shift", torch.ones(5))

    def forward(self, x: Tensor, y: Tensor, scale: Tensor) -> Answer:
        a, b = self.left(x), self.right(y)
        y.mul_(2)
        return Answer((a + b) * scale + self.shift, {"parts": [torch.relu(a), None]})


def test_inputs_by_name_and_nested_outputs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    given = {"x": torch.randn(3, 6), "y": torch.randn(3, 4), "scale": torch.randn(5)}
    f = compiled(Several().eval(), given, batch=[3])
    f.save(tmp_path / "several.golow")
    g = load_compiled(tmp_path / "several.golow")
    wanted = f({name: item.clone() for name, item in given.items()})
    calls: list[Callable[[Tensor], Any]] = [
        lambda y: g({**given, "y": y}),
        lambda y: g(y=y, x=given["x"], scale=given["scale"]),
        lambda y: g(given["x"], y, given["scale"]),
    ]
    for call in calls:
        y = given["y"].clone()
        found = call(y)
        assert torch.equal(found["mean"], wanted.mean)
        assert torch.equal(found["parts"]["parts"][0], wanted.parts["parts"][0])
        assert found["parts"]["parts"][1] is None
        assert torch.equal(y, given["y"] * 2)
    with pytest.raises(GolowError, match="input scale is missing; this was compiled for x, y, sca"):
        g(given["x"], given["y"])
    with pytest.raises(GolowError, match="input x is given twice"):
        g(given["x"], x=given["x"], y=given["y"], scale=given["scale"])
    with pytest.raises(GolowError, match="z is not an input"):
        g(**given, z=given["x"])


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(50, 8), nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.layer(torch.relu(self.embedding(ids)))
        return found


class Joined(nn.Module):
    """Takes its inputs without names."""

    def forward(self, *parts: Tensor) -> Tensor:
        return torch.cat(parts, 1)


def test_inputs_without_names_have_numbers(tmp_path: Path) -> None:
    """One input must not stand for all of them."""
    file = tmp_path / "joined.golow"
    with compiled(Joined().eval(), (X, X)) as f:
        f.save(file)
        with pytest.raises(GolowError, match=r"^input 1 is missing; this was compiled for 0, 1$"):
            f(X)
        with pytest.raises(GolowError, match=r"^3 inputs are too many; this was compiled for 0, 1"):
            f(X, X, X)
    loaded = load_compiled(file)
    assert torch.equal(loaded(X, 2 * X), torch.cat((X, 2 * X), 1))
    with pytest.raises(GolowError, match=r"^input 1 is missing; this was compiled for 0, 1$"):
        loaded(X)


def test_lengths_of_text_are_padded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    ids = torch.randint(0, 50, (2, 6))
    f = compiled(Tokens().eval(), ids, batch=[1, 2], sequence=[4, 8])
    f.save(tmp_path / "tokens.golow")
    g = load_compiled(tmp_path / "tokens.golow")
    for rows, length in ((1, 3), (2, 4), (2, 5), (1, 8)):
        given = torch.randint(0, 50, (rows, length))
        assert torch.equal(g(given), f(given)), (rows, length)
    with pytest.raises(GolowError, match="input 0 is 2x9"):
        g(torch.zeros(2, 9, dtype=torch.int64))
    assert g.check().matches


WITHOUT_TORCH = """
import sys
import numpy
import golow
f = golow.load_compiled(sys.argv[1])
y = f(numpy.load(sys.argv[2]))
assert f.check().matches
numpy.save(sys.argv[3], y)
assert not {"torch", "scipy", "rich"} & sys.modules.keys(), sorted(sys.modules)
"""


@pytest.mark.slow
def test_no_framework_is_imported(f: CompiledModule, saved: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.numpy())
    answer = in_new_process(WITHOUT_TORCH, saved, tmp_path / "x.npy", tmp_path / "y.npy")
    assert answer.returncode == 0, answer.stderr
    assert np.array_equal(np.load(tmp_path / "y.npy"), f(X).numpy())


def test_other_weights(module: nn.Module, saved: Path, tmp_path: Path) -> None:
    """From a file at the start, and later from a file or by name; in the memory of the first."""
    other = network(seed=7)
    file = tmp_path / "other.safetensors"
    save_file({k: item.numpy() for k, item in other.state_dict().items()}, file)
    wanted = compiled(other, X, batch=[1, 2, 4])(X)
    g = load_compiled(saved)
    context = g.context()
    assert not torch.equal(g(X), wanted)
    assert g.check().matches
    g.load_weights(file)
    assert torch.equal(g(X), wanted)
    assert torch.equal(context(X), wanted)
    wrong = g.check()
    assert not wrong.matches
    assert repr(wrong) == str(wrong)
    g.load_weights(module.state_dict())
    assert g.check().matches
    turned = {
        k: item.numpy().astype(item.numpy().dtype.newbyteorder(">"))
        for k, item in other.state_dict().items()
    }
    g.load_weights(turned)
    assert torch.equal(g(X), wanted)
    assert torch.equal(load_compiled(saved, weights=file)(X), wanted)


class Tied(nn.Module):
    """A table that is also the last layer, under a name that files may leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
        self.out.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.out(torch.relu(self.table(ids)))
        return found


def test_tied_weights_may_have_either_name(tmp_path: Path) -> None:
    file, ids, other = tmp_path / "tied.golow", torch.arange(6).view(2, 3), Tied().eval()
    compiled(Tied().eval(), ids).save(file)
    wanted = compiled(other, ids)(ids)
    save_model(other, str(tmp_path / "other.safetensors"))  # it keeps one name of each tensor
    assert torch.equal(load_compiled(file, weights=tmp_path / "other.safetensors")(ids), wanted)
    for name in ("table.weight", "out.weight"):
        g = load_compiled(file)
        g.load_weights({name: other.table.weight})
        assert torch.equal(g(ids), wanted)


def test_weights_that_do_not_fit(saved: Path, tmp_path: Path) -> None:
    g = load_compiled(saved)
    before = g(X)
    state = {k: item.numpy() for k, item in network().state_dict().items()}
    with pytest.raises(GolowError, match=r"there is no 0\.weight in the weights"):
        g.load_weights({k: item for k, item in state.items() if k != "0.weight"})
    with pytest.raises(GolowError, match=r"8\.bias in the weights is 4 of float32"):
        g.load_weights(state | {"8.bias": state["8.bias"][:4]})
    with pytest.raises(GolowError, match=r"0\.bias in the weights is 8 of bfloat16"):
        g.load_weights(state | {"0.bias": network().bfloat16().state_dict()["0.bias"]})
    with pytest.raises(GolowError, match="is 5 of float64"):
        g.load_weights(state | {"8.bias": state["8.bias"].astype(np.float64)})
    (tmp_path / "cut.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{")
    with pytest.raises(GolowError, match="its header is cut off"):
        g.load_weights(tmp_path / "cut.safetensors")
    with pytest.raises(GolowError, match="cannot be read: No such file"):
        g.load_weights(tmp_path / "none.safetensors")
    assert torch.equal(g(X), before)


def test_a_file_without_weights(f: CompiledModule, saved: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.golow"
    f.save(small, weights=False)
    assert "weights.safetensors" in names(saved)
    assert "weights.safetensors" not in names(small)
    with pytest.raises(GolowError, match="was saved without weights") as caught:
        load_compiled(small)
    assert "weights=FILE" in caught.value.hint
    file = tmp_path / "weights.safetensors"
    save_file({k: item.numpy() for k, item in network().state_dict().items()}, file)
    assert torch.equal(load_compiled(small, weights=file)(X), f(X))


def test_outputs_in_the_callers_memory(
    f: CompiledModule, loaded: LoadedModule, tmp_path: Path
) -> None:
    out = np.empty((4, 5), np.float32)
    assert loaded(X, out=out) is out
    assert np.array_equal(out, f(X).numpy())
    for wrong, words in (
        (np.empty((4, 6), np.float32), "4x5 of float32"),
        (np.empty((4, 5), np.float64), "4x5 of float32"),
        (np.empty((5, 4), np.float32).T, "must be a row-major array in"),
        (np.empty((4, 5), ">f4"), "must be a row-major array in this machine's byte order"),
    ):
        with pytest.raises(GolowError, match=words):
            loaded(X, out=wrong)
    same = np.zeros((4, 5), np.float32)
    square = compiled(nn.Linear(5, 5).eval(), torch.ones(4, 5))
    square.save(tmp_path / "square.golow")
    with pytest.raises(GolowError, match="output 0 of out shares memory with input 0"):
        load_compiled(tmp_path / "square.golow")(same, out=same)
    out.flags.writeable = False
    with pytest.raises(GolowError, match="that can be written"):
        loaded(X, out=out)
    with pytest.raises(GolowError, match="batch 3 is padded to batch 4"):
        loaded(X[:3], out=np.empty((3, 5), np.float32))
    with pytest.raises(GolowError, match="output 0 of out is list, not an array"):
        loaded(X, out=[np.empty((4, 5), np.float32)])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (X[:, :2], "input input is 4x2x12x12; this was compiled for batches of 1, 2, 4 of 3x12x12"),
        (X.repeat(2, 1, 1, 1), "8x3x12x12"),
        (X[:0], "0x3x12x12"),
        (X.double(), "is float64; this was compiled for float32"),
        ("a text", "is str, not an array"),
        (X.bfloat16(), "not an array that NumPy can read"),
    ],
)
def test_inputs_that_do_not_fit(loaded: LoadedModule, given: object, words: str) -> None:
    with pytest.raises(GolowError, match=words.replace("input input", "input .*")):
        loaded(given)


def test_contexts_run_at_once(loaded: LoadedModule) -> None:
    wanted = [loaded(X * k) for k in range(3)]
    wrong: list[int] = []

    def work(k: int) -> None:
        call = loaded.context()
        wrong.extend(k for _ in range(50) if not torch.equal(call(X * k), wanted[k]))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    context = loaded.context()
    with context.held(), pytest.raises(GolowError, match="another thread is calling"):
        context(X)


def test_a_forked_process_is_told(loaded: LoadedModule) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            loaded(X)
            os.write(writing, b"ran")
        except GolowError as error:
            os.write(writing, error.message.encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert b"forked from" in os.read(reading, 1000)


def test_what_is_closed_says_so(saved: Path) -> None:
    with load_compiled(saved) as g:
        context = g.context()
    for call in (g, context):
        with pytest.raises(GolowError, match="closed"):
            call(X)


def test_where_it_cannot_be_saved(f: CompiledModule, tmp_path: Path) -> None:
    with pytest.raises(GolowError, match="is a folder") as caught:
        f.save(tmp_path)
    assert str(tmp_path / "model.golow") in caught.value.hint
    with pytest.raises(GolowError, match="there is no folder"):
        f.save(tmp_path / "none" / "model.golow")
    shared = compiled(nn.Linear(4, 4).eval(), torch.ones(2, 4), share=True)
    with pytest.raises(GolowError, match="share=True"):
        shared.save(tmp_path / "model.golow")


def test_a_plan_that_is_wrong_is_not_saved(tmp_path: Path) -> None:
    """Other weights in the plan than those that it says."""
    f = compiled(network(), X)
    f.state = network(seed=3).state_dict()
    with pytest.raises(GolowError, match="does not pass golow's check on the example"):
        f.save(tmp_path / "model.golow")
    assert list(tmp_path.iterdir()) == []


def test_arrays_are_saved_whole(saved: Path, tmp_path: Path) -> None:
    """As any reader of safetensors finds them."""
    with zipfile.ZipFile(saved) as archive:
        archive.extract("weights.safetensors", tmp_path)
    found = load_file(tmp_path / "weights.safetensors")
    for name, item in network().state_dict().items():
        assert name in found or name.endswith("num_batches_tracked")
        if name in found:
            assert np.array_equal(found[name], item.numpy())
