"""The tables of `survey.py`'s records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from golow.report.units import bytes_text, seconds_text

SUSPECT = 1.5  # times the least from which a plan is one to look at
SHOWN = 40  # rows of a table
TITLES = {
    "bf16": "`cudnn:autotune`, bf16, {gpu}",
    "tf32": "`cudnn:autotune`, tf32, {gpu}",
    "float32": "`onednn`, float32, two-core CPU",
}
Record = dict[str, Any]


class Row(NamedTuple):
    """A plan of a network."""

    network: str
    result: Record

    @property
    def times(self) -> float:
        """The predicted time over the least."""
        return float(self.result["predicted"] / self.result["least"])


def tables(records: Sequence[Record], gpu: str) -> str:
    """What is lost, plan by plan and mode by mode; then what has no plan, and why."""
    lines = [*_overview(records)]
    for plan, title in TITLES.items():
        for mode in ("infer", "train"):
            rows = sorted(_rows(records, mode, plan), key=lambda row: -row.times)
            if rows:
                kind = "inference" if mode == "infer" else "training"
                lines += ["", f"### {title.format(gpu=gpu)}, {kind}", "", *_table(rows)]
    return "\n".join([*lines, "", "### Without a plan", "", *_missing(records)])


def _overview(records: Sequence[Record]) -> Iterator[str]:
    yield "| networks from | tried | captured in inference | captured in training | with a plan |"
    yield "|---|---|---|---|---|"
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[record["network"].partition(":")[0]].append(record)
    for group, members in groups.items():
        captured = [_captured(members, mode) for mode in ("infer", "train")]
        planned = sum(any("steps" in r for r in _results(record)) for record in members)
        yield f"| {group} | {len(members)} | {captured[0]} | {captured[1]} | {planned} |"


def _captured(records: Sequence[Record], mode: str) -> str:
    """``12 of 14``: of those that were tried in this mode."""
    found = [[r for r in _results(record) if r["mode"] == mode] for record in records]
    asked = [results for results in found if results]
    return f"{sum('missing' not in results[0] for results in asked)} of {len(asked)}"


def _results(record: Record) -> list[Record]:
    return list(record.get("results", ()))


def _rows(records: Any, mode: str, plan: str) -> Iterator[Row]:
    for record in records:
        for result in _results(record):
            if result["mode"] == mode and result.get("plan") == plan and "steps" in result:
                yield Row(record["network"], result)


def _table(rows: Sequence[Row]) -> Iterator[str]:
    suspects = [row for row in rows if row.times >= SUSPECT]
    middle = rows[len(rows) // 2].times
    yield f"{len(rows)} plans; the median needs {middle:.2f} times the least; {len(suspects)} need"
    yield f"{SUSPECT} times or more."
    yield ""
    yield "| network | steps | layout | predicted | least | times | most time in |"
    yield "|---|---|---|---|---|---|---|"
    for network, result in rows[:SHOWN]:
        whole = result["predicted"]
        most = ", ".join(f"{name} {seconds / whole:.0%}" for name, seconds in result["most"])
        times = f"{whole / result['least']:.2f}"
        bold = f"**{times}**" if whole / result["least"] >= SUSPECT else times
        yield (
            f"| {network} | {result['steps']} | {bytes_text(result['layout'])} | "
            f"{seconds_text(whole)} | {seconds_text(result['least'])} | {bold} | {most} |"
        )


def _missing(records: Sequence[Record]) -> Iterator[str]:
    """Reasons, each with the networks that it concerns."""
    reasons: dict[str, dict[str, None]] = defaultdict(dict)
    for record in records:
        if "failed" in record:
            reasons[record["failed"].splitlines()[-1][:120]][record["network"]] = None
        for result in _results(record):
            found = [result.get("missing") or result.get("failed"), *result.get("refused", ())]
            # The operation is refused; the node is one of many that have it.
            for reason in dict.fromkeys(text.partition(" (node ")[0] for text in found if text):
                where = f" ({result['plan']})" if "plan" in result else ""
                reasons[f"{reason[:120]}{where}"][record["network"]] = None
    counted = Counter({reason: len(networks) for reason, networks in reasons.items()})
    yield "| networks | reason | examples |"
    yield "|---|---|---|"
    for reason, number in counted.most_common(SHOWN):
        first = ", ".join(list(reasons[reason])[:3])
        yield f"| {number} | {reason.replace('|', '/')} | {first} |"
