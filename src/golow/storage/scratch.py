"""Temporary folders that do not outlive golow, whatever ends it.

Beside a folder ``golow-XXXXXXXX`` in the temporary directory is ``golow-XXXXXXXX.scratch-lock``, a
file that the folder's owner has locked (filelock). The lock is the kernel's: it ends with its
owner, also by ``kill -9``. A folder whose lock is free is abandoned: the next scratch folder that
the same user's golow makes removes it.

The lock file comes first and goes last, so that at no moment there is a folder without one.
"""

from __future__ import annotations

import atexit
import errno
import getpass
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from golow.records.errors import GolowError
from golow.storage.files import writing
from golow.storage.full_disk import TEMPORARY_HINT, full_disk
from golow.storage.interrupts import uninterrupted

PREFIX, LOCK, GOING = "golow-", ".scratch-lock", ".going"

_own: dict[Path, FileLock] = {}  # the folders of this process, and their locks


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder that only this user can read; it is removed when the block ends.

    Removes abandoned folders before, and after it those of workers that were killed meanwhile.
    Raises `GolowError` where no folder can be made, and if the disk is full during the block.
    """
    remove_abandoned()
    folder = _created()
    try:
        yield folder
    except GolowError:
        raise
    except Exception as error:
        if full := full_disk(error):
            raise temporary_full(full.filename) from error
        raise
    finally:
        _remove(folder)
        remove_abandoned()


def temporary_full(file: str | None = None) -> GolowError:
    """The error for a full temporary folder. file: that could not be written, wherever it is."""
    why, temporary = os.strerror(errno.ENOSPC), tempfile.gettempdir()
    if file is not None and not Path(file).is_relative_to(temporary):
        return GolowError(f"{file} cannot be written: {why}", "free some space there.")
    return GolowError(f"the temporary folder {temporary} cannot be written: {why}", TEMPORARY_HINT)


def remove_abandoned() -> None:
    """Remove the folders of this user whose owners have ended without removing them."""
    for file in Path(tempfile.gettempdir()).glob(f"{PREFIX}*{LOCK}"):
        # filelock answers a second interrupt with a group of exceptions, which callers do not
        # expect.
        with uninterrupted():
            lock = _taken(file)
            if lock is not None:
                try:
                    if _is_own(file.with_suffix("")):
                        _delete(file)
                finally:
                    lock.release()


@atexit.register
def remove_own() -> None:
    """Remove the folders of this process that are still there, since a second Ctrl-C may have ended
    a block before it could; and the empty one that importing PyTorch's compiler leaves."""
    for folder in list(_own):
        _remove(folder)
    with suppress(OSError, KeyError):  # it holds something, is not there, or the user has no name
        name = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())  # as PyTorch spells it
        (Path(tempfile.gettempdir()) / f"torchinductor_{name}").rmdir()


# ---------------------------------------------------------------- how it is done


def _created() -> Path:
    with uninterrupted(), writing(tempfile.gettempdir(), TEMPORARY_HINT):
        while True:
            handle, name = tempfile.mkstemp(prefix=PREFIX, suffix=LOCK)
            os.close(handle)
            lock = _taken(Path(name))
            if lock is not None:
                break  # else another start took it for abandoned before it was locked
        folder = Path(name).with_suffix("")
        try:
            folder.mkdir(mode=0o700)
        except OSError:
            Path(name).unlink()
            lock.release()
            raise
        _own[folder] = lock
        return folder


def _remove(folder: Path) -> None:
    with uninterrupted():
        lock = _own.pop(folder, None)
        if lock is not None:
            _delete(folder.with_suffix(LOCK))
            lock.release()


def _taken(file: Path) -> FileLock | None:
    """The lock, which is held now; None if another process holds it, or if the file is not one that
    this user's golow has made."""
    with suppress(OSError, Timeout):
        status = file.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
            # A thread other than the one that took it may remove the folder.
            lock = FileLock(file, timeout=0, thread_local=False)
            lock.acquire()
            return lock
    return None


def _is_own(folder: Path) -> bool:
    """True if it is a real folder of this user, or was not made yet."""
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _delete(lock: Path) -> None:
    """Delete the folder of a lock that is held, then the lock. If the folder cannot be deleted, the
    lock stays, and the next start tries again."""
    folder, going = lock.with_suffix(""), lock.with_suffix(GOING)
    with suppress(OSError):
        folder.rename(going)  # a worker that is not dead yet finds nothing to write to
    shutil.rmtree(going, ignore_errors=True)
    if not (os.path.lexists(folder) or os.path.lexists(going)):
        lock.unlink(missing_ok=True)


def _forget() -> None:
    """In a forked child: the folders are the parent's, and their locks must end with the parent."""
    _own.clear()  # filelock itself has let go of them: its hook was registered before


os.register_at_fork(after_in_child=_forget)
