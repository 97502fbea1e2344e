"""The operations of a plan against float64, as a table of 100 columns at most."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.programs.explain.verify_steps import Verified
from golow.records.comparison import StepError
from golow.report.comparison.table import workload_text
from golow.report.console import wide_console

NAME, LAYER, VALUE = 20, 30, 30  # characters


def render(verified: Verified, top: int, console: Console | None = None) -> None:
    """Print the operations with the largest errors, and how many are wrong."""
    console = console or wide_console()
    title = f"{workload_text(verified.workload)}, {verified.level}"
    console.print(Text(title, style="bold"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("operation", "layer", "result"):
        table.add_column(name, no_wrap=True)
    table.add_column("error\nof limit", justify="right")
    table.add_column("")
    for error in sorted(verified.errors, key=lambda item: -item.share)[:top]:
        table.add_row(*_row(error))
    console.print(table)
    console.print(Text(verified.steps.words))


def _row(error: StepError) -> list[str]:
    name = error.operation.removeprefix("golow.")
    cut = zip((name, error.layer, error.value), (NAME, LAYER, VALUE), strict=True)
    verdict = "match" if error.share <= 1.0 else "differs"
    return [*(text[:size] for text, size in cut), f"{error.share:.2g}", verdict]
