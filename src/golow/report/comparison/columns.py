"""The columns of a comparison's table: what each states of a level, and which drop out first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.text import Text

from golow.levels import ladder
from golow.programs.comparison.figures import percentiles, throughput
from golow.records.comparison import Comparison, Run, TensorError
from golow.records.errors import GolowError
from golow.report.comparison.gpu import is_on_gpu, is_waiting_for_host
from golow.report.units import (
    bytes_text,
    count_text,
    interval_text,
    rate_text,
    seconds_text,
)

STYLES = {
    "match": "green",
    "differs": "bold red",
    "failed": "red",
    "unavailable": "dim",
    "faster": "green",
    "slower": "yellow",
    "same": "",
    "unclear": "dim",
}


MOST_SHOWN = 10.0  # of a limit: how far beyond it a value is adds nothing


class Column(NamedTuple):
    """One column: the word that --columns knows it by, its title, its text for a level, and what
    stands for the title, and between two lines of the text, where there is but one line."""

    name: str
    title: str
    cell: Callable[[Run], Text | str]
    label: str
    between: str = ", "

    def line(self, run: Run) -> Text:
        """The text for a level in one line."""
        return Text(self.between).join(Text.assemble(self.cell(run)).split("\n"))


def all_columns(comparison: Comparison) -> tuple[Column, ...]:
    """Every column that this comparison can have, in the order of the table."""
    found = GPU_COLUMNS if is_on_gpu(comparison) else CPU_COLUMNS
    if (ranks := comparison.workload.ranks) == 1:
        return found
    over = f"over {ladder.baseline(ranks)}"
    ratio = _RATIO._replace(title=f"{over}\n(interval)", label=f"time {over}")
    return tuple(ratio if column is _RATIO else column for column in found)


def chosen_columns(comparison: Comparison, names: Sequence[str]) -> tuple[Column, ...]:
    """The columns of these names, in their order; raises `GolowError` for an unknown one."""
    known = {column.name: column for column in all_columns(comparison)}
    require_columns(names)
    return tuple(known[name] for name in dict.fromkeys(names) if name in known)


def require_columns(names: Sequence[str]) -> None:
    """Raise `GolowError` for a name that no comparison's table has."""
    known = dict.fromkeys(column.name for column in (*CPU_COLUMNS, *GPU_COLUMNS))
    for name in names:
        if name not in known:
            raise GolowError(f"the table has no column {name!r}", f"--columns {','.join(known)}")
    if not names:
        raise GolowError("--columns names no column", f"--columns {','.join(known)}")


def verdict_text(run: Run, what: str = "") -> Text:
    """The verdict; below it the error and the share of the limit that it used. what: said behind
    the share, where no title states that it is one of a limit."""
    text = run.check.word + _error_text(run)
    if run.check.worst is not None and text.endswith("%"):
        text += what
    return Text(text, style=STYLES[run.check.verdict])


def _error_text(run: Run) -> str:
    """The worst tensor's error divided by its size, and the share of its limit that it used. If its
    exact value is zero, its size is that of what cancels there."""
    worst = run.check.worst
    if worst is None:
        return ""
    size = worst.zero_scale or worst.scale
    share = worst.error / size if size else worst.error
    mark = "^" if worst.zero_scale else ""
    return f"\n{share:.0e}{mark}{_limit_text(worst)}"


def _limit_text(worst: TensorError) -> str:
    """Nothing where there is no limit to have a share of."""
    if not (worst.limit > 0 and math.isfinite(worst.limit)):
        return ""
    used = worst.error / worst.limit
    if not used <= MOST_SHOWN:  # also what is not a number
        return f" >{MOST_SHOWN:.0%}"
    return " <1%" if 0 < used < 0.01 else f" {used:.0%}"


def _time_text(run: Run) -> str:
    if run.time is None:
        return "-"
    mark = "*" if run.conditions.rounds_used == "all" else ""
    return f"{seconds_text(run.time.value)}{mark}\n{interval_text(run.time)}"


