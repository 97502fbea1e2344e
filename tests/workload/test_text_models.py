"""The zoo's models for text and recommendations: published sizes and names, made-up inputs, and
what is refused. Large models live on the meta device."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from golow import models
from golow.levels.libtorch.emit import emit_program
from golow.levels.torch import bundle as torch_bundle
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.lower.recognise.recurrences import unfold_recurrences
from golow.models import ZOO, criteo, gpt2
from golow.models.dlrm import Dlrm, DlrmSizes
from golow.models.gpt2 import Gpt2Sizes
from golow.models.initialise import initialise
from golow.models.llama import LlamaSizes, Rotation
from golow.programs.comparison.repeat_command import again
from golow.records.workload import Mode
from golow.workload.bundle import write_bundle
from golow.workload.graph_capture import capture
from golow.workload.inputs import make_inputs
from golow.workload.losses import mse_of_outputs, token_cross_entropy
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.examples import examples
from support.models.model_files import refusal
from support.models.tiny_models import (
    BATCH,
    BUILDERS,
    SEQUENCE,
    VOCABULARY,
    built,
    inputs_of,
    loss_of,
)

NAMES = [name for name, entry in ZOO.items() if not entry.takes_images]


def on_meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return models.build(name)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# ---------------------------------------------------------------- sizes and names


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("bert_base", 109_482_240),  # transformers: BertModel of bert-base-uncased
        ("gpt2_small", 124_439_808),  # transformers: GPT2LMHeadModel of gpt2
        ("gnmt", 160_671_297),  # NVIDIA apex, tests/L0/run_optimizers: "MLPerf GNMT has"
        ("ncf", 31_832_577),  # 165,237 x (64 + 128) + 65,792 + 32,896 + 8,256 + 129
        ("lstm", 2 * 10_000 * 650 + 10_000 + 2 * (8 * 650 * 650 + 8 * 650)),  # "20M" in the paper
        ("llama_tiny", 2 * 256**2 + 6 * (3 * 256**2 + 3 * 256 * 688 + 512) + 256),
    ],
)
def test_parameters_are_as_published(name: str, published: int) -> None:
    assert count(on_meta(name)) == ZOO[name].parameters == published


def test_dlrm_has_the_published_size_without_its_limit() -> None:
    """540 million: 33,762,577 rows of 16 (facebookresearch/dlrm), and the linear layers."""
    assert sum(criteo.ROWS) == 33_762_577
    linear = 14 * 512 + 513 * 256 + 257 * 64 + 65 * 16 + (367 + 1) * 512 + 513 * 256 + 257
    with torch.device("meta"):
        assert count(Dlrm(DlrmSizes(rows=criteo.ROWS))) == 33_762_577 * 16 + linear
    assert count(on_meta("dlrm_small")) == ZOO["dlrm_small"].parameters
    assert ZOO["dlrm_small"].parameters == sum(criteo.capped()) * 16 + linear


def gpt2_block(number: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    for layer, shape in (
        ("ln_1", (768,)),
        ("attn.c_attn", (2304, 768)),
        ("attn.c_proj", (768, 768)),
        ("ln_2", (768,)),
        ("mlp.c_fc", (3072, 768)),
        ("mlp.c_proj", (768, 3072)),
    ):
        yield f"transformer.h.{number}.{layer}.weight", shape
        yield f"transformer.h.{number}.{layer}.bias", shape[:1]


def test_gpt2_has_the_names_of_transformers() -> None:
    expected = [("transformer.wte.weight", (50257, 768)), ("transformer.wpe.weight", (1024, 768))]
    for number in range(12):
        expected += gpt2_block(number)
    expected += [("transformer.ln_f.weight", (768,)), ("transformer.ln_f.bias", (768,))]
    expected += [("lm_head.weight", (50257, 768))]
    found = on_meta("gpt2_small").state_dict()
    assert [(name, tuple(tensor.shape)) for name, tensor in found.items()] == expected


@pytest.mark.parametrize(
    ("model", "name", "shape"),
    [
        ("bert_base", "embeddings.token_type_embeddings.weight", (2, 768)),
        ("bert_base", "encoder.layer.11.attention.self.query.weight", (768, 768)),
        ("bert_base", "encoder.layer.0.attention.output.LayerNorm.bias", (768,)),
        ("bert_base", "encoder.layer.3.intermediate.dense.weight", (3072, 768)),
        ("bert_base", "pooler.dense.bias", (768,)),
        ("llama_tiny", "model.layers.5.self_attn.k_proj.weight", (128, 256)),
        ("llama_tiny", "model.layers.0.post_attention_layernorm.weight", (256,)),
        ("llama_tiny", "model.layers.0.mlp.down_proj.weight", (256, 688)),
        ("lstm", "rnn.weight_hh_l1", (2600, 650)),
        ("gnmt", "encoder.rnn_layers.0.weight_ih_l0_reverse", (4096, 1024)),
        ("gnmt", "decoder.att_rnn.attn.linear_att", (1024,)),
        ("gnmt", "decoder.rnn_layers.2.weight_ih_l0", (4096, 2048)),
        ("ncf", "mlp_item_embed.weight", (26744, 128)),
        ("dlrm_small", "emb_l.25.weight", (100_000, 16)),
        ("dlrm_small", "top_l.0.weight", (512, 367)),
    ],
)
def test_state_dict_has(model: str, name: str, shape: tuple[int, ...]) -> None:
    assert tuple(on_meta(model).state_dict()[name].shape) == shape


def test_what_is_computed_once_is_not_in_the_state_dict() -> None:
    assert not {"cosines", "sines", "first", "second"} & {
        name.rpartition(".")[2]
        for family in ("llama", "dlrm")
        for name in built(family).state_dict()
    }


# ---------------------------------------------------------------- what they compute


@pytest.mark.parametrize("family", BUILDERS)
def test_every_parameter_has_a_gradient(family: str) -> None:
    prepared = prepare(
        Request(built(family), inputs_of(family), mode="train", loss=loss_of(family))
    )
    assert prepared.loss is not None
    [batch, *_] = prepared.batches
    prepared.loss(prepared.module(*batch.inputs), *batch.targets).backward()
    for name, parameter in prepared.module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.slow
@pytest.mark.parametrize("family", BUILDERS)
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_every_family_is_captured_and_emitted(family: str, mode: Mode) -> None:
    loss = loss_of(family) if mode == "train" else None
    prepared = prepare(Request(built(family), inputs_of(family), mode=mode, loss=loss))
    graph = apply(capture(prepared).graph, (unfold_recurrences, *CLEAN_UP))
    program = emit_program(graph)
    for position in range(len(prepared.workload.inputs)):
        assert f"batch.input({position})" in program


@pytest.mark.parametrize("family", ["gpt2", "llama", "lstm"])
def test_no_token_sees_a_later_one(family: str) -> None:
    model, [tokens] = built(family).eval(), inputs_of(family)
    changed = tokens.clone()
    changed[:, 3] = (changed[:, 3] + 1) % VOCABULARY
    before, after = model(tokens), model(changed)
    assert before.shape == (BATCH, SEQUENCE, VOCABULARY)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert (before[:, 3:] - after[:, 3:]).abs().amax(dim=(0, 2)).min() > 1e-4


@pytest.mark.parametrize(("family", "position"), [("bert", 0), ("gnmt", 0)])
def test_padding_is_not_attended_to(family: str, position: int) -> None:
    """BERT's tokens ignore it; GNMT's decoder does, whose encoder is then cut off from it."""
    model, inputs = built(family).eval(), list(inputs_of(family))
    mask = inputs[1]
    before = model(*inputs)
    inputs[position] = torch.where(mask, inputs[position], (inputs[position] + 1) % VOCABULARY)
    after = model(*inputs)
    if family == "bert":
        torch.testing.assert_close(before.hidden[mask], after.hidden[mask])
        torch.testing.assert_close(before.pooled, after.pooled)
    else:  # the first row has no padding; the others' encoder reads it backwards
        torch.testing.assert_close(before[0], after[0])


def test_rotation_depends_on_distance_alone() -> None:
    """The product of two turned vectors is the same wherever they are that far apart."""
    rotation = Rotation(LlamaSizes(width=32, heads=4, positions=20))
    one, other = torch.randn(2, 1, 1, 1, 8).expand(2, 1, 1, 20, 8)
    products = (rotation(one) @ rotation(other).mT)[0, 0]
    for distance in range(-19, 20):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert rotation(one)[0, 0, 0] == pytest.approx(one[0, 0, 0])


def test_dlrm_multiplies_every_pair_once() -> None:
    model = built("dlrm")
    assert list(zip(model.first.tolist(), model.second.tolist(), strict=True)) == [
        (first, second) for first in range(4) for second in range(first)
    ]


# ---------------------------------------------------------------- initial weights


def test_transformers_start_small() -> None:
    model = built("gpt2")
    initialise(model, "transformer", 3)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.25), name
        else:
            assert parameter.unique().tolist() == [1.0 if "ln" in name and "weight" in name else 0]


def test_a_zoo_model_has_its_own_initialisation() -> None:
    prepared = prepare(Request("llama_tiny", sequence=4, batch=1))
    assert prepared.workload.initialisation == "transformer, seed 0"
    other = prepare(Request("llama_tiny", sequence=4, batch=1, initialisation="kaiming"))
    assert other.workload.initialisation == "kaiming, seed 0"


def test_a_head_that_shares_the_embedding_shares_it_in_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules of the zoo are built there without numbers, and get the bundle's."""
    small = Gpt2Sizes(VOCABULARY, 16, 16, 2, 2)
    monkeypatch.setattr(gpt2, "Gpt2Sizes", lambda vocabulary: small)
    written, prepared = write_bundle(
        prepare(Request("gpt2_small", sequence=5, batch=2, classes=VOCABULARY)), tmp_path / "bundle"
    )
    module = torch_bundle.module(written)
    assert module.get_parameter("lm_head.weight") is module.get_parameter("transformer.wte.weight")
    assert count(module) == count(prepared.module)
    assert all(parameter.requires_grad for parameter in module.parameters())
    [tokens] = prepared.batches[0].inputs
    assert torch.equal(module.eval()(tokens), prepared.module(tokens))


