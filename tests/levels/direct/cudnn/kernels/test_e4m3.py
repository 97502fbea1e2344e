"""Numbers of e4m3 in kernels, against those of ml_dtypes: every number, every middle between two,
and what is next to them."""

from __future__ import annotations

import numpy as np
from ml_dtypes import float8_e4m3fn

from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import Statement, Written, fused
from golow.levels.direct.kernel_views import View
from golow.lower.operators.quantize import E4M3
from support.direct.cuda_host import run

EVERY = np.arange(256, dtype=np.uint8).view(float8_e4m3fn)


def converted(values: np.ndarray, source: str, target: str) -> np.ndarray:
    """What a generated kernel makes of the values."""
    result = np.zeros(len(values), float8_e4m3fn if target == E4M3 else np.float32)
    view, written = View(source, (1,)), Written("t0", View(target, (1,)))
    kernel = fused([Statement("t0", target, "x0")], [view], [written], [len(values)])
    run(kernel, [values, result])
    return result


def test_floats_become_the_nearest_number() -> None:
    positive = EVERY[:127].astype(np.float32)
    middles = (positive[1:] + positive[:-1]) / 2
    near = np.concatenate([positive, middles])
    beside = [np.nextafter(near, np.float32(end)) for end in (-np.inf, np.inf)]
    rare = np.array([1e-45, 1e-30, 2.0**-10, 464, 480, 1e30, np.inf], np.float32)
    values = np.concatenate([near, *beside, rare])
    values = np.concatenate([values, -values, [np.nan]]).astype(np.float32)
    wanted = np.clip(values, -448, 448).astype(float8_e4m3fn)
    found = converted(values, "float32", E4M3)
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(found[numbers].view(np.uint8), wanted[numbers].view(np.uint8))
    assert np.isnan(found[~numbers].astype(np.float32)).all()


def test_every_number_becomes_its_float() -> None:
    np.testing.assert_array_equal(converted(EVERY, E4M3, "float32"), EVERY.astype(np.float32))
