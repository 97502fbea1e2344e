"""Networks on the GPU, and their C++ projects, written and built once for all tests of a run."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import golow
from golow.compiled.compiled_module import CompiledModule
from golow.levels.called.emission import write_called
from golow.levels.called.emitted_library import EmittedLibrary, EmittedNetwork
from golow.levels.called.project_building import build_project
from golow.models.vision_transformer import VisionTransformer
from golow.records.workload import Precision
from support import one_run
from support.direct import emitted_projects
from support.direct.emitted_projects import Adding, drawn


class Logits(nn.Module):
    """A language model from transformers, as a function of identifiers alone."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, identifiers: Tensor) -> Tensor:
        found: Tensor = self.model(input_ids=identifiers, use_cache=False).logits
        return found


class Attending(nn.Module):
    """Causal attention of 128 positions, for which cuDNN has an engine in 16 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.outputs = nn.Linear(128, 384), nn.Linear(128, 128)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        heads = self.inputs(x).view(rows, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*heads.unbind(), is_causal=True)
        y: Tensor = self.outputs(mixed.transpose(1, 2).reshape(x.shape))
        return y


class Case(NamedTuple):
    """A network on the CPU: its example, the batches to write (None: that of the example alone),
    and the precision."""

    module: nn.Module
    example: tuple[Tensor, ...]
    batch: list[int] | None
    precision: Precision = "default"


NAMES = (
    "lenet5", "resnet18", "resnet18_bf16", "transformer", "transformer_fp16", "attention",
    "attention_fp16", "vit", "adding",
)  # fmt: skip


@cache
def case(name: str) -> Case:
    torch.manual_seed(0)
    if name in ("lenet5", "resnet18"):
        module, example, batch = emitted_projects.case(name)
        return Case(module, (example,), batch)
    if name == "resnet18_bf16":
        return case("resnet18")._replace(precision="bf16")
    if name in ("transformer", "transformer_fp16"):
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, activation="gelu")
        precision: Precision = "fp16" if name.endswith("fp16") else "default"
        return Case(layer.eval(), (drawn(2, 16, 64),), [1, 2], precision)
    if name in ("attention", "attention_fp16"):
        of: Precision = "fp16" if name.endswith("fp16") else "default"
        return Case(Attending().eval(), (drawn(2, 128, 128),), [1, 2], of)
    if name == "vit":
        network = VisionTransformer(3, 10, 32, layers=2).eval()
        return Case(network, (drawn(3, 3, 32, 32),), None)
    if name == "adding":
        return Case(Adding().eval(), (drawn(4, 8), drawn(4, 8, seed=2)), None)
    return Case(llama(), (torch.arange(32).reshape(2, 16) % 50,), [1, 2], "bf16")


def llama() -> nn.Module:
    """A small Llama. Raises ImportError without transformers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=96, max_position_embeddings=64,
    )  # fmt: skip
    return Logits(LlamaForCausalLM(config)).eval()


@cache
def compiled(name: str) -> CompiledModule:
    module, example, batch, precision = case(name)
    return golow.compile(  # type: ignore[return-value]
        module.cuda(), tuple(item.cuda() for item in example), batch=batch, precision=precision,
        level="cudnn", quiet=True,
    )  # fmt: skip


@cache
def project(name: str) -> Path:
    """The folder of a project, built."""
    with one_run.one_at_a_time(one_run.own_folder(), f"emitted-on-gpu-{name}") as folder:
        if not (folder / "done").exists():
            write_called(compiled(name), name, folder / "project")
            build_project(folder / "project", "cudnn")
            (folder / "done").touch()
        return folder / "project"


@cache
def library(name: str) -> EmittedLibrary:
    return EmittedLibrary(project(name) / "build" / f"lib{name}.so", name)


def network(name: str) -> EmittedNetwork:
    return EmittedNetwork(library(name), project(name) / "weights.safetensors")


def inputs(name: str, rows: int, seed: int) -> tuple[Tensor, ...]:
    """Other inputs of that many rows, on the GPU."""
    found = []
    for place, item in enumerate(case(name).example):
        if item.is_floating_point():
            found.append(drawn(rows, *item.shape[1:], seed=seed + place).cuda())
        else:
            found.append(((item[:1] + seed) % 50).expand(rows, -1).contiguous().cuda())
    return tuple(found)


def enqueued(
    network: EmittedNetwork, given: tuple[Tensor, ...], like: list[Tensor]
) -> list[Tensor]:
    """What the network makes of tensors on the GPU, on torch's stream."""
    outputs = [torch.full_like(item, torch.nan) for item in like]
    ends = [item.data_ptr() for item in given], [item.data_ptr() for item in outputs]
    network.enqueue(len(given[0]), *ends, torch.cuda.current_stream().cuda_stream)
    return outputs


def ran(name: str, given: Mapping[str, Tensor], scratch: Path, *options: str) -> Any:
    """Run the program of a project on inputs, in a file; return how it ended and its outputs."""
    folder, made = project(name), scratch / "out.safetensors"
    save_file({key: item.cpu() for key, item in given.items()}, scratch / "in.safetensors")
    files = [folder / "weights.safetensors", scratch / "in.safetensors", made]
    answer = subprocess.run(
        [folder / "build" / f"{name}_run", *files, *options], capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    return answer, list(load_file(made).values()) if made.exists() else []


def assert_same(found: list[Tensor], wanted: list[Tensor], what: str) -> None:
    """The same bits; a failure says how many differ, and how far."""
    assert len(found) == len(wanted), what
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        one, other = one.cpu(), other.cpu()
        assert (one.shape, one.dtype) == (other.shape, other.dtype), f"{what}, output {place}"
        if torch.equal(one, other):
            continue
        differ = (one != other).sum().item()
        far = (one.double() - other.double()).abs()
        raise AssertionError(
            f"{what}, output {place}: {differ} of {one.numel()} differ, by at most {far.max()} "
            f"(nan: {one.isnan().sum().item()}); the largest is {other.double().abs().max()}; "
            f"found {one.flatten()[:8].tolist()}, wanted {other.flatten()[:8].tolist()}"
        )
