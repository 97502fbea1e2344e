"""How a comparison is printed: its columns and format, for ``golow compare`` and ``golow show``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from golow.records.comparison import Comparison
from golow.records.errors import GolowError

if TYPE_CHECKING:
    from rich.console import Console


class Look(NamedTuple):
    """columns: the names of columns to show, none for as many as fit. form: ``table`` or a
    format."""

    columns: Sequence[str]
    form: str

    @property
    def is_document(self) -> bool:
        """True if standard output gets one document and nothing else."""
        return self.form != "table"

    def require(self, json: str | None = None) -> None:
        """Raise `GolowError`, before anything is measured, if this form cannot be printed."""
        from golow.report.comparison.columns import require_columns

        if self.columns:
            require_columns(self.columns)
        if self.form == "csv" and self.columns:
            raise GolowError("--format csv always has every column", "leave out --columns.")
        if self.is_document and json == "-":
            raise GolowError(
                f"--json - and --format {self.form} both write to standard output",
                "name a file with --json.",
            )

    def show(
        self, comparison: Comparison, console: Console | None = None, by_layer: bool | None = None
    ) -> None:
        """Print the comparison."""
        from golow.report.comparison.formats import render

        render(comparison, console, by_layer, self.columns, self.form)
