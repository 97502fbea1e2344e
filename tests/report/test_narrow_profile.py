"""A profile in a narrow terminal: nothing is cut, and no sentence has a line end of its own."""

from __future__ import annotations

from io import StringIO

import msgspec
import pytest
from rich.console import Console

from golow.programs.profiling.operators import OperatorTime
from golow.report import layers
from golow.report.profiling import roofline_table
from golow.report.profiling.table import render
from support.records import profiles

CONVOLUTION = OperatorTime(
    name="aten::mkldnn_convolution",
    sites=("/home/me/lenet.py:35", "/home/me/lenet.py:40"),
    calls=2,
    self_host=1.8e-3,
    total_host=1.8e-3,
    self_host_memory=203 * 1024,
)


@pytest.mark.parametrize("width", [72, 80, 100])
def test_the_line_of_an_operator_is_not_cut(width: int) -> None:
    level = msgspec.structs.replace(profiles.level("eager"), operators=(CONVOLUTION,))
    text = StringIO()
    render([profiles.profile([level])], console=Console(file=text, width=width))
    assert "your line" in text.getvalue()
    assert "lenet.py:35" in text.getvalue()
    assert "+1" in text.getvalue()


@pytest.mark.parametrize("module", [layers, roofline_table])
def test_the_console_breaks_the_lines_of_a_sentence(module: object) -> None:
    texts = [value for name, value in vars(module).items() if name.isupper()]
    sentences = [text for text in texts if isinstance(text, str) and ". " in text]
    assert sentences
    assert not [text for text in sentences if "\n" in text]
