"""A project of `golow emit --level onednn` changes inputs in place, as the callable does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import golow
from golow.levels.called.emission import write_called
from golow.levels.called.emitted_library import EmittedLibrary, EmittedNetwork
from golow.levels.called.project_building import missing
from support.direct.emitted_projects import Adding, build, clean, drawn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        missing("onednn") is not None, reason="what builds a project is not installed"
    ),
]


def test_inputs_are_changed_where_they_are(tmp_path: Path) -> None:
    """At a size, and at one that is padded, where rows of padding are nobody's."""
    torch.manual_seed(0)
    example = drawn(4, 8), drawn(4, 8, seed=2)
    f = golow.compile(Adding().eval(), example, batch=[1, 4], quiet=True, threads=1)
    write_called(f, "adding", tmp_path / "project")  # type: ignore[arg-type]
    build(tmp_path / "project")
    folder = tmp_path / "project" / "build"
    made = EmittedNetwork(
        EmittedLibrary(folder / "libadding.so", "adding"),
        tmp_path / "project" / "weights.safetensors",
    )
    for rows in (1, 4, 3, 4):
        x, sums = drawn(rows, 8, seed=rows), drawn(5, 8, seed=9)
        ours, theirs, output = sums.clone(), sums.clone(), torch.full((rows, 8), torch.nan)
        for _ in range(2):
            wanted = f(x, theirs[:rows])
            made.run(rows, [x.data_ptr(), ours.data_ptr()], [output.data_ptr()])
            assert torch.equal(output, wanted)
            assert torch.equal(ours, theirs), rows
        assert not torch.equal(ours[:rows], sums[:rows])
    made.close()
    clean("ctest", "--test-dir", str(folder))
    assert "changes inputs in place: sums" in (tmp_path / "project" / "README.md").read_text()
