"""Counts forks of this process: what runs threads does not survive one."""

from __future__ import annotations

import os

from golow.records.errors import GolowError

forks: list[None] = []
"""One for each fork between the first process and this one."""
os.register_at_fork(after_in_child=lambda: forks.append(None))


def require_own_process(before: int, made: str) -> None:
    """Raise `GolowError` if this process was forked since there were this many forks. made: what
    happened then, such as ``the module was compiled``."""
    if len(forks) != before:
        raise GolowError(
            f"{made} in the process that this one was forked from",
            'start processes with "spawn", and do it in each: threads do not survive a fork.',
        )
