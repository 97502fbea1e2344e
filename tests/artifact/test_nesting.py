"""The nesting of an output, written as JSON and made again."""

from __future__ import annotations

import msgspec
import pytest

from golow.artifact.manifest import Nest
from golow.artifact.nesting import nest_of, nested
from golow.records.errors import GolowError


def test_keys_keep_their_type() -> None:
    nest = msgspec.json.decode(msgspec.json.encode(nest_of({0: 0, "1": [1, None]})), type=Nest)
    assert nested(nest, ["a", "b"]) == {0: "a", "1": ["b", None]}


def test_a_key_that_json_has_not_is_refused() -> None:
    with pytest.raises(GolowError, match=r"a dict with the key \(1, 2\), which cannot be saved"):
        nest_of({(1, 2): 0})
