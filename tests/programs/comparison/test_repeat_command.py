"""The commands of findings: each names its whole workload, and runs."""

from __future__ import annotations

import io
import shlex
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from golow.programs.comparison.repeat_command import again
from golow.programs.profiling import advice, store
from golow.records.workload import ModelSource
from golow.report.command import command_lines
from golow.report.profiling.table import render
from golow.workload.request import CALLERS_INPUTS
from support.command import golow
from support.records.profiles import level, profile
from support.records.saved_profile import saved_profile

pytestmark = [pytest.mark.usefixtures("forked"), pytest.mark.slow]


def test_a_command_names_the_whole_workload() -> None:
    plain = profile([level()], model="resnet18", device="cuda", precision="bf16").workload
    workload = msgspec.structs.replace(
        plain,
        source=ModelSource(kind="file", name="/a b/net.py", attribute="Net"),
        loss="mse_loss",
        initialisation="kaiming, seed 0",
        threads=4000,
    )
    assert again("profile", workload, "--by", "kernel", levels=("eager",), batch=16) == (
        "golow profile '/a b/net.py:Net' --mode train --input 3x64x64 --loss mse_loss --batch 16 "
        "--init kaiming --device cuda --precision bf16 --threads 4000 --levels eager --by kernel"
    )
    lines = command_lines(again("profile", workload, levels=("eager",)), 60)
    assert max(map(len, lines)) <= 60
    joined = " ".join(line.removesuffix("\\") for line in lines)
    assert shlex.split(joined) == shlex.split(again("profile", workload, levels=("eager",)))


@pytest.mark.parametrize(
    "fields",
    [
        {"source": ModelSource(kind="pickle", name="Net")},
        {"data": CALLERS_INPUTS},
        {"loss": "a_function_of_mine"},
        {"inputs": ()},
    ],
)
def test_what_a_command_line_cannot_name_has_none(fields: dict[str, object]) -> None:
    workload = profile([level()]).workload
    assert again("compare", workload) != ""
    assert again("compare", msgspec.structs.replace(workload, **fields)) == ""
    assert again("compare", workload, levels=("a_worker_of_mine",)) == ""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a real profile, saved."""
    return saved_profile(tmp_path_factory.getbasetemp())[1]


def test_a_real_profile_keeps_its_findings_and_shows_them(real: Path) -> None:
    [made] = store.load(real)
    assert made.findings == advice.findings(made)
    text = io.StringIO()
    render([made], top=1, console=Console(file=text, width=100))
    assert max(map(len, text.getvalue().splitlines())) <= 100
    assert ("What to do about it" in text.getvalue()) == bool(made.findings)


def test_the_commands_run(real: Path, tmp_path: Path) -> None:
    [made] = store.load(real)
    for command in (
        again("emit", made.workload, "--out", str(tmp_path / "project")),
        again("lower", made.workload, "--level", "onednn"),
        again("profile", made.workload, "--steps", "1", "--time-limit", "0.2", levels=("eager",)),
    ):
        done = golow(*shlex.split(command)[1:])
        assert done.status == 0, done.error
