"""The level libtorch trains in half precision as eager does under autocast."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.libtorch.level import prepare
from golow.lower.capture.capture import capture_training
from golow.lower.ir.graph import encode_graph
from golow.records.workload import Optimizer
from golow.workload.bundle import Bundle
from support.one_run import program_cache
from support.workers.libtorch_bundle import Batch, workload, write_bundle
from support.workers.protocol_driver import RawWorker

pytestmark = pytest.mark.slow


class Trained(nn.Module):
    """What a training step in half precision has casts for, and both outputs of an iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


STEPS: list[Batch] = [
    (torch.randn(4, 3, 16, 16, generator=generator), torch.randint(5, (4,), generator=generator))
    for generator in (torch.Generator().manual_seed(i) for i in range(2))
]
OPTIMIZER = Optimizer(learning_rate=0.1, momentum=0.9, weight_decay=0.01)


def trained_loss(output: Tensor, target: Tensor) -> Tensor:
    # Widened by hand, because autocast on a CPU leaves the loss in half precision.
    return functional.cross_entropy(output.float(), target)


HALVES = ["bf16", "fp16"]


@pytest.fixture(scope="module")
def training(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, nn.Module]:
    """A program that trains in half precision, its bundle, and the module."""
    torch.manual_seed(0)
    module = Trained()
    (image, target), folder = STEPS[0], tmp_path_factory.mktemp(request.param)
    captured = capture_training("trained", module, (image,), (target,), trained_loss)
    described = msgspec.structs.replace(
        workload("train", STEPS, OPTIMIZER), precision=request.param
    )
    bundle = write_bundle(folder / "bundle", module, captured, described, STEPS)
    (bundle / "graph.json").write_bytes(encode_graph(captured.graph))
    cache = program_cache(tmp_path_factory.getbasetemp())
    return Path(prepare(Bundle(bundle), "", cache).command[0]), bundle, module


def autocast_outputs(module: nn.Module, half: torch.dtype) -> dict[str, Tensor]:
    """Two steps of eager under autocast; in float16 the loss is scaled, which changes no digit as
    long as nothing underflows."""
    module = copy.deepcopy(module).train()
    sgd = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    scale = 1024.0 if half == torch.float16 else 1.0
    found = {}
    for step, (image, target) in enumerate(STEPS):
        with torch.autocast("cpu", half):
            output = module(image)
            value = trained_loss(output, target)
        sgd.zero_grad()
        (value * scale).backward()
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None
            parameter.grad /= scale
            if step == 0:
                found[f"0/gradient/{name}"] = parameter.grad.clone()
        sgd.step()
        found |= {f"{step}/loss/loss": value.detach(), f"{step}/output/0": output.detach().float()}
        found |= {f"{step}/buffer/{name}": b.clone() for name, b in module.named_buffers()}
    for name, parameter in module.named_parameters():
        found[f"1/parameter/{name}"] = parameter.detach()
        found[f"1/momentum/{name}"] = sgd.state[parameter]["momentum_buffer"]
    return found


@pytest.mark.parametrize("training", HALVES, indirect=True)
def test_training_in_half_precision_is_eagers_under_autocast(
    training: tuple[Path, Path, nn.Module], tmp_path: Path
) -> None:
    program, bundle, module = training
    precision = Bundle(bundle).workload.precision
    file = tmp_path / "o.safetensors"
    with RawWorker([program]) as worker:
        assert worker.request(do="load", bundle=str(bundle))["ok"]
        assert len(worker.request(do="time", iterations=3, warmup=1)["host_ns"]) == 3
        asked = {"batches": [0, 1], "learning_rate": 0.1, "file": str(file)}
        assert worker.request(do="outputs", **asked) == {"ok": True}
    found = load_file(file)
    half = torch.bfloat16 if precision == "bf16" else torch.float16
    wanted = autocast_outputs(module, half)
    assert sorted(found) == sorted(wanted)
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype
        torch.testing.assert_close(found[name], tensor, rtol=2e-3, atol=2e-5, msg=name)
    exact = copy.deepcopy(module).train()(STEPS[0][0])
    assert not torch.allclose(found["0/output/0"], exact, rtol=1e-5)


