"""A quantisation as a section of a page."""

from __future__ import annotations

from collections.abc import Iterator

from golow.programs.quantization.quantization_record import Quantization
from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.quantization.table import described, heading, statements


def title(found: Quantization) -> str:
    """Title of its page: its subject."""
    return heading(found)


def sections(found: Quantization, name: str) -> list[Block]:
    """name: prefix of the section's anchor."""
    return [blocks.section(f"{name}-quantization", "The quantised network", _quantization(found))]


def _quantization(found: Quantization) -> Iterator[Block]:
    yield blocks.paragraph("\n".join(described(found)), style="note")
    for caption, lines in statements(found):
        yield blocks.paragraph(caption, style="lead")
        yield blocks.paragraph("\n".join(lines))
