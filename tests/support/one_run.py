"""What one run of the tests makes once, although it has several processes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_own: Path | None = None


def begin(base: Path) -> None:
    """Tests begin in this process. base: its temporary folder."""
    global _own
    _own = base


def own_folder() -> Path:
    """The temporary folder of this process, for what has no fixture to ask."""
    assert _own is not None, "no test has begun"
    return _own


def shared_folder(base: Path) -> Path:
    """Of all processes of this run. base: the temporary folder of this one."""
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def program_cache(base: Path) -> Path:
    """A cache for tests that compile programs, and prove nothing about what the cache holds."""
    return shared_folder(base) / "libtorch-cache"


@contextmanager
def one_at_a_time(base: Path, name: str) -> Iterator[Path]:
    """A folder of that name, for one process after the other; the first one finds it empty."""
    folder = shared_folder(base) / name
    folder.mkdir(exist_ok=True)
    with (folder.with_name(f"{name}.lock")).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