# ---------------------------------------------------------------- made-up inputs


@given(
    name=st.sampled_from(NAMES),
    batch=st.integers(1, 4),
    sequence=st.integers(1, 40),
    classes=st.none() | st.integers(1, 300),
    seed=st.integers(0, 2**32),
)
@examples(60)
def test_made_up_inputs_are_what_the_model_takes(
    name: str, batch: int, sequence: int, classes: int | None, seed: int
) -> None:
    entry = ZOO[name]
    request = Request(
        name,
        batch=batch,
        sequence=sequence if entry.sequence else None,
        classes=classes if entry.classes else None,
        seed=seed,
    )
    made = list(make_inputs(request).batches)
    again = list(make_inputs(request).batches)
    assert all(map(torch.equal, made[2].inputs, again[2].inputs))
    for inputs in (found.inputs for found in made):
        for field, tensor in zip(entry.fields, inputs, strict=True):
            shape = tuple(sequence if size == "sequence" else size for size in field.shape)
            assert tensor.shape == (batch, *shape)
            if field.kind == "ids":
                assert tensor.dtype == torch.int64
                below = field.below or (classes or entry.classes,)
                assert (tensor >= 0).all()
                assert (tensor < torch.tensor(below)).all()
            elif field.kind == "mask":
                assert tensor.dtype == torch.bool
                assert tensor[:, 0].all()  # no sequence of padding alone
                assert (tensor[:, 1:] <= tensor[:, :-1]).all()  # padding comes last
            else:
                assert tensor.dtype == torch.float32


