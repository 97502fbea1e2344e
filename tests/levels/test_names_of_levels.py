"""Levels given as a text where Python takes a list, and seeds as a number."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import golow


@pytest.mark.parametrize("verb", [golow.compare, golow.profile, golow.audit, golow.support])
def test_a_text_of_levels_is_no_list(verb) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(golow.GolowError, match="a list of names") as raised:
        verb(nn.Linear(4, 2), torch.randn(2, 4), levels="eager, onednn")
    assert "use levels=['eager', 'onednn']" in str(raised.value)


def test_levels_and_seeds_of_a_training_are_lists() -> None:
    with pytest.raises(golow.GolowError, match="a list of names"):
        golow.train("lenet5", dataset="digits", levels="onednn", quiet=True)
    for seeds in (3, []):
        with pytest.raises(golow.GolowError, match=r"give a list: seeds=\[0, 1, 2\]"):
            golow.train("lenet5", dataset="digits", levels=["eager"], seeds=seeds, quiet=True)  # type: ignore[arg-type]
