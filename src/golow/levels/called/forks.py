"""Counts forks of this process: what runs threads does not survive one."""

from __future__ import annotations

import os

forks: list[None] = []
"""One for each fork between the first process and this one."""
os.register_at_fork(after_in_child=lambda: forks.append(None))
