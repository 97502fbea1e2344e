"""``golow compare --against``: changes since a record, and the limit on them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple, Self

from golow.records.comparison import Comparison
from golow.records.errors import GolowError
from golow.report.console import plain, wide_console


class Gate(NamedTuple):
    """baseline: the recorded comparison. limit: the share above which a level is too slow, or None
    for no limit."""

    baseline: Comparison
    limit: float | None

    @classmethod
    def of(cls, against: Path | None, fail_above: str | None) -> Self | None:
        """The gate for these options. Raises `GolowError`, before anything is measured, for
        a baseline that cannot be read or an invalid limit."""
        from golow.programs.comparison import store
        from golow.programs.comparison.changes import parsed_limit

        if against is None:
            if fail_above is not None:
                raise GolowError(
                    "--fail-above needs a baseline", "add --against FOLDER, a recorded comparison."
                )
            return None
        limit = None if fail_above is None else parsed_limit(fail_above)
        return cls(store.load(against), limit)

    def closes(self, comparison: Comparison, *, to_stderr: bool) -> bool:
        """Print the changes and the gate's line; True if a level is significantly too slow.

        Raises `GolowError` if machine, versions or workload are not the baseline's.
        """
        from golow.programs.comparison import store
        from golow.programs.comparison.changes import slower_than
        from golow.report.comparison.changes import gate_text, render_changes

        store.require_alike([self.baseline, comparison], "take the baseline on this machine.")
        console = wide_console(stderr=True) if to_stderr else None
        found = render_changes(self.baseline, comparison, console)
        if self.limit is None:
            return False
        print(plain(gate_text(found, self.limit)), file=sys.stderr if to_stderr else sys.stdout)
        return bool(slower_than(found, self.limit))