@pytest.mark.parametrize("training", ["fp16"], indirect=True)
def test_the_loss_scale_is_kept_with_the_state(
    training: tuple[Path, Path, nn.Module], tmp_path: Path
) -> None:
    program, bundle, _ = training
    first, second = tmp_path / "first", tmp_path / "second"
    with RawWorker([program]) as worker:
        assert worker.request(do="load", bundle=str(bundle))["ok"]
        worker.request(do="time", iterations=3, warmup=0)
        assert worker.request(do="save", file=str(first)) == {"ok": True}
        saved = load_file(first)
        scaler = {name: saved[name] for name in saved if name.startswith("scaler/")}
        # Half of what the first steps settled on, which here is what a training begins with.
        assert scaler["scaler/scale"].tolist() == [2.0**15]
        assert scaler["scaler/good_steps"].tolist() == [3]
        save_file(saved | {"scaler/scale": torch.tensor([256.0])}, second)
        assert worker.request(do="restore", file=str(second)) == {"ok": True}
        worker.request(do="time", iterations=1, warmup=0)
        worker.request(do="save", file=str(first))
    again = load_file(first)
    assert again["scaler/scale"].tolist() == [256.0]
    assert again["scaler/good_steps"].tolist() == [4]


@pytest.mark.parametrize("training", ["fp16"], indirect=True)
def test_a_step_whose_gradients_overflow_is_skipped(
    training: tuple[Path, Path, nn.Module], tmp_path: Path
) -> None:
    program, bundle, _ = training
    first, changed, second, third = (tmp_path / name for name in ("1", "1-large", "2", "3"))
    with RawWorker([program]) as worker:
        assert worker.request(do="load", bundle=str(bundle))["ok"]
        worker.request(do="save", file=str(first))
        before = load_file(first)
        save_file(before | {"scaler/scale": torch.tensor([2.0**40])}, changed)
        worker.request(do="restore", file=str(changed))
        worker.request(do="time", iterations=1, warmup=0)
        worker.request(do="save", file=str(second))
        worker.request(do="time", iterations=40, warmup=0)
        worker.request(do="save", file=str(third))
    after, learnt = load_file(second), load_file(third)
    assert after["scaler/scale"].tolist() == [2.0**39]
    assert after["scaler/good_steps"].tolist() == [0]
    for name, tensor in before.items():
        if name.startswith("parameter/"):
            assert torch.equal(after[name], tensor), name
    assert not torch.equal(learnt["parameter/head.weight"], before["parameter/head.weight"])
    assert all(torch.isfinite(tensor).all() for tensor in learnt.values())


@pytest.mark.parametrize("training", ["fp16"], indirect=True)
def test_gradients_that_are_never_finite_are_said(
    training: tuple[Path, Path, nn.Module], tmp_path: Path
) -> None:
    program, bundle, _ = training
    broken = tmp_path / "bundle"
    shutil.copytree(bundle, broken)
    weights = load_file(broken / "weights.safetensors")
    save_file(weights | {"head.bias": torch.full((5,), torch.nan)}, broken / "weights.safetensors")
    with RawWorker([program]) as worker:
        answer = worker.request(do="load", bundle=str(broken))
        assert "use --precision bf16" in answer["message"]
        assert worker.request(do="load", bundle=str(bundle))["ok"]


@pytest.mark.parametrize("training", ["bf16"], indirect=True)
def test_bf16_has_no_loss_scale(training: tuple[Path, Path, nn.Module], tmp_path: Path) -> None:
    program, bundle, _ = training
    with RawWorker([program]) as worker:
        assert worker.request(do="load", bundle=str(bundle))["ok"]
        worker.request(do="save", file=str(tmp_path / "state"))
    assert not [name for name in load_file(tmp_path / "state") if name.startswith("scaler/")]


@pytest.mark.parametrize("training", HALVES, indirect=True)
def test_a_program_for_another_precision_is_refused(
    training: tuple[Path, Path, nn.Module], tmp_path: Path
) -> None:
    program, bundle, _ = training
    other = tmp_path / "bundle"
    shutil.copytree(bundle, other)
    described = json.loads((other / "workload.json").read_text())
    (other / "workload.json").write_text(json.dumps(described | {"precision": "default"}))
    with RawWorker([program]) as worker:
        answer = worker.request(do="load", bundle=str(other))
    assert answer["message"] == "the program was built for another precision than the bundle's"
