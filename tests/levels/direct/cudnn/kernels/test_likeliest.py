"""The likeliest tokens, and what the next step reads: on this processor against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golow.levels.direct.cudnn.shared_kernels.likeliest import likeliest
from support.direct.cuda_host import run
from support.direct.kernel_compilation import assert_compile
from support.examples import examples

LONGEST = 9


@examples(40)
@given(
    texts=st.integers(1, 3),
    vocabulary=st.sampled_from([1, 5, 1000, 3001]),
    position=st.integers(0, LONGEST - 1),
    seed=st.integers(0, 99),
    kind=st.sampled_from(["any", "equal", "nan", "infinite"]),
)
def test_tokens_text_and_position(
    texts: int, vocabulary: int, position: int, seed: int, kind: str
) -> None:
    random = np.random.default_rng(seed)
    logits = random.standard_normal((texts, vocabulary)).astype(np.float32)
    if kind == "equal":
        logits = np.round(logits)
    if kind != "any":
        logits[0, random.integers(vocabulary)] = {"nan": np.nan, "infinite": -np.inf}.get(kind, 0)
    memory = np.zeros(logits.size + 16, np.float32)
    start = -memory.ctypes.data % 16 // 4
    held = memory[start : start + logits.size]
    held[:] = logits.reshape(-1)
    launch = likeliest(texts, vocabulary, LONGEST)
    token, at = np.zeros(texts, np.int64), np.array([position])
    text = np.full((texts, LONGEST), -1)
    arrivals = np.zeros(launch.arrivals, np.uint32)
    partial = np.full(launch.partial, np.nan, np.float32)
    run(launch.kernel, [held, token, at, text, partial, arrivals])
    expected = torch.from_numpy(logits).argmax(-1)
    assert token.tolist() == expected.tolist()
    assert at[0] == position + 1
    assert not arrivals.any()
    after = np.full((texts, LONGEST), -1)
    if position + 1 < LONGEST:
        after[:, position + 1] = token
    np.testing.assert_array_equal(text, after)


def test_it_compiles() -> None:
    assert_compile([likeliest(2, 128256, 4096).kernel])


def test_too_many_texts() -> None:
    with pytest.raises(ValueError, match="70000 texts"):
        likeliest(70000, 8, 8)
