"""Causal models from transformers with their static and their dynamic cache give the logits of a
whole pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from golow.workload.generation.huggingface_step import HuggingFaceGrowing, HuggingFaceStep

transformers = pytest.importorskip("transformers")

VOCABULARY, BATCH, PROMPT, LENGTH = 97, 2, 9, 16
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "GPT2Config": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY},
    "LlamaConfig": SIZES,
    "Qwen2Config": SIZES,
    "MistralConfig": {**SIZES, "sliding_window": 6},
    "Gemma2Config": {**SIZES, "head_dim": 8, "sliding_window": 6},
    "GPTNeoXConfig": {n: v for n, v in SIZES.items() if n != "num_key_value_heads"},
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_step_gives_the_logits_of_a_whole_pass(name: str) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, name)(**CONFIGURATIONS[name])
    model = transformers.AutoModelForCausalLM.from_config(config).eval().double()
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH))
    with torch.no_grad():
        whole = model(tokens).logits
        static = HuggingFaceStep(model, BATCH, LENGTH + 4).double()
        growing = HuggingFaceGrowing(model)
        for _ in range(2):  # a second text is not disturbed by the first one
            found = [
                static(tokens[:, :PROMPT], torch.tensor(0)),
                growing.prefill(tokens[:, :PROMPT]),
            ]
            for place in range(PROMPT, LENGTH):
                for logits in found:
                    torch.testing.assert_close(logits, whole[:, place - 1], atol=1e-6, rtol=1e-6)
                part = tokens[:, place : place + 1]
                found = [static(part, torch.tensor(place)), growing.step(part, place)]
    assert {f"keys_{layer}" for layer in range(2)} <= {name for name, _ in static.named_buffers()}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_texts_go_on_at_positions_of_their_own(name: str) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, name)(**CONFIGURATIONS[name])
    model = transformers.AutoModelForCausalLM.from_config(config).eval().double()
    tokens, lengths = torch.randint(VOCABULARY, (BATCH, LENGTH)), (PROMPT, PROMPT - 4)
    with torch.no_grad():
        whole = model(tokens).logits
        step = HuggingFaceStep(model, BATCH, LENGTH).double()
        step(tokens[:, :PROMPT], torch.zeros(BATCH, 1, dtype=torch.int64))
        for more in range(4):
            ends = [length + more for length in lengths]
            last = torch.stack([tokens[row, end] for row, end in enumerate(ends)])
            logits = step(last[:, None], torch.tensor(ends)[:, None])
            expected = torch.stack([whole[row, end] for row, end in enumerate(ends)])
            torch.testing.assert_close(logits, expected, atol=1e-6, rtol=1e-6)
        growing, near = HuggingFaceGrowing(model), 1e-6
        if model.config._attn_implementation == "eager":
            # Its softmax is in float32, where the lowest float64 is -inf and gives NaN to padding.
            growing, near = HuggingFaceGrowing(model.float()), 1e-4
        logits = growing.prefill_apart([tokens[0, :PROMPT], tokens[1, : PROMPT - 4]])
        for more in range(4):
            ends = [length + more for length in lengths]
            expected = torch.stack([whole[row, end - 1] for row, end in enumerate(ends)])
            torch.testing.assert_close(logits.double(), expected, atol=near, rtol=near)
            last = torch.stack([tokens[row, end] for row, end in enumerate(ends)])
            logits = growing.step(last[:, None], PROMPT + more)
