"""Levels that other packages bring by an entry point."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from golow.levels.level_selection import choices
from golow.records.errors import GolowError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with three levels: a good one, one that is a number, a broken one."""
    (tmp_path / "their_runtime.py").write_text(
        f"COMMAND = [{sys.executable!r}, '-m', 'their_worker']\nNUMBER = 7\n"
    )
    (tmp_path / "their_broken.py").write_text("raise ImportError('no libthem.so')\n")
    metadata = tmp_path / "their_runtime-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: their-runtime\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[golow.levels]\ntheirs = their_runtime:COMMAND\nnumber = their_runtime:NUMBER\n"
        "broken = their_broken:COMMAND\neager = their_runtime:COMMAND\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("package")
def test_a_level_of_another_package_is_chosen_by_name() -> None:
    found = choices(["torchscript", "theirs"], {}, "infer", "cpu")
    assert [level.name for level in found] == ["eager", "torchscript", "theirs"]
    assert "their_worker" in found[-1].level.summary
    # It hides none of golow's own, and does not run unless it is named.
    assert "their_worker" not in found[0].level.summary
    assert "theirs" not in [level.name for level in choices(None, {}, "infer", "cpu")]


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "words"),
    [("number", "is of type int"), ("broken", r"no libthem\.so"), ("thiers", "thiers")],
)
def test_a_level_that_cannot_be_loaded_is_one_message(name: str, words: str) -> None:
    with pytest.raises(GolowError, match=words):
        choices([name], {}, "infer", "cpu")
