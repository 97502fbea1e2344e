"""Standard output in a pipe: golow's own output and nothing else, as wide as COLUMNS says."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from golow import cli
from golow.levels.choices import all_choices
from golow.levels.ladder import LADDER
from golow.report.console import WIDTH, wide_console
from support.command import golow

NOISY = """
import os

import torch

print("noise of Python")
os.system("echo noise of a program")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        os.write(1, b"noise of C\\n")
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x):
        print("noise of a pass")
        return self.layer(x)
"""
SMALL = ("noisy.py:Net", "--input", "4")
FAST = ("--levels", "eager", "--threads", "1", "--time-limit", "0.1")
COMMANDS = {
    "emit": ("emit", *SMALL, "--out", "emitted"),
    "build": ("build", *SMALL, "--out", "net.golow"),
    "lower": ("lower", *SMALL, "--level", "onednn", "--show"),
    "support": ("levels", "--support", *SMALL, "--json", "-"),
    "compare": ("compare", *SMALL, *FAST, "--json", "-"),
}


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_model_prints_goes_to_standard_error(
    tmp_path: Path,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["golow", *COMMANDS[command]])
    with contextlib.suppress(SystemExit):
        cli.main()
    output, error = capfd.readouterr()
    assert output and "noise" not in output, error
    for source in ("Python", "a program", "C", "a pass"):
        assert f"noise of {source}" in error
    if "--json" in COMMANDS[command]:
        json.loads(output)


@pytest.mark.parametrize(
    ("columns", "wide"),
    [
        ("60", 60),
        ("90", 90),
        ("500", WIDTH),
        (None, WIDTH),
        ("", WIDTH),
        ("0", WIDTH),
        ("x", WIDTH),
    ],
)
def test_a_pipe_is_as_wide_as_columns_says(
    columns: str | None, wide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    ended = golow("levels")
    assert max(map(len, ended.output.splitlines())) == wide


def test_standard_error_is_as_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    assert wide_console(stderr=True).width == wide_console().width == 72


def test_names_of_levels_are_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ended = golow("levels")
    names = {f"{level.name}:{variant}" for level in LADDER for variant in level.variants}
    assert names <= {line.partition(" ")[0] for line in ended.output.splitlines()}
    assert "…" not in ended.output


def test_names_of_alternatives_are_never_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = golow("choices").output.split()
    assert {choice.name for choice in all_choices()} <= set(words)
    named = {f"+{one.name}" for choice in all_choices() for one in choice.alternatives}
    assert named <= set(words)


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_closed_stream_leads_nowhere(closed: str, tmp_path: Path) -> None:
    """As a daemon starts its programs."""
    code = "from golow.__main__ import main; main()"
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", code, "levels"]
    done = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ""
