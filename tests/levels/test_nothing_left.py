"""A comparison of levels that cannot run here ends at once, and says what to install."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from golow.levels.ladder import BASELINE, ChosenLevel, Launch, Level, Probe
from golow.levels.level_selection import require_any
from golow.records.errors import GolowError
from golow.workload.bundle import Bundle
from support.command import golow


def level(name: str, *, there: bool) -> ChosenLevel:
    """A level that needs a package of its own name."""

    def start(bundle: Bundle, variant: str, cache: Path) -> Launch:
        raise AssertionError("nothing is started")

    missing = Probe(False, f"{name} is not installed", f"pip install 'golow[{name}]'")
    return ChosenLevel(Level(name, "", "", lambda: Probe(True) if there else missing, start), "")


EAGER, HERE = level(BASELINE, there=True), level("here", there=True)
LACKING, ALSO = level("lacking", there=False), level("also", there=False)


def test_what_is_missing_and_its_fix_are_named() -> None:
    with pytest.raises(GolowError) as raised:
        require_any(["lacking", "also"], [EAGER, LACKING, ALSO], "cpu")
    assert raised.value.message == (
        "lacking cannot run here: lacking is not installed; "
        "also cannot run here: also is not installed"
    )
    assert raised.value.hint == "pip install 'golow[lacking]'; pip install 'golow[also]'"


@pytest.mark.parametrize(
    ("named", "chosen"),
    [
        (None, [EAGER, LACKING]),
        (["here", "lacking"], [EAGER, HERE, LACKING]),
        (["eager", "lacking"], [EAGER, LACKING]),
        (["eager"], [EAGER]),
        ([], [EAGER]),
    ],
)
def test_what_is_left_is_compared(named: Sequence[str] | None, chosen: list[ChosenLevel]) -> None:
    require_any(named, chosen, "cpu")


COMMANDS = (
    ("compare", "lenet5"), ("profile", "lenet5"), ("audit", "lenet5"),
    ("train", "lenet5", "--dataset", "digits"),
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_every_command_that_measures_says_it_before_it_prepares_anything(
    command: Sequence[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def probe_on(level: Level, device: str) -> Probe:
        return Probe(level.name == BASELINE, "something is not installed", "pip install something")

    monkeypatch.setattr(Level, "probe_on", probe_on)
    ended = golow(*command, "--levels", "torchscript", folder=tmp_path)
    assert (ended.status, ended.output) == (2, "")
    assert ended.error == (
        "golow: torchscript cannot run here: something is not installed\n  pip install something\n"
    )
    assert not [place for place in tmp_path.rglob("*") if place.is_file()]
