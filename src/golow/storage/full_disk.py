"""A full disk, in whatever error it comes: of the system, of a library that has its own class of
errors, or of a worker, which has only a text."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TEMPORARY_HINT = "free some space, or name another folder: TMPDIR=/large/disk golow ..."


def full_disk(error: BaseException) -> OSError | None:
    """The error that states that the disk, a quota or a file is full: this one, or one that it came
    from; None if there is none."""
    return next(_full_disks(error), None)


def tells_of_full_disk(text: str) -> bool:
    """True if a message or a log states that a disk is full."""
    return any(os.strerror(number) in text for number in FULL)


def is_without_temporary(error: OSError) -> bool:
    """True if no temporary folder can be written, as Python states it when it first needs one."""
    return "No usable temporary directory" in str(error.strerror)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it came from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _full_disks(error: BaseException) -> Iterator[OSError]:
    for one in causes(error):
        if isinstance(one, OSError) and one.errno in FULL:
            yield one
        elif tells_of_full_disk(str(one)):
            yield OSError(errno.ENOSPC, str(one).splitlines()[-1].strip())
