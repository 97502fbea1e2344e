"""An option that would have no effect is refused, before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from golow.programs.comparison import store
from support.command import golow
from support.records import studies

RESUME = ("train", "--resume", "nowhere")
REFUSED = [
    ((*RESUME, "--epochs", "20"), "--resume uses the settings of the training run, so --epochs"),
    ((*RESUME, "--levels", "eager"), "leave out --levels, or leave out --resume."),
    ((*RESUME, "--learning-rate", "0.001"), "so --learning-rate has no effect"),  # its default
    (("train", "lenet5", "--dataset", "digits", "--trust"), "--trust needs --resume FOLDER"),
    (("train", "lenet5", "--dataset", "digits", "--factor", "1"), "--factor needs --schedule step"),
    (("profile", "--diff", "a", "b", "--levels", "eager"), "so --levels has no effect"),
    (("profile", "--diff", "a", "b", "--sort", "calls"), "leave out --sort, or leave out --diff."),
    (("profile", "mlp", "--way-down", "1", "--by", "layer"), "--way-down counts the calls of one"),
    (("lower", "mlp", "--no-measure"), "add --roof, or leave out --no-measure."),
    (("lower", "mlp", "--level", "onednn", "--top", "3"), "--top needs --roof or --verify"),
    (("profile", "mlp", "--precision", ""), "no precision is named"),
    (("profile", "mlp", "--precision", "default,bf16"), "the precision bf16 is for a GPU"),
    (("profile", "mlp", "--steps", "1000000000"), "1,000,000,000 steps is too large"),
    (("load", "mlp", "--scenario", "offline", "--rate", "5"), "--rate is for the server scenario"),
    (("load", "mlp", "--scenario", "offline", "--latency", "1s"), "add server to --scenario, or"),
    (("load", "mlp", "--rate", "1e-320"), "--rate must be from 0.001 to 1,000,000"),
    (("load", "mlp", "--seconds", "1e300"), "--seconds must be above 0, up to a day"),
    (("load", "mlp", "--latency", "9999999999999s"), "--latency must be above 0, up to a day"),
    (("show", "RECORD", "--by", "layer"), "--by-layer shows the layers of a comparison."),
    (("show", "RECORD", "--top", "3"), "--top is for profiles, but RECORD is a different kind"),
    (("run", "RECORD/runs.csv", "--check", "--input", "x"), "--input x has no effect with --check"),
    (("run", "RECORD", "--check"), "RECORD is a folder, not a file"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a comparison, named ``RECORD``."""
    made = tmp_path_factory.mktemp("records")
    store.save(studies.comparison(), made).rename(made / "RECORD")
    return made


@pytest.mark.parametrize(("typed", "said"), REFUSED, ids=[" ".join(r[0]) for r in REFUSED])
def test_an_option_without_effect_is_refused(
    typed: tuple[str, ...], said: str, folder: Path
) -> None:
    ended = golow(*typed, folder=folder)
    assert ended.status == 2, ended.output
    assert said in ended.error
    assert "Traceback" not in ended.error
