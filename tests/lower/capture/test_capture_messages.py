"""Torch's export warns and dumps graphs; that goes into the record's log, not onto the terminal."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from golow.check.checked_level import CheckedLevel
from golow.levels.ladder import choose
from golow.workload.bundle import write_bundle
from golow.workload.graph_capture import write_graph
from golow.workload.prepare import prepare
from golow.workload.request import Request


class Talking(nn.Module):
    """Says what torch says, by loggers and warnings. branches: so that it cannot be captured."""

    def __init__(self, branches: bool) -> None:
        super().__init__()
        self.branches = branches

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 4] -> [batch, 4]"""
        if torch.compiler.is_compiling():
            warnings.warn("a warning while it is exported", stacklevel=1)
            logging.getLogger("torch.export").warning("def forward(self, x): %s", "a dump")
            logging.getLogger("torch._dynamo").error("def forward(self, x): a second dump")
        return -x if self.branches and x.sum() > 0 else x + 1


@pytest.mark.parametrize("branches", [False, True])
def test_what_torch_says_is_in_the_log_and_not_on_the_terminal(
    branches: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    handlers = logging.getLogger("torch").handlers
    prepared = prepare(Request(Talking(branches), torch.randn(2, 4)))
    bundle, prepared = write_bundle(prepared, tmp_path / "bundle")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none comes out
        write_graph(prepared, bundle)
    assert (bundle.graph is None) is branches
    printed = capfd.readouterr()
    assert "dump" not in printed.err + printed.out
    for words in ("UserWarning: a warning", "torch.export: def forward(self, x): a dump", "second"):
        assert words in bundle.capture_log
    logs = {
        name: CheckedLevel(choose(name, "infer"), bundle, tmp_path, None).log  # type: ignore[arg-type]
        for name in ("eager", "libtorch")
    }
    assert logs == {"eager": "", "libtorch": bundle.capture_log}
    assert logging.getLogger("torch").handlers == handlers
