"""An interrupt after the race, while other figures are taken: the race is kept."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import golow
from golow.observer import Silent


@pytest.mark.usefixtures("nobody_left", "forked")
def test_an_interrupt_after_the_race_keeps_it(tmp_path: Path) -> None:
    class Impatient(Silent):
        def stage(self, text: str) -> None:
            if text == "measuring memory, energy and layers":
                raise KeyboardInterrupt

    with pytest.raises(golow.Interrupted) as raised:
        golow.compare(
            nn.Linear(64, 64, bias=False),
            torch.randn(8, 64),
            levels=["eager"],
            workers={"twin": [sys.executable, "-m", "golow.worker.plant", "--products", "1"]},
            threads=1,
            time_limit=0.1,
            cache=tmp_path,
            observer=Impatient(),
        )
    found = raised.value.result.comparison
    assert found.race.rounds > 0
    for run in found.runs:
        assert run.check.verdict == "match"
        assert len(run.blocks) == found.race.rounds
        assert run.time is not None
