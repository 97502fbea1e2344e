"""Check whether another user may have written a file or a folder: golow executes neither then.

A folder belongs to whoever can write it or a folder above it, since that user can put another one
in its place. A folder with the sticky bit, such as /tmp, is harmless above, as other users cannot
rename what is not theirs there.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from golow.records.errors import GolowError
from golow.storage.shell_words import shell_word

ROOT = 0
ACCESS_LIST = "system.posix_acl_access"


class Exposed(NamedTuple):
    """A file or folder that another user may have written. owner: their name; empty if it is this
    user's, and others can write it."""

    path: Path
    owner: str = ""

    def said(self, what: str = "") -> str:
        """The fault as a sentence. what: a name for the path."""
        what = what or str(self.path)
        return f"{what} belongs to {self.owner}" if self.owner else f"others can write {what}"

    @property
    def command(self) -> str:
        """The command that makes it writable only for its owner; empty if there is none."""
        return "" if self.owner else f"chmod go-w {shell_word(self.path)}"


def exposed(*places: Path, owners: tuple[int, ...] = ()) -> Exposed | None:
    """The first that another user may have written, of the places and then of the folders above
    them; None if there is none.

    owners: users besides this one whose places these may be; above, root's are harmless, too.
    Raises `OSError` for a place that is not there.
    """
    mine = {os.geteuid(), *owners}
    named = [path for place in places for path in _named(place)]
    above = dict.fromkeys(folder for path in named for folder in path.parents)
    found = (_exposed(path, mine, False) for path in named)
    further = (_exposed(folder, {*mine, ROOT}, True) for folder in above)
    return next(filter(None, chain(found, further)), None)


def exposed_within(folder: Path, depth: int, owners: tuple[int, ...] = ()) -> Exposed | None:
    """The first file or folder in this one, this many levels deep, that another user may have
    written."""
    mine = {os.geteuid(), *owners}
    for place in sorted(folder.iterdir()):
        with suppress(FileNotFoundError):  # another process may remove it
            found = _exposed(place, mine, False)
            if found is None and depth > 1 and place.is_dir() and not place.is_symlink():
                found = exposed_within(place, depth - 1, owners)
            if found is not None:
                return found
    return None


def require_own(folder: Path, file: str, runs: Sequence[str], trusting: str) -> None:
    """Raise `GolowError` for a record that another user may have written, with what it would run.

    file: of the folder, the one that names it. runs: the code and commands, in words; a record
    without any is data, whoever wrote it. trusting: what to type to run them all the same.
    """
    found = exposed(folder, folder / file) if runs else None
    if found is not None:
        mine = f"; if it is yours: {found.command}" if found.command else ""
        raise GolowError(
            f"{found.said()}, so another user may have written the record in {folder}, which would "
            f"run:\n" + "\n".join(f"    {line}" for line in runs),
            f"if you trust who wrote it: {trusting}{mine}",
        )


def make_own_folder(folder: Path, mode: int = 0o755) -> None:
    """Make the folder, and the missing ones above it, so that no other user can write them,
    whatever the umask. mode: of the last one. Raises `OSError`."""
    for above in reversed(folder.parents):
        if not above.exists():
            above.mkdir(mode=0o755, exist_ok=True)
    folder.mkdir(mode=mode, exist_ok=True)


# ---------------------------------------------------------------- how it is done


def _named(place: Path) -> tuple[Path, ...]:
    """The place and, if that is a link or below one, its target."""
    absolute = place.absolute()
    return tuple(dict.fromkeys((absolute, absolute.resolve())))


def _exposed(place: Path, owners: set[int], may_be_sticky: bool) -> Exposed | None:
    status = place.lstat()
    if status.st_uid not in owners:
        return Exposed(place, _name(status.st_uid))
    # A link's mode has no meaning.
    if stat.S_ISLNK(status.st_mode) or (may_be_sticky and status.st_mode & stat.S_ISVTX):
        return None
    writable = status.st_mode & stat.S_IWOTH or (
        status.st_mode & stat.S_IWGRP and not _is_private(place, status)
    )
    return Exposed(place) if writable else None


def _is_private(place: Path, status: os.stat_result) -> bool:
    """True if the place's group is its owner's alone: many systems give each user a group of the
    same name, and let groups write. Further users would stand in a list of access."""
    if status.st_uid == ROOT or status.st_gid == 0:
        return False
    try:
        user, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
        listed = ACCESS_LIST in os.listxattr(place)
    except (KeyError, OSError):
        return False
    own = user.pw_gid == status.st_gid and group.gr_name == user.pw_name
    return own and not listed and set(group.gr_mem) <= {user.pw_name}


def _name(user: int) -> str:
    try:
        return f"another user, {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"another user, {user}"
