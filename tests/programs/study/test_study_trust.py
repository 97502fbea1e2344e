"""A study in a folder is data: its models' code runs only if the study is this user's own."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import golow
from golow.programs.study.run import find_study
from golow.programs.study.store import StudyFolder
from golow.programs.study.study_record import CellRecord
from golow.records.errors import GolowError
from golow.records.record import encode
from support.command import golow as run_golow
from support.records import studies
from support.records.studies import records, run


@pytest.fixture
def coded(tmp_path: Path) -> Path:
    """The folder of a study of a model with code of its own, which leaves a mark."""
    file = tmp_path / "net.py"
    file.write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\n")
    folder = tmp_path / "tiny"
    StudyFolder(folder).write_study(studies.study(model=(f"{file}:Net",), resolution=()))
    return folder


def test_nothing_runs_of_a_study_that_others_can_write(coded: Path, tmp_path: Path) -> None:
    coded.chmod(0o777)
    for place in (str(coded), "tiny"):
        end = run_golow("study", "resume", place, "--out", str(tmp_path))
        assert end.status == 2
        said = " ".join(end.error.split())
        assert f"others can write {coded}" in said
        assert f"model: {tmp_path / 'net.py'}:Net" in said
        assert f"golow study resume {coded} --trust" in said
    with pytest.raises(GolowError, match="others can write"):
        golow.run_study("tiny", out=tmp_path, quiet=True)
    assert not (tmp_path / "mark").exists()
    assert find_study("tiny", tmp_path, trust=True).model[0].endswith("net.py:Net")


def test_ones_own_is_not_asked_about_nor_is_one_without_code(coded: Path, tmp_path: Path) -> None:
    assert find_study("tiny", tmp_path).name == "tiny"
    StudyFolder(coded).write_study(studies.study())
    coded.chmod(0o777)
    assert find_study("tiny", tmp_path).model == ("mlp",)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../../../secret", "/etc", "a\0b", "x" * 300])
@pytest.mark.parametrize("field", ["comparison", "environment", "key"])
def test_a_cell_names_no_other_place(field: str, name: str, tmp_path: Path) -> None:
    """Such a record is none: the cell waits to be measured again."""
    run(studies.study(batch=(1,), resolution=(8,)), tmp_path)
    [place] = [file.parent for file in (tmp_path / "tiny").glob("cells/*/*/cell.json")]
    [record] = records(tmp_path).values()
    assert isinstance(record, CellRecord)
    changed = msgspec.structs.replace(record, **{field: name})
    (place / "cell.json").write_bytes(encode(changed))
    found = golow.load_study(tmp_path / "tiny")
    assert not found.records
    assert len(found.waiting) == 1
