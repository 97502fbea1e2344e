"""Artifacts of the GPU's level: tensors on the GPU with PyTorch, arrays without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golow.artifact.loaded_module import LoadedModule
from golow.artifact.loading import load_compiled
from golow.compiled.compiled_module import CompiledModule
from golow.records.errors import GolowError
from support.artifacts import changed, in_new_process, names, with_manifest
from support.direct.compiled_modules import X, compiled, network

pytestmark = pytest.mark.gpu
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

WITHOUT_TORCH = """
import sys
import numpy
import golow
f = golow.load_compiled(sys.argv[1], cache=sys.argv[2])
assert f.check().matches, str(f.check())
numpy.save(sys.argv[4], f(numpy.load(sys.argv[3])))
assert "torch" not in sys.modules
print(f.notes)
"""


@pytest.fixture(scope="module")
def module() -> nn.Module:
    return network().cuda()


@pytest.fixture(scope="module")
def f(module: nn.Module) -> CompiledModule:
    return compiled(module, X.cuda(), batch=[1, 2, 4])


@pytest.fixture(scope="module")
def saved(f: CompiledModule, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("saved") / "network.golow"
    f.save(file)
    return file


@pytest.fixture(scope="module")
def loaded(saved: Path) -> LoadedModule:
    return load_compiled(saved)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_it_gives_what_the_compiled_module_gives(
    f: CompiledModule, loaded: LoadedModule, rows: int
) -> None:
    """Tensors on the GPU on the current stream; arrays, and tensors on the CPU, by copies."""
    x = X[:rows]
    wanted = f(x.cuda())
    found = loaded(x.cuda())
    assert isinstance(found, Tensor)
    assert found.device == wanted.device
    assert torch.equal(found, wanted)
    assert np.array_equal(loaded(x.numpy()), wanted.cpu().numpy())
    assert torch.equal(loaded(x), wanted.cpu())
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        other = loaded(x.cuda())
    stream.synchronize()
    assert torch.equal(other, wanted)


def test_what_it_is(loaded: LoadedModule, saved: Path) -> None:
    assert loaded.check().matches
    assert loaded.notes == ()
    assert any(name.startswith("engines/") for name in names(saved))
    assert any(name.startswith("kernels/") for name in names(saved))
    with pytest.raises(GolowError, match="this runs on cuda:0"):
        loaded(X.cuda(), out=torch.empty(4, 5))


def test_without_pytorch_and_with_an_empty_cache(
    f: CompiledModule, saved: Path, tmp_path: Path
) -> None:
    """Kernels and engines come from the file: nothing is compiled and nothing is chosen."""
    np.save(tmp_path / "x.npy", X.numpy())
    answer = in_new_process(
        WITHOUT_TORCH, saved, tmp_path / "cache", tmp_path / "x.npy", tmp_path / "y.npy"
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == "()"
    assert np.array_equal(np.load(tmp_path / "y.npy"), f(X.cuda()).cpu().numpy())
    there = {
        f"{one.parent.name}/{one.name}" for one in (tmp_path / "cache").glob("artifacts/*/*/*")
    }
    assert there == {name for name in names(saved) if name.startswith(("kernels/", "engines/"))}


def test_another_gpu(f: CompiledModule, saved: Path, tmp_path: Path) -> None:
    """Its kernels and engines are not this one's: both are made again."""
    foreign = {name: b"none" for name in names(saved) if name.startswith(("kernels/", "engines/"))}
    file = changed(saved, tmp_path / "other.golow", foreign)
    origin = {"golow": "0", "torch": "0", "library": "cuDNN 8", "processor": "another GPU"}
    file = with_manifest(file, tmp_path / "another.golow", origin=origin, tuned=True)
    g = load_compiled(file, cache=tmp_path / "cache")
    assert g.check().matches
    assert "engines were chosen again: it was built on another GPU with cuDNN 8" in g.notes[0]
    assert torch.allclose(g(X.cuda()), f(X.cuda()), atol=1e-4)


def test_other_weights(saved: Path) -> None:
    other = network(seed=7).cuda()
    wanted = compiled(other, X.cuda(), batch=[1, 2, 4])(X.cuda())
    g = load_compiled(saved)
    context = g.context()
    g.load_weights({name: item.cpu() for name, item in other.state_dict().items()})
    assert torch.equal(g(X.cuda()), wanted)
    assert torch.equal(context(X.cuda()), wanted)
    assert not g.check().matches


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(tmp_path: Path, dtype: torch.dtype) -> None:
    module, x = network().cuda().to(dtype), X.cuda().to(dtype)
    f = compiled(module, x)
    f.save(tmp_path / "half.golow")
    g = load_compiled(tmp_path / "half.golow")
    assert torch.equal(g(x), f(x))
    assert g.check().matches


def test_tuned_engines_are_in_the_file(tmp_path: Path) -> None:
    f = compiled(network().cuda(), X.cuda(), tune=True)
    f.save(tmp_path / "tuned.golow")
    g = load_compiled(tmp_path / "tuned.golow", cache=tmp_path / "cache")
    assert g.manifest.tuned
    assert g.notes == ()
    assert torch.equal(g(X.cuda()), f(X.cuda()))


def test_an_artifact_that_does_not_run_elsewhere_is_not_written(
    f: CompiledModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(GolowError, match="does not run in a new process"):
        f.save(tmp_path / "model.golow")
    assert list(tmp_path.iterdir()) == []
