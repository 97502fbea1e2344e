"""Whose a file is: of whoever can write it, or put another one in its place."""

from __future__ import annotations

import grp
import os
import pwd
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from golow.storage.ownership import exposed, make_own_folder

ROOT_ALONE = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


def one_with_a_group_of_its_own() -> pwd.struct_passwd:
    """A user whose group has the same name and nobody else in it, as many systems make them."""
    for user in pwd.getpwall():
        group = grp.getgrgid(user.pw_gid)
        if user.pw_uid and group.gr_name == user.pw_name and not group.gr_mem:
            return user
    pytest.skip("no user here has a group of their own")


@contextmanager
def being(user: pwd.struct_passwd) -> Iterator[None]:
    """Act as that user."""
    os.setegid(user.pw_gid)
    os.seteuid(user.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def test_a_file_of_ones_own_is_nobody_elses(tmp_path: Path) -> None:
    file = tmp_path / "record"
    file.write_bytes(b"")
    assert exposed(file, tmp_path) is None
    file.chmod(0o664)
    found = exposed(file, tmp_path)
    assert found is not None
    assert (found.path, found.said("it")) == (file, "others can write it")
    assert found.command == f"chmod go-w {file}"


def test_the_first_of_several_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o666)
    tmp_path.chmod(0o777)
    found = exposed(tmp_path, tmp_path / "file")
    assert found is not None
    assert found.path == tmp_path


@ROOT_ALONE
def test_a_group_of_ones_own_may_write() -> None:
    user = one_with_a_group_of_its_own()
    with being(user), tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "runs"
        folder.mkdir()
        folder.chmod(0o775)
        assert exposed(folder) is None
        folder.chmod(0o757)
        assert exposed(folder) is not None


@ROOT_ALONE
def test_a_group_with_others_in_it_may_not_write() -> None:
    user = one_with_a_group_of_its_own()
    with tempfile.TemporaryDirectory() as place:
        os.chown(place, user.pw_uid, 0)
        Path(place).chmod(0o770)
        with being(user):
            found = exposed(Path(place))
    assert found is not None
    assert not found.owner


@ROOT_ALONE
def test_what_root_has_is_not_a_users_own_but_may_be_above_it(tmp_path: Path) -> None:
    user = one_with_a_group_of_its_own()
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        own = Path(place) / "own"
        own.mkdir()
        os.chown(own, user.pw_uid, user.pw_gid)
        with being(user):
            assert exposed(own) is None
            found = exposed(Path(place))
            assert found is not None
            assert found.said() == f"{place} belongs to another user, root"
            assert exposed(Path(place), owners=(0,)) is None


def test_folders_are_made_without_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_own_folder(tmp_path / "a" / "b", 0o700)
        make_own_folder(tmp_path / "a" / "b", 0o700)
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
