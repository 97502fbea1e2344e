"""Steps of encoder-decoder models from transformers give the logits of a whole pass, and count what
they read."""

from __future__ import annotations

import pytest
import torch

from golow.records.errors import GolowError
from golow.workload.generation.encoder_decoder_step import (
    EncoderDecoderGrowing,
    EncoderDecoderStep,
)
from golow.workload.generation.encoder_sources import (
    require_generating,
    require_sources,
    source_of,
)
from golow.workload.generation.request import TextRequest
from golow.workload.quantization.quantize import quantized
from support.models.encoder_decoders import VOCABULARY, encoder_decoder, whole_pass

transformers = pytest.importorskip("transformers")

BATCH, SOURCE, LENGTH = 2, 7, 6


@pytest.mark.parametrize("kind", ["t5", "bart", "whisper"])
def test_a_step_gives_the_logits_of_a_whole_pass(kind: str) -> None:
    model = encoder_decoder(kind).double()
    step = EncoderDecoderStep(model, BATCH, SOURCE, LENGTH + 2).double()
    growing = EncoderDecoderGrowing(model)
    for _ in range(2):  # the second source replaces the first one
        prompt = torch.randint(VOCABULARY, (BATCH, SOURCE))
        start, source = step.beginning(prompt)
        tokens = torch.cat([start, torch.randint(VOCABULARY, (BATCH, LENGTH))], 1)
        whole = whole_pass(model, source, tokens)
        found = [step(start, torch.tensor(0), source), growing.prefill(prompt)]
        for place in range(1, LENGTH + 1):
            for logits in found:
                torch.testing.assert_close(logits, whole[:, place - 1], atol=1e-9, rtol=1e-9)
            part = tokens[:, place : place + 1]
            found = [step(part, torch.tensor(place)), growing.step(part, SOURCE + place - 1)]
        several = step(tokens[:, 2:5], torch.tensor(2))
        torch.testing.assert_close(several, whole[:, 4], atol=1e-9, rtol=1e-9)


def test_what_a_step_reads_is_counted() -> None:
    model = encoder_decoder("t5")
    step = EncoderDecoderStep(model, BATCH, SOURCE, LENGTH)
    (block,) = model.decoder.block
    unread = (block.layer[1].EncDecAttention.k, block.layer[1].EncDecAttention.v)
    unread_bytes = sum(layer.weight.nbytes for layer in unread)
    unread_bytes += block.layer[0].SelfAttention.relative_attention_bias.weight.nbytes
    # The table of the tokens is the output layer, too.
    read = sum(weight.nbytes for weight in model.decoder.parameters()) - unread_bytes
    assert step.weight_bytes() == read
    width = 4 * 8 * 4  # heads, their size, and bytes of a number
    assert step.token_bytes() == 2 * width * BATCH
    assert step.source_bytes() == 2 * width * BATCH * SOURCE
    assert step.vocabulary() == VOCABULARY


def test_features_are_drawn_with_the_number_of_a_prompt() -> None:
    model = encoder_decoder("whisper")
    first, again, other = (source_of(model, torch.tensor([[seed]])) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (1, 8, 24)


def test_models_whose_texts_have_no_beginning_are_refused() -> None:
    with pytest.raises(GolowError, match="has no logits"):
        require_generating(encoder_decoder("t5").get_encoder(), "T5Stack")
    model = encoder_decoder("t5")
    model.config.decoder_start_token_id = None
    model.generation_config.decoder_start_token_id = None
    with pytest.raises(GolowError, match="decoder_start_token_id"):
        require_generating(model, "T5")
    model = encoder_decoder("bart")
    model.get_encoder().main_input_name = "pixel_values"
    with pytest.raises(GolowError, match="reads pixel_values"):
        require_generating(model, "Donut")


def test_a_precision_in_which_a_model_fails_is_refused() -> None:
    made = quantized(encoder_decoder("t5"), "fp8-weights", tuple)
    with pytest.raises(GolowError, match="cannot begin a text"):
        EncoderDecoderStep(made.module, BATCH, SOURCE, LENGTH)


def test_a_gpu_and_sources_of_different_lengths_are_refused() -> None:
    model = encoder_decoder("t5")
    with pytest.raises(GolowError, match="on a CPU only"):
        require_sources(model, "T5", TextRequest("t5", device="cuda"), SOURCE, ())
    with pytest.raises(GolowError, match="4 and 7 tokens"):
        require_sources(model, "T5", TextRequest("t5"), SOURCE, (7, 4, 7))
