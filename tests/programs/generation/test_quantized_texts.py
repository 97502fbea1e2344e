"""Texts of networks that `golow generate` quantises first, with and without a calibration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import golow
from golow.data import text as own_text
from golow.models.gpt2 import Gpt2, Gpt2Sizes
from golow.records.text import TextPrecision
from golow.report.generation.facts import conditions, proof, remarks
from golow.workload.generation.request import TextRequest
from golow.workload.generation.sources import prepare_text
from golow.workload.quantization.quantize import quantized
from support.models.text_models import OwnStep, varied_gpt2

pytestmark = pytest.mark.usefixtures("forked")

SIZES = Gpt2Sizes(vocabulary=256, positions=32, width=64, layers=1, heads=2)
PLAY = own_text.load()[:4000].decode()


def gpt2() -> Gpt2:
    torch.manual_seed(0)
    return Gpt2(SIZES).eval()


@pytest.mark.slow
def test_a_level_matches_the_quantised_network() -> None:
    result = golow.generate(
        varied_gpt2(), precision="int8-weights", levels=[], prompt=3, tokens=3, threads=1,
        seconds=0.1, quiet=True,
    )  # fmt: skip
    (case,) = result.generation.cases
    assert [(run.level, run.verdict) for run in case.runs] == [("eager:static", "match")]
    layers = len(case.workload.source.quantized)
    assert f"of them quantised, in {layers} layers" in conditions(result.generation)
    assert "in float64 by the quantised network" in proof(result.generation)
    assert not any("nearest" in said for said in remarks(result.generation))


def test_rounding_learns_from_a_text(tmp_path: Path) -> None:
    file = tmp_path / "play.txt"
    file.write_text(PLAY)
    asked = TextRequest(gpt2(), precision="int4-weights", prompt=4, tokens=4)
    learnt = prepare_text(replace(asked, calibrate=file))
    runs = torch.tensor(list(PLAY.encode())).reshape(-1, 32)
    wanted = quantized(gpt2(), "int4-weights", lambda: [(runs,)]).module
    nearest, ids = prepare_text(asked).module, runs[-8:]
    with torch.no_grad():
        original, own = gpt2()(ids), learnt.module(ids)
        torch.testing.assert_close(own, wanted(ids), rtol=1e-3, atol=1e-3)
        assert (own - original).norm() < 0.8 * (nearest(ids) - original).norm()
    [work] = learnt.workloads
    assert work.calibration is not None
    assert (work.calibration.samples, work.calibration.data) == (125, "play.txt, 32 tokens each")


@pytest.mark.parametrize(
    ("precision", "named", "said"),
    [
        ("default", "text", 'calibrate= does not apply to precision="default"'),
        ("int8-weights", "text", "which learns nothing"),
        ("int4-weights", "nowhere.txt", "there is no file"),
        ("int4-weights", "empty.txt", "is empty"),
        ("int4-weights", "latin.txt", "is not UTF-8"),
    ],
)
def test_a_text_without_use_is_refused(
    precision: TextPrecision, named: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "latin.txt").write_bytes(b"\xe9")
    place = named if named == "text" else tmp_path / named
    with pytest.raises(golow.GolowError, match=said):
        prepare_text(TextRequest(gpt2(), precision=precision, calibrate=place))


def test_a_model_without_tokens_learns_from_no_text() -> None:
    asked = TextRequest(OwnStep(), batch=(2,), precision="fp8-weights", calibrate="text")
    with pytest.raises(golow.GolowError, match="has no tokens for a text, so golow cannot"):
        prepare_text(asked)
