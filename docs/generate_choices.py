"""Writes the page of choices: how they work, and the list from the code.

    python docs/generate_choices.py > docs/use/choices.md

``tests/levels/choices/test_choices.py`` fails when the file is not what this prints.
"""

from __future__ import annotations

from golow.levels.choices import Choice, all_choices
from golow.report.choices import lines_to_paste

HEAD = """<!-- written by docs/generate_choices.py; do not edit -->
# Choices

After reading this page, you can find settings that were decided for you, change them at any level,
and add a choice.

A *choice* is something that a framework, a library or the system decides unless you do. Its
*alternatives* are its other values. Append as many of them as you like to a level's name:

```
golow compare resnet50 --levels eager,eager+malloc_keep,libtorch,libtorch+flush_denormals
golow choices --level eager --mode train   # the choices in effect there
golow choices allocator                    # one of them, with the lines to paste
```

The order does not matter, and two alternatives of one choice are refused. A variant of a level is
an alternative, too: `eager+channels_last` is `eager:channels_last`.

An alternative is set by the worker's environment, by a call in the worker before it loads, or by
the level's variant. The worker then reads the value in effect from the process itself: a flag of
the library, an address in memory, a computed number. Where there is no other source
(`openmp_waiting`, and oneDNN's cache inside PyTorch), it reads the environment. If the value is
not the requested one, the level is *unavailable* and is not timed. The record of every run has the
values in effect (`choices`). Results are checked in any case.

Three values are set by golow, not by a framework: its clock turns Python's garbage collector off
while it times, its LibTorch program keeps freed memory, and its `torchscript` level
freezes the module.

## Add a choice

Add a file with a `CHOICES` tuple to `src/golow/levels/choices/`; golow scans the folder.
`choice.py` there describes the fields. `read` runs in the Python worker and gets its program; once
an alternative is set, it must return that alternative's `value`. For LibTorch, add a reader and a
setter with the same names to `levels/libtorch/sources/cpu_choices.h`. Then generate this page again
with `python docs/generate_choices.py > docs/use/choices.md`.

## The list
"""


def page() -> str:
    """The page: how choices work, then each with its alternatives."""
    return HEAD + "".join(map(_section, all_choices()))


def _section(choice: Choice) -> str:
    rows = [
        f"\n### {choice.name}\n",
        f"What it decides: {choice.summary}. Made by: {choice.made_by} ({choice.where}). "
        f"Levels: {', '.join(choice.levels)}; {' and '.join(choice.modes)}; "
        f"{' and '.join(choice.devices)}.",
    ]
    if choice.costs:
        rows.append(f"Cost of the alternatives: {choice.costs}.")
    rows += ["", "| alternative | what it is | how to set it |", "|---|---|---|"]
    for one in choice.alternatives:
        lines = "; ".join(f"{kind}: `{text}`" for kind, text in lines_to_paste(one).items())
        rows.append(f"| `+{one.name}` | {one.summary} | {lines.replace('|', chr(92) + '|')} |")
    if not choice.alternatives:
        rows[-2:] = ["It is reported, not set."]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(page(), end="")