def test_made_up_batches_differ_and_use_the_whole_vocabulary() -> None:
    batches = [found.inputs[0] for found in make_inputs(Request("llama_tiny")).batches]
    assert not any(torch.equal(one, other) for one, other in itertools.pairwise(batches))
    assert torch.cat(batches).unique().numel() == 256


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("gpt2_small", {"resolution": 32}, "gpt2_small takes tokens .*; --resolution does not"),
        ("gpt2_small", {"input_shape": (3, 8, 8)}, "--input does not apply to it"),
        ("bert_base", {"channels": 3}, "--channels does not apply to it"),
        ("ncf", {"classes": 3}, "ncf takes user .*; --classes does not apply to it"),
        ("ncf", {"sequence": 3}, "ncf takes no sequences"),
        ("gpt2_small", {"sequence": 1025}, "takes at most 1024 tokens, not 1025"),
        ("lstm", {"sequence": 0}, "a sequence of 0 has no token in it"),
        ("lenet5", {"sequence": 8}, "--sequence is for models of the zoo that take text; lenet5"),
        ("lstm", {"sequence": 2**50}, "do not fit into memory"),
    ],
)
def test_options_that_do_not_fit_the_model_are_refused(
    model: str, options: dict[str, Any], message: str
) -> None:
    refused = refusal(model, **options)
    assert re.search(message, refused.message)
    assert refused.hint


