"""Training steps of `golow emit --level cudnn`, built and run without a GPU: `gpu_stand_in.cpp` is
the driver, and both libraries."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from golow.levels.called.project_building import missing
from support.direct.emitted_steps_on_host import NAMES, project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing("cudnn") is not None, reason="CUDA's headers are not installed"),
]


def run(
    name: str, made: Path, *options: str, status: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    folder = project(name)
    files = [folder / f"{end}.safetensors" for end in ("weights", "example")]
    answer = subprocess.run(
        [folder / "build" / f"{name}_run", *files, made, *options], capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], **environment}, check=False, timeout=300,
    )  # fmt: skip
    assert answer.returncode == status, answer.stdout + answer.stderr
    return answer


@pytest.mark.parametrize("name", NAMES)
def test_the_program_trains_and_evaluates_as_the_plans_do(name: str, tmp_path: Path) -> None:
    """Losses, state and outputs, in batches of two sizes. The stand-in adds up in another order."""
    example, expected = (project(name) / f"{n}.safetensors" for n in ("example", "expected"))
    evaluate = ["--evaluate", str(example), str(tmp_path / "outputs")]
    answer = run(name, tmp_path / "made", *evaluate)
    wanted, found = load_file(expected), load_file(tmp_path / "made")
    found |= load_file(tmp_path / "outputs")
    loss = wanted.pop("loss")
    assert found.keys() == wanted.keys()
    limit = 5e-3 if name == "scaled" else 1e-4
    for key, item in wanted.items():
        assert torch.allclose(found[key].double(), item.double(), atol=limit, rtol=limit), key
    said = re.search(r"epoch 1: loss ([0-9.e-]+)", answer.stdout)
    assert said is not None
    assert abs(float(said[1]) - float(loss[-1])) < limit
    assert "different" in run(
        name, tmp_path / "made", "--rate", "0.5", "--expect", str(expected), status=1
    ).stdout  # fmt: skip
