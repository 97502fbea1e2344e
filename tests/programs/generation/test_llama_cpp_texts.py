"""llama.cpp generates texts from a GGUF file with the weights of the model."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import golow
from golow.levels.generation import gguf_file
from golow.levels.generation.gguf_file import LLAMA, Architecture, write_gguf
from golow.levels.generation.llama_cpp import LlamaCpp
from golow.levels.generation.table import LEVELS
from golow.records.errors import Unsupported
from golow.records.text import TextPrecision, TextWorkload
from golow.records.workload import ModelSource
from support.models.text_models import DECODER, OwnStep, varied_gpt2

(ROW,) = (level for level in LEVELS if level.name == "llama.cpp")
SHORT = {"prompt": 6, "tokens": 8, "threads": 1, "seconds": 0.1, "quiet": True}
WORK = TextWorkload(
    model="llama", source=ModelSource(kind="huggingface", name="llama"), vocabulary=97, batch=1,
    prompt=6, tokens=2,
)  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": True},
    "mistral": {"architectures": ["MistralForCausalLM"], "sliding_window": 32},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"]},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "head_dim": 16},
}

runs_llama_cpp = pytest.mark.skipif(
    not ROW.probe().available, reason="llama-cpp-python and gguf are not installed"
)


class Other(nn.Module):
    """As a model from transformers looks, of another kind."""

    config = SimpleNamespace(model_type="gemma2")

    def generate(self) -> None:
        """Nothing."""


def generated(file: Path, kind: str, **options: Any) -> golow.GenerationResult:
    pytest.importorskip("transformers")
    file.write_text(json.dumps(DECODER | MODELS[kind] | {"model_type": kind}))
    given = {**SHORT, "levels": ["llama.cpp"], "batch": 2, **options}
    return golow.generate(f"hf:{file}", pretrained=False, **given)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (OwnStep(), "has its own caches"),
        (Other(), "qwen3.*, not gemma2"),
        (varied_gpt2(), "GELU in float16"),
    ],
)
def test_other_models_are_refused_by_name(module: nn.Module, reason: str, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=reason):
        write_gguf(module, tmp_path / "model.gguf")
    assert not list(tmp_path.iterdir())


class Projected(nn.Module):
    """A layer whose weight and bias tell their rows."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(1, 8)
        self.q_proj.weight.data = torch.arange(8.0)[:, None]
        self.q_proj.bias.data = torch.arange(8.0)


def test_rotated_halves_become_neighbours() -> None:
    known = gguf_file.Known(LLAMA, 1, {}, heads=2, groups=1)
    found: dict[str, Tensor] = dict(gguf_file._tensors(Projected(), known))
    assert found["q_proj.bias"].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert found["q_proj.weight"][:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


@runs_llama_cpp
@pytest.mark.slow
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("precision", ["default", "bf16"])
def test_its_texts_are_proved_as_those_of_other_levels(
    kind: str, precision: TextPrecision, tmp_path: Path
) -> None:
    run = generated(tmp_path / "config.json", kind, precision=precision).level("llama.cpp")
    assert run.verdict == "match", run.reason
    assert run.token is not None


@runs_llama_cpp
@pytest.mark.slow
@pytest.mark.parametrize("pairs", [True, False])
def test_another_order_of_rotated_rows_is_another_model(
    pairs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**DECODER)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    monkeypatch.setitem(gguf_file.ARCHITECTURES, "llama", Architecture("llama", pairs))
    write_gguf(model, tmp_path / "model.gguf")
    found = LlamaCpp(tmp_path / "model.gguf", WORK).prefill(torch.tensor([[5, 3, 8, 1, 7, 2]]))
    with torch.no_grad():
        wanted = model(torch.tensor([[5, 3, 8, 1, 7, 2]])).logits[:, -1]
    off = float((found - wanted).abs().max() / wanted.abs().max())
    assert off < 1e-5 if pairs else off > 1e-2


@runs_llama_cpp
@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_gpt2_and_texts_of_different_lengths() -> None:
    result = golow.generate(
        varied_gpt2(), levels=["llama.cpp"], precision="bf16", text=["The ", "In the beginning "],
        **{**SHORT, "prompt": None},
    )  # fmt: skip
    run = result.level("llama.cpp")
    assert run.verdict == "match", run.reason


@runs_llama_cpp
@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_text_beyond_the_window_is_refused(tmp_path: Path) -> None:
    result = generated(tmp_path / "config.json", "mistral", prompt=30)
    assert "no more than 32 tokens" in result.level("llama.cpp").reason
