"""`f.roof()`: the steps of a compiled module's plan under the machine's roof."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import golow
from golow.api.explained_module import ExplainedModule
from golow.levels.direct.onednn.level import probe
from golow.measure.peak import Peak
from golow.programs.explain import roof as program
from golow.records.errors import GolowError
from support.direct.compiled_modules import X, network

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)


@pytest.fixture(autouse=True)
def _known_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "measured_peak", lambda *_: Peak(operations=1e9, bytes=1e9))


@pytest.fixture
def f(tmp_path: Path) -> ExplainedModule:
    made = golow.compile(network(), X, batch=[1, 4], threads=1, cache=tmp_path, quiet=True)
    assert isinstance(made, ExplainedModule)
    return made


@pytest.mark.slow
def test_every_step_of_an_iteration_is_timed(
    f: ExplainedModule, capsys: pytest.CaptureFixture[str]
) -> None:
    found = f.roof(quiet=True)
    plan = f.plans[4, 0].plan
    main = {position for position, step in enumerate(plan.steps) if not step.once}
    assert {step.position for step in found.rows} == main
    for step in found.rows:
        assert step.operation == plan.steps[step.position].operation
        assert step.seconds is not None
        assert 0 < step.seconds < 0.1
    lost = [step.lost for step in found.rows if step.lost is not None]
    assert lost == sorted(lost, reverse=True)
    assert found.roof.workload.inputs[0].shape == (4, 3, 12, 12)
    found.table()
    printed = capsys.readouterr().out
    assert "convolution" in printed
    assert "Sequential, inference, input 4x3x12x12 float32" in printed
    assert torch.equal(f(X), f(X.clone()))  # timing left its memory alone


@pytest.mark.slow
def test_the_rows_are_those_of_golow_roof(f: ExplainedModule, tmp_path: Path) -> None:
    own = f.roof(measure=False, quiet=True)
    other = golow.roof(
        network(), X, level="onednn", threads=1, measure=False, cache=tmp_path, quiet=True
    )
    assert own.rows == other.rows
    assert own.rows != f.roof(1, measure=False, quiet=True).rows


def test_a_size_without_a_plan_is_named(f: ExplainedModule) -> None:
    with pytest.raises(GolowError, match="no plan for batch 3"):
        f.roof(3, quiet=True)
    f.close()
    with pytest.raises(GolowError, match="closed"):
        f.roof(quiet=True)
