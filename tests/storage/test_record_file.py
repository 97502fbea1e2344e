"""The file that makes a folder a record: found by folder or file, refused in another version."""

from __future__ import annotations

from pathlib import Path

import pytest

from golow.records.errors import GolowError
from golow.storage.record_file import RecordFile

FILE = RecordFile("audit.json", "audit", 2, "give a folder that `golow audit` wrote.")


def test_it_is_found_by_its_folder_and_by_itself(tmp_path: Path) -> None:
    (tmp_path / "audit.json").touch()
    assert FILE.at(tmp_path) == FILE.at(tmp_path / "audit.json") == tmp_path / "audit.json"
    assert FILE.is_at(tmp_path) and FILE.is_at(tmp_path / "audit.json")


def test_what_is_none_is_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "other.json").touch()
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "audit.json").mkdir()  # a folder of that name is no file
    for place in (tmp_path, tmp_path / "other.json", tmp_path / "nowhere", tmp_path / "inside"):
        assert not FILE.is_at(place)
        with pytest.raises(GolowError) as refused:
            FILE.at(place)
        assert refused.value.message == f"there is no audit in {place}"
        assert refused.value.hint == "give a folder that `golow audit` wrote."


@pytest.mark.parametrize("version", [1, 3, None, "2"])
def test_another_version_is_refused(version: object) -> None:
    FILE.require_version(Path("audit.json"), 2)
    with pytest.raises(GolowError, match=f"audit.json has format version {version}; .* reads 2"):
        FILE.require_version(Path("audit.json"), version)