def test_a_builder_names_the_argument_that_it_does_not_take() -> None:
    with pytest.raises(ValueError, match="ncf takes no resolution; it takes user"):
        models.build("ncf", resolution=3)


# ---------------------------------------------------------------- losses


@given(st.lists(st.integers(1, 4), min_size=0, max_size=3), st.integers(2, 5))
@examples(40)
def test_cross_entropy_over_tokens_of_any_rank(shape: list[int], classes: int) -> None:
    scores, targets = torch.randn(*shape, 2, classes), torch.randint(classes, (*shape, 2))
    chosen = scores.log_softmax(-1).gather(-1, targets[..., None])
    torch.testing.assert_close(token_cross_entropy(scores, targets), -chosen.mean())


def test_the_square_error_of_several_outputs() -> None:
    outputs = {"one": torch.ones(2, 3), "other": torch.zeros(4)}
    found = mse_of_outputs(outputs, torch.zeros(2, 3), torch.full((4,), 3.0))
    assert found.item() == 1 + 9


@pytest.mark.parametrize("family", BUILDERS)
def test_targets_fit_the_loss(family: str) -> None:
    model = built(family)
    prepared = prepare(Request(model, inputs_of(family), mode="train", loss=loss_of(family)))
    targets = prepared.batches[1].targets
    if family == "bert":
        assert [tuple(target.shape) for target in targets] == [(4, 6, 16), (4, 16)]
        return
    [target] = targets
    if family in ("ncf", "dlrm"):
        assert (target.shape, target.dtype) == ((4, 1), torch.float32)
        assert set(target.flatten().tolist()) <= {0.0, 1.0}
    else:
        assert (target.shape, target.dtype) == ((4, 6), torch.int64)
        assert 0 <= target.min() <= target.max() < VOCABULARY


def test_the_callers_targets_stay() -> None:
    given = torch.randint(VOCABULARY, (BATCH, SEQUENCE))
    prepared = prepare(
        Request(
            built("gpt2"),
            inputs_of("gpt2"),
            targets=given,
            mode="train",
            loss="token_cross_entropy",
        )
    )
    assert torch.equal(prepared.batches[0].targets[0], given)


def test_the_command_that_repeats_a_workload() -> None:
    prepared = prepare(Request("llama_tiny", sequence=4, batch=2, mode="train", classes=9))
    words = again("profile", prepared.workload)
    assert words.startswith(
        "golow profile llama_tiny --mode train --sequence 4 --classes 9 --batch 2"
    )
    assert "--input" not in words
    assert "--loss" not in words
    assert "--init" not in words
