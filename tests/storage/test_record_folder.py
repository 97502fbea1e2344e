"""Folders of records: each its own, and none outside the place where records are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from golow.records.errors import GolowError
from golow.storage.names import is_plain_name
from golow.storage.record_folder import own_folder
from support.examples import examples


def another(folder: Path) -> bool:
    return False


def test_records_of_one_name_get_folders_of_their_own(tmp_path: Path) -> None:
    place = tmp_path / "runs"
    found = [own_folder(place, "night", another).name for _ in range(3)]
    assert found == ["night", "night-2", "night-3"]
    assert own_folder(place, "night", lambda folder: folder.name == "night-2").name == "night-2"


def test_no_folder_is_given_twice_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: own_folder(tmp_path / "runs", "night", another), range(64)))
    assert len(set(found)) == 64


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "/tmp/x", "a/b", "a\\b", "a\nb", "a\0b", "x" * 201]
)
def test_what_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    assert not is_plain_name(name)
    with pytest.raises(GolowError, match="not a folder name"):
        own_folder(tmp_path, name, another)
    assert list(tmp_path.iterdir()) == []


@given(some.text())
@examples(200)
def test_a_plain_name_stays_where_it_is_put(name: str) -> None:
    if is_plain_name(name):
        parent = Path("/records")
        assert (parent / name).parent == parent
        assert (parent / name).resolve().parent == parent
