"""Encoder-decoder models at the levels of a generation: sound levels match, and an old source is
caught."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import golow
from golow.levels.direct.onednn import level as onednn
from support.models.encoder_decoders import BART, T5, WHISPER
from support.places import SUPPORT

pytest.importorskip("transformers")

pytestmark = pytest.mark.usefixtures("forked")

PLANTED = SUPPORT / "worker_programs" / "planted_sources.py"


def configuration(folder: Path, values: dict[str, object]) -> str:
    file = folder / "config.json"
    file.write_text(json.dumps(values))
    return f"hf:{file}"


@pytest.mark.slow
@pytest.mark.parametrize("values", [T5, WHISPER], ids=["t5", "whisper"])
def test_sound_levels_match_and_an_old_source_is_caught(
    values: dict[str, object], tmp_path: Path
) -> None:
    also = ["onednn"] if values is WHISPER and onednn.probe().available else []
    result = golow.generate(
        configuration(tmp_path, values),
        pretrained=False,
        prompt=9 if values is T5 else None,
        tokens=6,
        batch=2,
        threads=1,
        seconds=0.1,
        levels=["eager", *also],
        workers={"old-source": [sys.executable, str(PLANTED)]},
        quiet=True,
    )
    (case,) = result.generation.cases
    runs = {run.level: run for run in case.runs}
    for level in ("eager", "eager:static", *also):
        assert runs[level].verdict == "match", runs[level].reason
        assert runs[level].replayed >= 2 * 6
    assert runs["old-source"].verdict == "differs"
    assert "output" in runs["old-source"].reason
    assert case.workload.encoder == ("tokens" if values is T5 else "features")
    assert case.workload.encoder_bytes > 0


@pytest.mark.parametrize(
    ("values", "asked", "said"),
    [
        (WHISPER, {"prompt": 8}, "features of one size"),
        (WHISPER, {"tokens": 40}, "positions for 40 tokens"),
        (BART, {"prompt": 41}, "a source of 41"),
    ],
)
def test_what_is_not_possible_is_refused(
    values: dict[str, object], asked: dict[str, object], said: str, tmp_path: Path
) -> None:
    options = {"tokens": 4, **asked}
    with pytest.raises(golow.GolowError, match=said):
        golow.generate(
            configuration(tmp_path, values), pretrained=False, threads=1, quiet=True, **options
        )
