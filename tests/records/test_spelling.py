"""Errors name options on the command line, and arguments in Python."""

import pytest

from golow.records.errors import GolowError
from golow.records.spelling import in_python


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("use --batch 1 or more.", "use batch=1 or more."),
        ("use --interval 0.02 or so.", "use interval=0.02 or so."),
        ("write it as --fail-above 5%; equal", "write it as fail_above=5%; equal"),
        ("use a smaller --batch, --resolution or", "use a smaller batch=, resolution= or"),
        ("--epsilon -1e-08 is negative", "epsilon=-1e-08 is negative"),
        ("--clip inf is not a norm", "clip=inf is not a norm"),
        ("add --device cuda.", 'add device="cuda".'),
        ("use --levels eager", 'use levels=["eager"]'),
        ("give --input 3x224x224.", "give input_shape=(3, 224, 224)."),
        ("add --download to download them", "add download=True to download them"),
        ("--random-weights alone", "pretrained=False alone"),
        ("--way-down looks at a forward pass", "way_down= looks at a forward pass"),
        ("--cold empties the cache", "cold=True empties the cache"),
        ("name another folder with --out.", "name another folder."),
        ("leave out --precision.", "leave out precision=."),
        ("as `golow compare --life` does", "as `golow compare --life` does"),
        ("golow train --resume runs/a --trust", "golow train --resume runs/a --trust"),
        ("pip install --upgrade golow", "pip install --upgrade golow"),
        ("cores 0--3, well-known", "cores 0--3, well-known"),
    ],
)
def test_options_become_arguments_and_commands_stay(message: str, shown: str) -> None:
    assert in_python(message) == shown


def test_an_error_has_the_words_of_both_interfaces() -> None:
    error = GolowError("--batch 0 is too small", "use --batch 1.")
    assert str(error) == "batch=0 is too small\n  use batch=1."
    assert (error.message, error.hint) == ("--batch 0 is too small", "use --batch 1.")
    other = GolowError("no input", "give --input 3x4.", python_hint="give example_inputs=.")
    assert str(other) == "no input\n  give example_inputs=."
    assert other.hint == "give --input 3x4."
