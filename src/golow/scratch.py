"""Temporary folders that do not outlive golow, whatever ends it.

Beside a folder ``golow-XXXXXXXX`` in the temporary directory is ``golow-XXXXXXXX.scratch-lock``, a
file that the folder's owner has locked (flock). The lock is the kernel's: it ends with its owner,
also by ``kill -9``. A folder whose lock is free is abandoned: the next scratch folder that the same
user's golow makes removes it.

The lock file comes first and goes last, so that at no moment there is a folder without one.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from golow.files import writing

HINT = "free some space, or name another folder: TMPDIR=/large/disk golow ..."
PREFIX, LOCK, GOING = "golow-", ".scratch-lock", ".going"

_own: dict[Path, int] = {}  # the folders of this process, and the descriptors of their locks


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder that only this user can read; it is removed when the block ends.

    Removes abandoned folders before, and after it those of workers that were killed meanwhile.
    Raises `GolowError` where no folder can be made.
    """
    remove_abandoned()
    folder = _created()
    try:
        yield folder
    finally:
        _remove(folder)
        remove_abandoned()


def remove_abandoned() -> None:
    """Remove the folders of this user whose owners have ended without removing them."""
    for file in Path(tempfile.gettempdir()).glob(f"{PREFIX}*{LOCK}"):
        handle = _free_lock(file)
        if handle is not None:
            try:
                if _is_own(file.with_suffix("")):
                    _delete(file)
            finally:
                os.close(handle)


@atexit.register
def remove_own() -> None:
    """Remove the folders of this process that are still there: a second Ctrl-C may have ended a
    block before it could."""
    for folder in list(_own):
        _remove(folder)


# ---------------------------------------------------------------- how it is done


def _created() -> Path:
    with _uninterrupted(), writing(tempfile.gettempdir(), HINT):
        while True:
            handle, name = tempfile.mkstemp(prefix=PREFIX, suffix=LOCK)  # closed on exec
            fcntl.flock(handle, fcntl.LOCK_EX)
            if os.fstat(handle).st_nlink:
                break
            os.close(handle)  # another start took it for abandoned before it was locked
        folder = Path(name).with_suffix("")
        try:
            folder.mkdir(mode=0o700)
        except OSError:
            Path(name).unlink()
            os.close(handle)
            raise
        _own[folder] = handle
        return folder


def _remove(folder: Path) -> None:
    with _uninterrupted():
        handle = _own.pop(folder, None)
        if handle is not None:
            _delete(folder.with_suffix(LOCK))
            os.close(handle)


def _free_lock(file: Path) -> int | None:
    """A descriptor that holds the lock; None if somebody else holds it, or if the file is not one
    that this user's golow has made."""
    try:
        handle = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
    os.close(handle)
    return None


def _is_own(folder: Path) -> bool:
    """Whether it is a real folder of this user, or was not made yet."""
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


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the block has ended. Python handles signals in the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def remember(*_: object) -> None:
        nonlocal came
        came = True

    handler = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


def _forget() -> None:
    """In a forked child: the folders are the parent's, and their locks must end with the parent."""
    for handle in _own.values():
        os.close(handle)
    _own.clear()


os.register_at_fork(after_in_child=_forget)
