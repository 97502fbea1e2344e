"""`golow generate --device cuda`: every level in every precision, proved and timed, with roof and
energy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import golow
from golow.levels.generation.table import LEVELS
from golow.measure.gpu.joules import Joules
from golow.measure.gpu.nvml import Card
from golow.records.text import TextPrecision
from support.models.text_models import varied_gpt2

if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

NAMES = [level.name for level in LEVELS if "cuda" in level.devices]
PRECISIONS: tuple[TextPrecision, ...] = ("default", "tf32", "bf16", "fp16")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_level_matches(precision: TextPrecision) -> None:
    result = golow.generate(
        varied_gpt2(), device="cuda", precision=precision, prompt=6, tokens=10, batch=[1, 2],
        seconds=0.5, quiet=True,
    )  # fmt: skip
    for case in result.generation.cases:
        found = {run.level: f"{run.verdict} {run.reason}".strip() for run in case.runs}
        assert found == dict.fromkeys(NAMES, "match")
        assert all(run.token is not None for run in case.runs)


def test_roof_energy_and_memory_are_those_of_the_gpu() -> None:
    result = golow.generate(
        varied_gpt2(), device="cuda", levels=["cudnn"], prompt=6, tokens=10, seconds=0.5, quiet=True
    )
    rate = result.generation.read_rate
    assert rate is not None
    assert rate.value > 1e11  # bytes per second: no CPU reads as many
    with Card() as card:
        counted = bool(list(Joules(card).spent()))
    run = result.level("cudnn")
    assert (run.energy is not None) == counted


def test_drawn_tokens_are_proved_too() -> None:
    result = golow.generate(
        varied_gpt2(), device="cuda", levels=["cudnn", "compile:static-cudagraphs"],
        temperature=0.9, top_k=50, top_p=0.9, prompt=6, tokens=10, seconds=0.5, quiet=True,
    )  # fmt: skip
    verdicts = {run.level: run.verdict for run in result.generation.cases[0].runs}
    assert set(verdicts.values()) == {"match"}


LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 3,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 4096,
    "max_position_embeddings": 4096,
    "initializer_range": 0.1,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_llama_of_five_kernels_a_layer(precision: TextPrecision, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA))
    result = golow.generate(
        f"hf:{file}", pretrained=False, device="cuda", precision=precision, prompt=200, tokens=40,
        levels=["eager", "compile:static-cudagraphs", "cudnn"], seconds=0.5, quiet=True,
    )  # fmt: skip
    runs = result.generation.cases[0].runs
    found = {run.level: f"{run.verdict} {run.reason}".strip() for run in runs}
    assert set(found.values()) == {"match"}, found
