"""Which of cuDNN's plans for a convolution are taken, on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from golow.levels.cudnn import probe
from golow.levels.cudnn.products import Convolution

if not probe().available:
    pytest.skip(probe().missing, allow_module_level=True)

from golow.levels.cudnn.device import Gpu
from golow.levels.cudnn.engines import Engines, workspace_limit
from golow.levels.cudnn.frontend import Frontend

pytestmark = pytest.mark.gpu

# The last blocks of ResNet-50 on 1024 images of 8x8: one pixel is left of each. Of the ways that
# cuDNN 9.19 knows for it on an H200 some want gigabytes.
GRADIENT = Convolution(
    direction="backward_weight", image=(1024, 512, 1, 1), output=(1024, 512, 1, 1), kernel=(3, 3),
    stride=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=1,
    dtype="float32", result="float32", arithmetic="tf32",
)  # fmt: skip


def test_no_plan_needs_more_workspace_than_it_may(tmp_path: Path) -> None:
    frontend = Frontend(Gpu(tmp_path))
    wanted = [plan.workspace for plan in frontend.plans(GRADIENT, 100, 1 << 60)]
    middle = sorted(wanted)[len(wanted) // 2]
    fitting = [plan.workspace for plan in frontend.plans(GRADIENT, 100, middle)]
    assert fitting == [size for size in wanted if size <= middle]
    assert 0 < len(fitting) < len(wanted), "the plans' workspaces differ"


def test_plans_that_need_too_much_are_taken_where_there_is_no_other(tmp_path: Path) -> None:
    frontend = Frontend(Gpu(tmp_path))
    every = [plan.name for plan in frontend.plans(GRADIENT, 100, 1 << 60)]
    assert [plan.name for plan in frontend.plans(GRADIENT, 100, -1)] == every
    assert [plan.name for plan in frontend.plans(GRADIENT, 2, -1)] == every[:2]


@pytest.mark.parametrize("autotune", [False, True])
def test_the_chosen_engine_is_within_the_limit(tmp_path: Path, autotune: bool) -> None:
    engine = Engines(Gpu(tmp_path / "kernels"), tmp_path, autotune).choose(GRADIENT)
    assert engine is not None
    assert engine.workspace <= workspace_limit(GRADIENT)
