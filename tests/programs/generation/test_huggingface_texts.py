"""A configuration of transformers at the levels of a generation, with its dynamic and its static
cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import golow

pytest.importorskip("transformers")

pytestmark = pytest.mark.usefixtures("forked")

CONFIGURATION = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 97,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}


def test_a_configuration_generates_at_every_level_without_a_compiler(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIGURATION))
    result = golow.generate(
        f"hf:{file}",
        pretrained=False,
        prompt=8,
        tokens=12,
        batch=2,
        threads=1,
        seconds=0.1,
        levels=["eager"],
        quiet=True,
    )
    runs = result.generation.cases[0].runs
    assert {run.level: run.verdict for run in runs} == {"eager": "match", "eager:static": "match"}
    with pytest.raises(golow.GolowError, match="no tokens for a text"):
        golow.generate(f"hf:{file}", pretrained=False, text="The ", threads=1, quiet=True)
    with pytest.raises(golow.GolowError, match="positions for 64 tokens"):
        golow.generate(f"hf:{file}", pretrained=False, prompt=60, threads=1, quiet=True)


@pytest.mark.slow
def test_experts_match_and_a_padding_token_whose_embedding_is_zero(tmp_path: Path) -> None:
    """The reference runs a grouped product that PyTorch has not in float64; keys and values of the
    padding token are zeros, and count as written."""
    file = tmp_path / "config.json"
    experts = {
        "model_type": "mixtral",
        "architectures": ["MixtralForCausalLM"],
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "pad_token_id": 0,
        "num_hidden_layers": 1,
    }
    file.write_text(json.dumps({**CONFIGURATION, **experts}))
    result = golow.generate(
        f"hf:{file}",
        pretrained=False,
        prompt=5,
        tokens=4,
        threads=1,
        seconds=0.1,
        levels=[],
        quiet=True,
    )
    (case,) = result.generation.cases
    assert [run.verdict for run in case.runs] == ["match"]
    assert case.workload.cache_bytes == 2 * 2 * 8 * 4  # keys and values, heads, size, float32