def _ratio_text(run: Run) -> Text:
    if run.ratio is None:
        return Text("-")
    if run.level == ladder.baseline(run.workload.ranks):
        wrong = run.check.verdict != "match"
        return Text("1\nwrong", style=STYLES["differs"]) if wrong else Text("1")
    text = Text(f"{run.ratio.value:.3f} ")
    text.append(run.ratio.word, style=STYLES[run.ratio.word])
    return text.append(f"\n{run.ratio.low:.3f}-{run.ratio.high:.3f}")


def _memory_text(run: Run) -> str:
    if not run.memory:
        return "-"
    allocated = run.quantity("allocated_peak")
    return f"{bytes_text(run.quantity('resident'))}\n{bytes_text(allocated)}"


def _device_memory_text(run: Run) -> str:
    """The process's memory on the GPU, as the driver reports it or else by its increase (+), and
    its memory on the host."""
    used, added = run.quantity("device_used"), run.quantity("device_added")
    total = bytes_text(used) if added is None else f"{bytes_text(added)}+"
    return f"{total}\n{bytes_text(run.quantity('resident'))}" if run.memory else "-"


def _enqueue_text(run: Run) -> Text:
    style = "yellow" if is_waiting_for_host(run) else ""
    return Text(seconds_text(run.quantity("enqueue")), style=style)


def _build_text(run: Run) -> str:
    build = run.quantity("build")
    if build is None:
        return "-"
    if build < 0.001:
        return "none"
    return seconds_text(build) + ("\n(cached)" if run.build_cached else "")


def _payback_text(run: Run) -> str:
    if run.level == ladder.baseline(run.workload.ranks) or run.ratio is None:
        return "-"
    if run.payback_iterations is None:
        return "-" if run.ratio.word == "unclear" else "never"
    return count_text(run.payback_iterations)


def _throughput_text(run: Run) -> str:
    rate = throughput(run)
    return "-" if rate is None else f"{rate_text(rate.value)}\n{rate.unit}"


def _percentiles_text(run: Run) -> str:
    """A line each; `-` for one that has too few iterations."""
    found = {quantity.name: seconds_text(quantity.value) for quantity in percentiles(run)}
    if not found:
        return "-"
    return "\n".join(found.get(name, "-") for name in ("p50", "p95", "p99"))


_RATIO = Column("ratio", "over eager\n(interval)", _ratio_text, "time over eager")
_THROUGHPUT = Column("throughput", "through-\nput", _throughput_text, "throughput", " ")
_PERCENTILES = Column("percentiles", "p50\np95\np99", _percentiles_text, "p50, p95, p99")
_READY = Column(
    "ready", "start\nready", lambda run: seconds_text(run.quantity("ready")), "ready after"
)
_BUILD = Column("build", "build\ntime", _build_text, "build", " ")
_ARTIFACT = Column(
    "artifact", "artifact\nsize", lambda run: bytes_text(run.quantity("artifact")), "artifact"
)
_PAYBACK = Column("payback", "break-\neven", _payback_text, "break-even iterations")

CPU_COLUMNS = (
    Column("time", "time\n(interval)", _time_text, "time"),
    _RATIO,
    _THROUGHPUT,
    _PERCENTILES,
    Column("memory", "resident\nalloc.", _memory_text, "resident, allocated"),
    _READY,
    _BUILD,
    _ARTIFACT,
    _PAYBACK,
)
GPU_COLUMNS = (
    Column("time", "GPU time\n(interval)", _time_text, "GPU time"),
    _RATIO,
    _THROUGHPUT,
    _PERCENTILES,
    Column("enqueue", "host\nenqueue", _enqueue_text, "host enqueues in"),
    Column("memory", "GPU mem.\nresident", _device_memory_text, "GPU memory, resident"),
    _READY,
    _BUILD,
)
FALLING = tuple("percentiles artifact throughput ready payback build enqueue memory".split())
"""Where the table is too wide, columns drop out in this order. Level, verdict, time and ratio never
do; where these do not fit either, each level becomes a block of lines."""
