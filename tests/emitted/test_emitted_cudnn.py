"""Projects of `golow emit --level cudnn`, built and run without a GPU: `gpu_stand_in.cpp` is the
driver, and both libraries."""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from golow.levels.called.emitted_library import EmittedLibrary, EmittedNetwork
from golow.levels.called.project_building import missing
from golow.levels.direct.cudnn.emit.project import project_texts, write_project
from golow.records.errors import GolowError
from support import one_run
from support.direct.emitted_on_host import build, machine, network_of, uncompiled
from support.direct.emitted_projects import Sequences, drawn

built = [
    pytest.mark.slow,
    pytest.mark.skipif(missing("cudnn") is not None, reason="CUDA's headers are not installed"),
]


class Residual(nn.Module):
    """Convolutions with a folded norm and a residual, and a product with each kind of operand."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.head, self.last = nn.Linear(8, 16), nn.Linear(16, 5, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.first(x)).relu()
        y = (y + self.second(y)).relu()
        y = self.head(y.mean((2, 3)))
        z: Tensor = self.last(nn.functional.gelu(y)) + torch.arange(5)
        return z


class Masked(nn.Module):
    """Causal attention, whose mask is computed while weights are loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inputs, self.outputs = (
            nn.LayerNorm(16),
            nn.Linear(16, 48),
            nn.Linear(16, 16),
        )

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        heads = self.inputs(self.norm(x)).view(rows, length, 3, 2, width // 2)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind()
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        y: Tensor = x + self.outputs(mixed.transpose(1, 2).reshape(x.shape))
        return y


def module(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    if name == "attention":
        return Masked().eval(), drawn(3, 6, 16)
    made = Residual().eval()
    nn.init.uniform_(made.norm.running_mean, -0.1, 0.1)
    nn.init.uniform_(made.norm.running_var, 0.5, 1.5)
    return made, drawn(3, 3, 8, 8)


NAMES = ("residual", "attention")


@cache
def network(name: str) -> Any:
    return network_of(name, *module(name), [1, 3])


@cache
def project(name: str) -> Path:
    with one_run.one_at_a_time(one_run.own_folder(), f"emitted-cudnn-{name}") as folder:
        if not (folder / "done").exists():
            write_project(network(name), machine(), folder / "project")
            build(folder / "project")
            (folder / "done").touch()
        return folder / "project"


def run(name: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    folder = project(name)
    files = [folder / f"{end}.safetensors" for end in ("weights", "example", "outputs")]
    return subprocess.run(
        [folder / "build" / f"{name}_run", *files, *options], capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], **environment}, check=False, timeout=300,
    )  # fmt: skip


def enqueued(made: EmittedNetwork, x: Tensor, like: Tensor) -> Tensor:
    output = torch.full_like(like, torch.nan)
    made.enqueue(len(x), [x.data_ptr()], [output.data_ptr()], 0)
    return output


# ---------------------------------------------------------------- what is written


@cache
def texts(name: str) -> dict[str, str]:
    return project_texts(network(name), uncompiled())


def test_every_step_names_its_layer() -> None:
    plan = texts("residual")["plan_3.cpp"]
    layers = re.findall(r'plan\.layer\("([^"]*)", "([^"]*)"\);', plan)
    assert ("first + norm", "convolution") in layers
    assert ("output 0", "copy") in layers
    fill = 'folded_weight(weight("first.weight"), weight("norm.weight"), weight("norm.running_var")'
    assert fill in plan


def test_a_mask_is_computed_while_weights_are_loaded() -> None:
    plan = texts("attention")["plan_3.cpp"]
    assert "plan.load(kernel_" in plan
    assert "plan.once(" in plan


def test_sizes_share_kernels_and_constants() -> None:
    """Constants of both have the same keys, and a kernel is there once."""
    written = texts("residual")
    keys = [set(re.findall(r"constant\((\d+),", written[f"plan_{n}.cpp"])) for n in (1, 3)]
    assert keys[0] == keys[1]
    sources = [content for name, content in written.items() if name.endswith(".cu")]
    assert len(sources) == len(set(sources))
    kernels = re.findall(r"kernel_\d+ = (\{.*\});", written["kernels.h"])
    assert len(kernels) == len(set(kernels))


def test_recurrent_networks_by_the_library_are_refused() -> None:
    lstm = Sequences().eval()
    lstm.forward = lambda x: lstm.head(lstm.rnn(x)[0])  # type: ignore[method-assign]
    with pytest.raises(GolowError, match="recurrent_layers of rnn by cuDNN's recurrent networks"):
        project_texts(network_of("lstm", lstm, drawn(3, 7, 16), []), uncompiled())


# ---------------------------------------------------------------- what is built


@pytest.mark.parametrize("name", NAMES)
class TestBuilt:
    pytestmark = built

    def test_the_program_gives_what_the_module_gives(self, name: str) -> None:
        answer = run(name, "--time", "2")
        assert answer.returncode == 0, answer.stderr
        found = load_file(project(name) / "outputs.safetensors")["output"]
        wanted = load_file(project(name) / "expected.safetensors")["output"]
        assert torch.allclose(found, wanted, atol=1e-5)

    def test_its_library_does_at_every_size_and_between(self, name: str) -> None:
        """Twice: memory of an iteration is used again, at other addresses."""
        own, example = module(name)
        loaded = EmittedLibrary(project(name) / "build" / f"lib{name}.so", name)
        made = EmittedNetwork(loaded, project(name) / "weights.safetensors")
        for rows in (1, 2, 3, 2):
            x = drawn(rows, *example.shape[1:], seed=rows)
            wanted = own(x).detach()
            assert torch.allclose(enqueued(made, x, wanted), wanted, atol=1e-5), rows
            host = torch.full_like(wanted, torch.nan)
            made.run(rows, [x.data_ptr()], [host.data_ptr()])
            assert torch.allclose(host, wanted, atol=1e-5), rows
        with pytest.raises(GolowError, match="a batch of 4 is not 1 to 3"):
            made.run(4, [example.data_ptr()], [example.data_ptr()])
        made.close()

    def test_it_takes_other_weights(self, name: str, tmp_path: Path) -> None:
        own, example = module(name)
        for item in own.state_dict().values():
            if item.is_floating_point():
                item.mul_(1.2)
        save_file(own.state_dict(), tmp_path / "weights.safetensors")
        loaded = EmittedLibrary(project(name) / "build" / f"lib{name}.so", name)
        made = EmittedNetwork(loaded, tmp_path / "weights.safetensors")
        wanted = own(example).detach()
        assert not torch.allclose(wanted, cast("Tensor", module(name)[0](example)), atol=1e-3)
        assert torch.allclose(enqueued(made, example, wanted), wanted, atol=1e-5)
        made.close()

    def test_another_gpu_is_refused(self, name: str) -> None:
        answer = run(name, STAND_IN_CAPABILITY="8")
        assert answer.returncode == 2
        assert answer.stderr == (
            f"the GPU is a stand-in (sm_80, 132 multiprocessors); {name} was written for a "
            "stand-in (sm_90, 132 multiprocessors): write it again here with golow emit\n"
        )

    def test_another_version_of_a_library_is_refused(self, name: str) -> None:
        answer = run(name, STAND_IN_CUBLAS="130100")
        assert answer.returncode == 2
        assert "the library is cuBLASLt 130100; " in answer.stderr
