"""What --help shows: groups, defaults, and no line that is wider than the terminal."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

import pytest
from typer.main import get_command

from golow.cli import app
from golow.commands.compare import compare
from golow.commands.load import load
from golow.commands.panels import OPTIONS, PANELS
from golow.commands.splice import splice
from golow.levels.generation.table import LEVELS
from golow.models import ZOO
from support.command import golow

PANEL = re.compile(r"^╭─ (\w+) ─+╮$", re.MULTILINE)


def shown(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """The help in a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    ended = golow(*words, "--help", folder=folder)
    assert ended.status == 0, ended.error
    return ended.output


def test_commands_are_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(tmp_path, monkeypatch)
    assert PANEL.findall(text) == ["Options", "Measure", "Use", "Look", "Machine"]
    named = re.findall(r"^│ ([a-z]+)  ", text, re.MULTILINE)
    assert sorted(named) == sorted(get_command(app).commands)  # type: ignore[attr-defined]


def test_the_list_of_models_has_two_lines_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = golow("models", folder=tmp_path).output.splitlines()
    assert len(lines) == 1 + 2 * len(ZOO)
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert all(f"\n{one.name} " in text and f"\n  {one.summary}" in text for one in ZOO.values())


def test_every_option_of_a_comparison_is_in_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(tmp_path, monkeypatch, "compare")
    assert set(PANEL.findall(text)) == {"Arguments", "Options", *OPTIONS} - {"Load"}
    options = set(signature(splice(compare)).parameters) - {"model"}
    assert options - set(PANELS) == set()


def test_the_options_of_a_load_test_are_in_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(tmp_path, monkeypatch, "load")
    assert set(PANEL.findall(text)) == {"Arguments", "Options", *OPTIONS} - {
        "Race",
        "Training",
        "Quantisation",
    }
    # Those of audits, too, have this name.
    options = set(signature(splice(load)).parameters) - {"model", "seconds"}
    assert options - set(PANELS) == set()


def test_a_default_that_a_text_names_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = " ".join(re.sub(r"[│\s]+", " ", shown(tmp_path, monkeypatch, "compare")).split())
    assert "Batch size. [default: 8]" in text


@pytest.mark.parametrize("command", ["", "compare", "load", "train", "profile", "study run"])
def test_help_fits_into_80_columns(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(tmp_path, monkeypatch, *command.split())
    assert max(map(len, text.splitlines())) <= 80


def test_the_help_names_every_level_that_generates_texts() -> None:
    options = get_command(app).commands["generate"].params  # type: ignore[attr-defined]
    (levels,) = (option for option in options if option.name == "levels")
    assert all(level.name in levels.help for level in LEVELS)
