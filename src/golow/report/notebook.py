"""Terminal output as HTML, for notebooks."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console

from golow.report.console import WIDTH, PlainConsole

PAGE = "<pre style='line-height:normal;font-family:monospace;overflow-x:auto'>{code}</pre>"


def as_html(draw: Callable[[Console], object]) -> str:
    """Return a drawing on a console as HTML, with its colours; names in it are text and never
    markup."""
    console = PlainConsole(
        file=io.StringIO(),
        record=True,
        width=WIDTH,
        markup=False,
        force_jupyter=False,  # in a notebook rich would also show what is printed here
    )
    draw(console)
    return console.export_html(inline_styles=True, code_format=PAGE)
