"""Linear recurrences at `onednn`, by generated kernels and with NumPy: each operation of the plans
of small networks, and their results, against float64."""

from __future__ import annotations

import pytest

from golow.levels.compiler import find_compiler
from golow.levels.direct.onednn.level import probe
from golow.records.workload import Mode
from support.models.linear_recurrences import Loop, network, scanned, selective, shared

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)
if find_compiler() is None:
    pytest.skip("there is no C++ compiler", allow_module_level=True)

from support.direct.in_process import assert_right
from support.direct.onednn_in_process import compute, lower


@pytest.mark.slow
@pytest.mark.parametrize("generates", [True, False])
@pytest.mark.parametrize(
    ("loop", "mode"),
    [(selective, "infer"), (shared, "infer"), (scanned, "infer"), (scanned, "train")],
)
def test_loops_and_scans_are_right(loop: Loop, mode: Mode, generates: bool) -> None:
    module, x = network(loop)
    lowered = lower(module, x, mode)
    assert any(node.op == "golow.linear_recurrence" for node in lowered.graph.nodes)
    assert_right(lowered, compute(lowered, generates=generates))
