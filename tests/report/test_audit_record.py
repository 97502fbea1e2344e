"""The record of an audit: what is saved is read back, and what was changed is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golow.api import load_audit
from golow.programs.auditing import store
from golow.records.errors import GolowError
from support.records.audits import (
    AUDITS,
    EVERYTHING,
    HOSTILE,
)


@pytest.mark.parametrize("name", sorted(AUDITS.keys() - {"hostile names"}))
def test_what_is_saved_is_read_back(name: str, tmp_path: Path) -> None:
    folder = store.save(AUDITS[name], tmp_path)
    assert store.FILE.is_at(folder) and store.FILE.is_at(folder / "audit.json")
    assert load_audit(folder).audit == AUDITS[name]
    assert load_audit(folder / "audit.json").audit == AUDITS[name]


def test_names_that_steer_a_terminal_are_refused(tmp_path: Path) -> None:
    folder = store.save(HOSTILE, tmp_path)
    assert all(file.name.isprintable() for file in folder.iterdir())
    with pytest.raises(GolowError, match="is not a name"):
        load_audit(folder)


def test_raw_samples_lie_in_a_file_for_each_run(tmp_path: Path) -> None:
    folder = store.save(EVERYTHING, tmp_path)
    runs = sorted(file.name for file in folder.iterdir() if file.name != "audit.json")
    assert len(runs) == 2 + 10 + 1
    assert runs[:2] == ["000-eager.json", "001-eager+fused_sgd.json"]
    assert "host_ns" not in (folder / "audit.json").read_text()
    assert "host_ns" in (folder / runs[0]).read_text()


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tree: tree.update(format_version=2), "format version 2; this golow reads 1"),
        (lambda tree: tree.pop("format_version"), "format version None"),
        (lambda tree: tree.pop("levels"), "not an audit"),
        (lambda tree: tree.update(levels={"a": 1}), "not an audit"),
        (lambda tree: tree["levels"][0].update(prices=[1]), "not an audit"),
        (lambda tree: tree["levels"][0].update(run="../eager.json"), "not the name of a file"),
        (lambda tree: tree["levels"][0].update(run="nowhere.json"), "there is no file"),
        (lambda tree: tree["levels"][0].update(run=7), "not an audit"),
        (lambda tree: tree["levels"][1].update(best=[]), "not an audit"),
        (lambda tree: tree["workload"].update(inputs=[]), "its workload has no inputs"),
        (lambda tree: tree["levels"][0]["prices"][0].update(finding="x"), "not an audit"),
        (
            lambda tree: tree["levels"][0]["prices"][0]["confirmed"].update(low=-1.0),
            "a ratio that is not positive",
        ),
    ],
)
def test_a_changed_record_is_refused(change: Change, said: str, tmp_path: Path) -> None:
    folder = store.save(EVERYTHING, tmp_path)
    file = folder / "audit.json"
    tree = json.loads(file.read_text())
    change(tree)
    file.write_text(json.dumps(tree))
    with pytest.raises(GolowError, match=said):
        load_audit(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda run: run.update(level="\x1b[31m"), "is not a name"),
        (lambda run: run.update(time=None), "has a ratio, but no time"),
        (lambda run: run["ratio"].update(value=0.0), "a ratio that is not positive"),
    ],
)
def test_a_changed_run_is_refused(change: Change, said: str, tmp_path: Path) -> None:
    folder = store.save(EVERYTHING, tmp_path)
    file = folder / "001-eager+fused_sgd.json"
    tree = json.loads(file.read_text())
    change(tree)
    file.write_text(json.dumps(tree))
    with pytest.raises(GolowError, match=said):
        load_audit(folder)


def test_a_folder_without_an_audit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GolowError, match="there is no audit in"):
        load_audit(tmp_path)
