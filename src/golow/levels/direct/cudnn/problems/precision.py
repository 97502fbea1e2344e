"""How the workload's precision sets storage and arithmetic, by autocast's rules: products and
activations in half precision; statistics, losses and the parameters' originals in float32."""

from __future__ import annotations

from typing import NamedTuple

from golow.levels.direct.cudnn.problems.products import Arithmetic
from golow.records.workload import Precision


class Types(NamedTuple):
    """computed: the type of activations. convolutions, products: their arithmetic. scaled: whether
    the loss is scaled so that small gradients do not vanish."""

    computed: str
    convolutions: Arithmetic
    products: Arithmetic
    scaled: bool = False


TYPES: dict[Precision, Types] = {
    "default": Types("float32", "tf32", "ieee"),
    "ieee": Types("float32", "ieee", "ieee"),
    "tf32": Types("float32", "tf32", "tf32"),
    "bf16": Types("bfloat16", "half", "half"),
    "fp16": Types("float16", "half", "half", scaled=True),
}
