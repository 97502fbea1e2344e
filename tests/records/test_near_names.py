"""A misspelt name gets the nearest known ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from golow.records.near_names import meant
from support.command import golow


def test_the_nearest_names_are_asked_for() -> None:
    assert meant("eagre", ["eager", "compile"]) == "did you mean eager? "
    assert meant("zzz", ["eager", "compile"]) == ""


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("load mlp --scenario sever --rate 5", "server"),
        ("profile mlp --by opertor", "operator"),
        ("profile mlp --sort host-tme", "host-time"),
        ("train mlp --dataset digit", "digits"),
        ("train mlp --dataset digits --init kaimin", "kaiming"),
        ("choices fused_sg", "fused_sgd"),
        ("choices --level eagre", "eager"),
        ("audit mlp --levels eagre", "eager"),
        ("build mlp --level openvin --out x", "openvino"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(
    typed: str, name: str, tmp_path: Path
) -> None:
    ended = golow(*typed.split(), folder=tmp_path)
    assert ended.status == 2
    assert f"did you mean {name}" in ended.error
