"""Modules of a script or a notebook in another process."""

from __future__ import annotations

import sys
from typing import Any

import torch

from golow.workload.live import pickled, unpickled

IN_A_SCRIPT = """
from torch import nn
FACTOR = 3.0

def scaled(x):
    return nn.functional.silu(x) * FACTOR

class Inner(nn.Module):
    def forward(self, x):
        return nn.functional.relu(scaled(x))
"""


def test_torch_compile_finds_what_a_layer_of_a_script_reads() -> None:
    """In the layer's own scope, where it stands in a module of torch's; ``__main__`` is another
    module here."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(IN_A_SCRIPT, scope)  # noqa: S102
    live = torch.nn.Sequential(scope["Inner"]())
    data = pickled(live, "the module")
    assert isinstance(data, bytes)
    module, x = unpickled(data), torch.randn(3, 4)
    found = torch.compile(module, backend="eager", fullgraph=True)(x)
    torch.testing.assert_close(found, live(x))
    assert sys.modules["__main__"].__name__ == "__main__"
