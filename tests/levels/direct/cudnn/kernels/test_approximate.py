"""Formulas whose results are stored in 16 bits, which functions of a few roundings may compute."""

from __future__ import annotations

import pytest

from golow.levels.direct.cudnn.shared_kernels.batch_norm import batch_norm, batch_norm_backward
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import Statement, Written, fused
from golow.levels.direct.cudnn.shared_kernels.geometry import approximate
from golow.levels.direct.formulas.activation_formulas import derivative_at_argument, value
from golow.levels.direct.kernel_views import View
from golow.lower.ir.graph import Activation

SILU = Activation(name="silu")
EXACT, APPROXIMATE = ("expf(-", "1.0f / ("), ("__expf(-", "__fdividef(")


@pytest.mark.parametrize(
    ("dtype", "approximates"), [("float32", False), ("bfloat16", True), ("float16", True)]
)
def test_exponentials_and_reciprocals_follow_what_is_stored(dtype: str, approximates: bool) -> None:
    statement, written = Statement("t0", "float32", value(SILU, "x0")), View(dtype, (1,))
    inner = derivative_at_argument(SILU, "(gradient)", "value")
    kernels = [
        fused([statement], [View(dtype, (1,))], [Written("t0", written)], (64,)),
        *batch_norm(dtype, 64, 8, momentum=0.1, epsilon=1e-5, formula=value(SILU, "value")).kernels,
        *batch_norm_backward(dtype, 64, 8, formula=inner, residual=False).kernels,
    ]
    computing = [kernel.source for kernel in kernels if "expf(-" in kernel.source]
    assert len(computing) == 3
    for source in computing:
        assert all((name in source) == approximates for name in APPROXIMATE)
        assert approximates or all(name in source for name in EXACT)


def test_one_result_in_float32_keeps_all_exact() -> None:
    code = value(SILU, "x")
    assert approximate(code, "bfloat16", "float32") == code
    assert approximate(code, "bfloat16", "bool") == code
    assert approximate("exp2f(x) + expf(x)", "float16") == "exp2f(x) + __expf(x)"
