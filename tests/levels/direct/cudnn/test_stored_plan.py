"""What cuDNN's front end stores of a plan, read without it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.levels.direct.cudnn.bindings.stored_plan import Scalar, stored_plan
from golow.records.errors import Unsupported
from support.direct.ubjson import ubjson

PLAN = {
    "behavior_notes": [[1, 2], []],
    "cudnn_backend_data": '{"engine": [1, 2], "name": "\u00e9"}',
    "fe_workspace_size": 256,
    "pass_by_values": [
        [4001, {"index": 3, "value": "3E000000"}],
        [5, {"index": 1, "value": -7}],
        [6, {"index": 4, "value": "FF800000"}],
    ],
    "tensors": {"1": {"dim": [2, 3], "name": "", "is_virtual": False, "uid": None}},
    "variant_pack_replacements": [],
    "variant_pack_uids": [3, 4001, 2, 300, 70000, 1],
    "workspace_modifications": None,
}

WRITTEN = bytes.fromhex(
    "7b690e6265686176696f725f6e6f7465735b5b690169025d5b5d5d690362696748691339323233333732303336"
    "38353437373538303869126375646e6e5f6261636b656e645f6461746153690c7b2261223a205b312c325d7d69"
    "1166655f776f726b73706163655f73697a6569006903696e66443fb999999999999a690e706173735f62795f76"
    "616c7565735b5b69057b6905696e6465786901690576616c756569f97d5d5b490fa17b6905696e646578690369"
    "0576616c7565443fc00000000000007d5d5d69017454690774656e736f72737b7d691976617269616e745f7061"
    "636b5f7265706c6163656d656e74735b5d691176617269616e745f7061636b5f756964735b69fb6c0001117069"
    "0249012c69015d6917776f726b73706163655f6d6f64696669636174696f6e735b5d6901785a7d"
)
"""By nlohmann::json::to_ubjson, with numbers of every width, and one that is written as a
text."""


def test_it_is_read() -> None:
    found = stored_plan(ubjson(PLAN))
    assert found.plan.decode() == PLAN["cudnn_backend_data"]
    assert found.operands == (3, 4001, 2, 300, 70000, 1)
    assert found.scalars == (
        Scalar(4001, "float32", 0.125), Scalar(5, "int32", -7), Scalar(6, "bfloat16", -math.inf)
    )  # fmt: skip
    assert found.workspace == 256


def test_the_library_that_the_front_end_calls_writes_the_same() -> None:
    found = stored_plan(WRITTEN)
    assert found.plan == b'{"a": [1,2]}'
    assert found.operands == (-5, 70000, 2, 300, 1)
    assert found.scalars == (Scalar(5, "int32", -7), Scalar(4001, "float32", 0.125))


@given(st.integers(0, len(ubjson(PLAN)) - 1))
def test_a_plan_that_ends_too_early_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=r"stored plan|no plan"):
        stored_plan(ubjson(PLAN)[:length])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("workspace_modifications", [[7, [1, 0, [64.0]]]]),
        ("variant_pack_replacements", [[7, [1, 64]]]),
    ],
)
def test_what_the_front_end_does_in_each_call_is_refused(field: str, value: Any) -> None:
    with pytest.raises(Unsupported, match="prepares memory"):
        stored_plan(ubjson({**PLAN, field: value}))
