"""What the tests compile quickly for networks shows the faults that golow's own flags show."""

from __future__ import annotations

import numpy as np
import pytest

from golow.levels.compiler import find_compiler
from golow.levels.direct.onednn.kernels import Kernel
from golow.levels.direct.onednn.level import probe
from support.direct.onednn_kernels import run_by

pytestmark = [
    pytest.mark.skipif(not probe().available, reason="oneDNN is not installed"),
    pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler"),
]

WRONGLY_DECLARED = """
static void body(void* const* p, const long* n, long begin, long end) {
  float* result = (float*)p[0];
  const float* given = (const float*)p[1];
  #pragma omp simd
  for (long i = 0; i < 64; i++) result[i] = given[i] + 1.0f;
}
"""


def test_a_loop_that_is_wrongly_declared_a_vector_is_seen() -> None:
    """Each iteration reads what the one before wrote, although the pragma denies that."""
    from support.direct.onednn_in_process import quick_workshop, workshop

    found = []
    for compiler in (workshop(), quick_workshop()):
        array = np.zeros(65, np.float32)
        run_by(compiler, Kernel(WRONGLY_DECLARED, (1, 0)), array[1:], array[:-1])
        found.append(array)
    assert not np.array_equal(found[1], np.arange(65))
    assert np.array_equal(*found)
