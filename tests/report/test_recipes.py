"""Lines to paste below tables, on pages and in advice: they run, in training too, and each stands
with what it was measured to save."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
import torch
from rich.console import Console
from torch import nn

from golow.programs.auditing.audit_record import AuditedLevel
from golow.programs.profiling.profile_record import Finding, LevelProfile, Profile
from golow.records.comparison import Comparison, Quantity, Run
from golow.records.workload import Optimizer
from golow.report.audit.setting import setting_lines
from golow.report.comparison.advice import offers
from golow.report.comparison.formats import to_html, to_markdown
from golow.report.comparison.table import render
from golow.report.page import comparison as page
from golow.report.page import profile as profile_page
from golow.report.profiling.advice import render_advice, to_paste
from golow.report.recipes import lines_to_paste
from support.records import audits
from support.records.audits import price, ratio, run

EAGER = run("eager", ratio(1.0, "same"), seconds=0.04)


def workload(**changes: Any) -> Any:
    return msgspec.structs.replace(audits.workload(model="lenet5"), **changes)


def compared(*runs: Run, mode: str = "train") -> Comparison:
    return Comparison(
        format_version=1, id="c", created="", workload=workload(mode=mode, threads=1),
        race=audits.RACE, runs=(EAGER, *runs),
    )  # fmt: skip


def pasted(level: str, mode: str = "train", **changes: Any) -> str:
    found = lines_to_paste(workload(mode=mode, **changes), level)
    return found.lines if found else ""


# ---------------------------------------------------------------- every level


def test_a_training_step_of_a_direct_level_is_golows_line() -> None:
    assert pasted("onednn", threads=4000) == (
        "step = golow.compile_step(model, loss, optimizer=optimizer, example=(x, y), threads=4000)"
    )
    tuned = pasted("cudnn:autotune", device="cuda", precision="bf16", threads=4000)
    assert "tune=True" in tuned and 'precision="bf16"' in tuned
    assert "clip=0.5, " in pasted("onednn", optimizer=Optimizer(clip=0.5), threads=4000)


def test_what_golow_does_not_hand_over_has_the_frameworks_lines_or_a_command() -> None:
    assert pasted("compile") == "model = torch.compile(model, dynamic=False)"
    assert "channels_last" in pasted("eager:channels_last")
    assert "torch.cuda.CUDAGraph()" in pasted("cudagraph", device="cuda")
    assert pasted("jax").startswith("golow lower lenet5")
    assert pasted("libtorch").startswith("golow emit lenet5")
    assert "relax" in pasted("tvm", "infer")
    assert pasted("eager") == pasted("a_worker_of_mine") == ""


def test_alternatives_are_set_below_the_lines_of_their_level() -> None:
    said = "# fused_sgd: torch.optim.SGD(model.parameters(), ..., fused=True)"
    assert pasted("eager+fused_sgd") == said
    assert pasted("compile+fused_sgd") == f"{pasted('compile')}\n{said}"
    assert pasted("eager+flush_denormals").startswith("torch.set_flush_denormal(True)")
    assert pasted("onednn+flush_denormals") == ""


@pytest.mark.parametrize(
    "level",
    [
        "eager:channels_last",
        "torchscript",
        pytest.param("compile", marks=pytest.mark.slow),
    ],
)
def test_the_lines_for_a_training_script_train_the_same_network(level: str) -> None:
    def trained(lines: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
        parameters = list(model.parameters())
        names: dict[str, Any] = {"torch": torch, "model": model, "x": torch.randn(2, 3, 8, 8)}
        exec(lines, names)  # noqa: S102  # golow's own lines
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            names["model"](names["x"]).square().mean().backward()
            optimizer.step()
        return [one.detach() for one in parameters]

    for one, other in zip(trained(""), trained(pasted(level)), strict=True):
        torch.testing.assert_close(one, other)


# ---------------------------------------------------------------- with what they save

FASTER = (
    run("onednn", ratio(0.25, "faster"), seconds=0.01),
    run("compile", ratio(0.5, "faster"), seconds=0.02),
    run("jax", ratio(0.6, "faster"), seconds=0.024),
    run("eager:channels_last", ratio(0.9, "faster"), seconds=0.036),
    run("torchscript", ratio(0.95, "unclear"), seconds=0.038),
)


def test_a_comparison_in_training_offers_lines_for_a_script_as_it_is() -> None:
    first, *others = offers(compared(*FASTER))
    assert first.said == "" and first.recipe.lines.startswith("step = golow.compile_step(")
    assert [one.said for one in others] == [
        "In a training script as it is, compile saves 50%, 20.0 ms of 40.0 ms:",
        "In a training script as it is, eager:channels_last saves 10%, 4.00 ms of 40.0 ms:",
    ]
    assert len(offers(compared(*FASTER, mode="infer"))) == 1
    assert offers(compared(FASTER[-1])) == []


def test_every_output_of_a_comparison_has_the_offers() -> None:
    found = compared(*FASTER)
    text = io.StringIO()
    render(found, Console(file=text, width=100))
    [answer, *_] = page.sections(found, "r0")
    on_page = "\n".join(str(block.get("text", "")) for block in answer["blocks"])
    for shown in (text.getvalue(), to_markdown(found, ()), to_html(found, ()), on_page):
        for said, recipe in offers(found):
            assert recipe.lines.splitlines()[0] in shown
            assert said.removesuffix(":").split(", ")[-1] in shown


def test_an_audit_of_a_training_step_has_the_line_of_its_level() -> None:
    level = AuditedLevel(
        level="compile",
        run=run("compile", ratio(1.0, "same"), seconds=0.02),
        prices=(price("optimizer_kernels", "fused_sgd", 0.5, level="compile"),),
    )
    found = msgspec.structs.replace(audits.EVERYTHING, workload=workload(mode="train"))
    said = "\n".join(setting_lines(found, level, 96))
    assert "0.500 of the time, saves 10.0 ms of 20.0 ms" in said
    assert "level   model = torch.compile(model, dynamic=False)" in said
    assert "Python  torch.optim.SGD(model.parameters(), ..., fused=True)" in said


def finding(name: str, **more: Any) -> Finding:
    figures = {"step": 0.04, "faster step": 0.02, "ratio": 0.5, "share": 0.2, "seconds": 0.01}
    made = tuple(Quantity(name=key, unit="", value=value) for key, value in figures.items())
    return Finding(name=name, level="eager", figures=made, gain=0.01, **more)


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (finding("lower level", faster="compile"), "model = torch.compile(model, dynamic=False)"),
        (finding("pageable copies"), "loader = DataLoader(samples, ..., pin_memory=True)"),
        (
            finding("no tensor cores", reason="ieee"),
            'torch.set_float32_matmul_precision("high")',
        ),
        (finding("no tensor cores", reason="sizes"), ""),
    ],
)
def test_a_profiles_advice_has_the_line_in_the_terminal_and_on_the_page(
    found: Finding, line: str
) -> None:
    step = workload(mode="train", threads=1)
    assert to_paste(found, step) == line
    text = io.StringIO()
    render_advice([found], step, Console(file=text, width=100))
    levels = (LevelProfile(level="eager", verdict="match"),)
    made = Profile(workload=step, levels=levels, findings=(found,))
    [why, *_] = profile_page.sections((made,), "r0")
    codes = [block["text"] for block in why["blocks"] if block["kind"] == "code"]
    assert line in text.getvalue()
    assert codes == ([line] if line else [])
