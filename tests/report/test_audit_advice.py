"""What a comparison advises: an audit, where a level is left with its defaults."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from golow.levels.choices import all_choices
from golow.records.comparison import Comparison, Run
from golow.records.workload import ModelSource
from golow.report.comparison import untried
from golow.report.comparison.advice import advice
from support.records.audits import (
    RACE,
    ratio,
    run,
)


def compared(*runs: Run) -> Comparison:
    return Comparison(
        format_version=1,
        id="c",
        created="",
        workload=runs[0].workload,
        race=RACE,
        runs=runs,
    )


EAGER = run("eager", ratio(1.0, "same"))
SLOWER = run("libtorch", ratio(1.25, "slower"))


def test_before_stay_with_eager_comes_what_was_not_tried() -> None:
    text = advice(compared(EAGER, SLOWER))
    assert text.startswith("Stay with eager for inference at this size: libtorch is not faster.")
    assert "Not tried: choices other than the defaults at libtorch" in text
    assert "allocator" in text
    command = "golow audit resnet50 --input 3x64x64 --batch 8 --threads 4000 --levels libtorch"
    assert f"`{command} --quick` tries them." in text


def test_choices_that_took_part_were_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one choice only, so that this does not depend on those that are added."""
    [allocator] = [one for one in all_choices() if one.name == "allocator"]
    two = tuple(
        one for one in allocator.alternatives if one.name in ("malloc_keep", "malloc_return")
    )
    monkeypatch.setattr(untried, "all_choices", lambda: (replace(allocator, alternatives=two),))
    kept = msgspec.structs.replace(SLOWER, choices={"allocator": "glibc, keeps memory"})
    returned = run("libtorch+malloc_return", ratio(1.5, "slower"))
    assert "Not tried" in advice(compared(EAGER, kept))
    assert "Not tried" not in advice(compared(EAGER, kept, returned))
    other = run("eager:channels_last", ratio(1.2, "slower"))
    assert "Not tried" not in advice(compared(EAGER, other))


def test_a_live_module_gets_a_line_of_python() -> None:
    source = ModelSource(kind="pickle", name="Net")
    live = msgspec.structs.replace(SLOWER.workload, source=source)
    shown = msgspec.structs.replace(compared(EAGER, SLOWER), workload=live)
    assert 'golow.audit(model, ..., levels=["libtorch"], quick=True) tries them.' in advice(shown)


def test_a_faster_level_needs_no_such_advice() -> None:
    faster = run("libtorch", ratio(0.8, "faster"))
    text = advice(compared(EAGER, faster))
    assert text.startswith("Use libtorch") and "Not tried" not in text
