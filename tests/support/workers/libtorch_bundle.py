"""Bundles for the tests of the level libtorch, written by hand, and eager's word on them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from golow.lower.aten.translation import Captured
from golow.records.record import encode
from golow.records.workload import ModelSource, Optimizer, TensorType, Workload
from support.models import optimizers

Loss = Callable[..., Tensor]
Batch = tuple[Tensor, Tensor]


def workload(mode: str, batches: list[Batch], optimizer: Optimizer | None = None) -> Workload:
    image = batches[0][0]
    return Workload(
        model="test",
        source=ModelSource(kind="pickle", name="test"),
        mode=mode,  # type: ignore[arg-type]
        batch=image.shape[0],
        inputs=(TensorType(shape=tuple(image.shape), dtype="float32"),),
        optimizer=optimizer or Optimizer(),
        batches=len(batches),
    )


def write_bundle(
    folder: Path, module: nn.Module, captured: Captured, described: Workload, batches: list[Batch]
) -> Path:
    """The files of the bundle that a worker without Python reads."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "workload.json").write_bytes(encode(described))
    tensors = {f"{i}/input/0": image for i, (image, _) in enumerate(batches)}
    if captured.graph.mode == "train":
        tensors |= {f"{i}/target/0": target for i, (_, target) in enumerate(batches)}
    for name, content in (
        ("weights", module.state_dict()),
        ("constants", captured.constants),
        ("batches", tensors),
    ):
        copied = {k: v.detach().clone() for k, v in content.items()}
        save_file(copied, folder / f"{name}.safetensors")
    return folder


def eager_inference(module: nn.Module, batches: list[Batch]) -> dict[str, Tensor]:
    """What the protocol's `outputs` must hold, by plain PyTorch."""
    found = {}
    with torch.inference_mode():
        for step, (image, _) in enumerate(batches):
            for index, output in enumerate(copy.deepcopy(module).eval()(image)):
                found[f"{step}/output/{index}"] = output.clone()
    return found


def eager_training(
    module: nn.Module, batches: list[Batch], loss: Loss, optimizer: Optimizer
) -> dict[str, Tensor]:
    """The same for training steps, dropout off."""
    module = copy.deepcopy(module).train()
    for child in module.modules():
        if isinstance(child, nn.Dropout):
            child.p = 0.0
    updating = optimizers.in_torch(optimizer, module.parameters())
    before = {k: v.clone() for k, v in module.state_dict().items()}
    found = {}
    for step, (image, target) in enumerate(batches):
        updating.zero_grad()
        outputs = module(image)
        value = loss(outputs, target)
        value.backward()
        optimizers.clip(optimizer, module.parameters())
        found[f"{step}/loss/loss"] = value.detach()
        for index, output in enumerate(outputs):
            found[f"{step}/output/{index}"] = output.detach()
        trained = {k: p for k, p in module.named_parameters() if p.grad is not None}
        if step == 0:
            found |= {f"0/gradient/{k}": p.grad.clone() for k, p in trained.items()}
        updating.step()
        for name, buffer in module.named_buffers():
            if name in before and not torch.equal(buffer, before[name]):
                found[f"{step}/buffer/{name}"] = buffer.clone()
    for name, parameter in trained.items():
        found[f"{step}/parameter/{name}"] = parameter.detach()
    for name, tensor in optimizers.kept(optimizer, updating, module):
        found[f"{step}/{name}"] = tensor
    return found
