"""A comparison's table as Markdown, CSV or HTML, for reports, spreadsheets and notebooks.

Names of models, levels and tensors come from users and workers, so each format escapes them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from html import escape
from typing import Literal, get_args

from rich.console import Console
from rich.text import Text

from golow.programs.comparison.store import to_csv_text
from golow.records.comparison import Comparison, Run
from golow.records.errors import GolowError
from golow.report.comparison import table
from golow.report.comparison.advice import advice, offers
from golow.report.comparison.columns import Column, all_columns, chosen_columns, verdict_text
from golow.report.comparison.table import conditions, footnotes, heading
from golow.report.console import visible

FIRST = ("level", "verdict\n(error, of limit)")  # the columns before those of numbers
CELL = "padding:0.2em 0.7em;vertical-align:top;white-space:nowrap"

Format = Literal["markdown", "csv", "html"]


def render(
    comparison: Comparison,
    console: Console | None = None,
    by_layer: bool | None = None,
    columns: Sequence[str] = (),
    form: str = "table",
) -> None:
    """Print the comparison as a table (see `table.render`) or, to standard output, in this
    format."""
    if form == "table":
        table.render(comparison, console, by_layer, columns)
    else:
        sys.stdout.write(document(comparison, form, columns))


def document(comparison: Comparison, form: str, columns: Sequence[str] = ()) -> str:
    """The comparison in this format, with these columns; all unless given.

    csv has every figure of the record, unrounded and in seconds and bytes, and takes no columns.
    Raises `GolowError` for an unknown format or column.
    """
    if form == "csv":
        if columns:
            raise GolowError("--format csv always has every column", "leave out --columns.")
        return to_csv_text(comparison)
    shown = chosen_columns(comparison, columns) if columns else all_columns(comparison)
    if form == "markdown":
        return to_markdown(comparison, shown)
    if form == "html":
        return to_html(comparison, shown)
    raise GolowError(f"there is no format {form!r}", f"--format {'|'.join(get_args(Format))}")


def to_markdown(comparison: Comparison, columns: Sequence[Column]) -> str:
    """A heading, a table as GitHub reads it, and the advice."""
    titles = [title.replace("\n", " ") for title in (*FIRST, *(column.title for column in columns))]
    lines = [
        f"**{_markdown(heading(comparison))}**",
        "",
        f"| {' | '.join(_markdown(title) for title in titles)} |",
        f"|---|---{'|--:' * len(columns)}|",
    ]
    for run in comparison.runs:
        lines.append(f"| {' | '.join(_markdown(cell) for cell in _cells(run, columns))} |")
    lines += [f"\n{_markdown(text)}" for text in (*_reasons(comparison), advice(comparison))]
    for said, recipe in offers(comparison):
        lines += [f"\n{_markdown(said)}"] if said else []
        lines += ["", f"```{recipe.language}", recipe.lines, "```"]
    below = [*footnotes(comparison), conditions(comparison)]
    lines += [f"\n{_markdown(text)}" for text in below]
    return "\n".join(lines) + "\n"


def to_html(comparison: Comparison, columns: Sequence[Column]) -> str:
    """A piece of a page: a heading, a table and the advice, without a script or a style sheet."""
    titles = [*FIRST, *(column.title for column in columns)]
    head = _html_row("th", titles)
    rows = "\n".join(_html_row("td", _cells(run, columns)) for run in comparison.runs)
    below = [f"<p>{_html(text)}</p>\n" for text in (*_reasons(comparison), advice(comparison))]
    for said, recipe in offers(comparison):
        below += [f"<p>{_html(said)}</p>\n"] if said else []
        below += [f"<pre>{escape(visible(recipe.lines))}</pre>\n"]
    below += [f"<p>{_html(text)}</p>\n" for text in footnotes(comparison)]
    return (
        f'<div class="golow">\n<p><b>{_html(heading(comparison))}</b><br>'
        f"<small>{_html(conditions(comparison))}</small></p>\n"
        f"<table>\n<thead>{head}</thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n"
        + "".join(below)
        + "</div>\n"
    )


def _html_row(kind: str, texts: Sequence[str]) -> str:
    """Words to the left, numbers to the right; the style is in the cells, for pages without one."""
    cells = (
        f'<{kind} style="{CELL};text-align:{"left" if number < len(FIRST) else "right"}">'
        f"{_html(text)}</{kind}>"
        for number, text in enumerate(texts)
    )
    return f"<tr>{''.join(cells)}</tr>"


def _cells(run: Run, columns: Sequence[Column]) -> list[str]:
    texts = (Text.assemble(column.cell(run)).plain for column in columns)
    return [run.level, verdict_text(run).plain, *texts]


def _reasons(comparison: Comparison) -> list[str]:
    """Why a level does not match."""
    return [
        f"{run.level}: {run.check.verdict}: {run.check.words}"
        for run in comparison.runs
        if run.check.verdict != "match"
    ]


def _markdown(text: str) -> str:
    """The text as itself: its punctuation is not markup, and its line ends are breaks."""
    # `escape` first: Markdown passes HTML through.
    marked = re.sub(r"([\\`*_{}\[\]#|~!])", r"\\\1", escape(visible(text), quote=False))
    # Text that GitHub would turn into a link: `www.` and `scheme://`.
    marked = marked.replace("://", ":&#47;&#47;").replace("www.", "www&#46;").replace("@", "&#64;")
    return marked.replace("\n", "<br>").replace("\t", " ")


def _html(text: str) -> str:
    return escape(visible(text)).replace("\n", "<br>")
