"""A configuration of transformers at the levels of a generation, with its dynamic and its static
cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import golow
from golow.workload.generation.request import TextRequest
from golow.workload.generation.sources import prepare_text
from golow.workload.generation.text_bundle import write_text_bundles
from support.models.text_models import DECODER

pytest.importorskip("transformers")

pytestmark = pytest.mark.usefixtures("forked")

CONFIGURATION = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    **DECODER,
}


def generated(file: Path, **options: Any) -> golow.GenerationResult:
    return golow.generate(
        f"hf:{file}", pretrained=False, threads=1, seconds=0.1, quiet=True, **options
    )


def test_a_configuration_generates_at_every_level_without_a_compiler(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIGURATION))
    result = generated(file, prompt=8, tokens=12, batch=2, levels=["eager"])
    runs = result.generation.cases[0].runs
    assert {run.level: run.verdict for run in runs} == {"eager": "match", "eager:static": "match"}
    with pytest.raises(golow.GolowError, match="no tokens for a text"):
        golow.generate(f"hf:{file}", pretrained=False, text="The ", threads=1, quiet=True)
    with pytest.raises(golow.GolowError, match="positions for 64 tokens"):
        golow.generate(f"hf:{file}", pretrained=False, prompt=60, threads=1, quiet=True)


@pytest.mark.slow
def test_experts_match_and_a_padding_token_whose_embedding_is_zero(tmp_path: Path) -> None:
    """The reference runs a grouped product that PyTorch lacks in float64; keys and values of the
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
    result = generated(file, prompt=5, tokens=4, levels=[])
    (case,) = result.generation.cases
    assert [run.verdict for run in case.runs] == ["match"]
    assert case.workload.cache_bytes == 2 * 2 * 8 * 4  # keys and values, heads, size, float32


class Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers the types in which normal numbers are drawn."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.types: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._opname == "normal_":
            self.types.add(args[0].dtype)
        return func(*args, **(kwargs or {}))


def test_a_workers_model_is_the_prepared_one_with_its_tied_weights(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIGURATION | {"tie_word_embeddings": True}))
    request = TextRequest(f"hf:{file}", pretrained=False, prompt=4, tokens=4, precision="bf16")
    with Draws() as draws:
        prepared = prepare_text(request)
    assert draws.types == {torch.bfloat16}
    assert {item.dtype for item in prepared.module.parameters()} == {torch.bfloat16}
    (bundle,) = write_text_bundles(prepared, tmp_path)
    drawn = torch.get_rng_state()
    module = bundle.module()
    assert torch.equal(torch.get_rng_state(), drawn)
    assert module.lm_head.weight is module.model.embed_tokens.weight
    tokens = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        assert torch.equal(module(tokens).logits, prepared.module(tokens).logits)
