"""Hostile calls of the Python API."""

from __future__ import annotations

from pathlib import Path
from random import Random

from hostile.case import Case

EXAMPLES = (
    *("torch.ones(2)", "torch.ones(2, 8, device='meta')", "torch.ones(0, 8)", "[torch.ones(2), 7]"),
    *("torch.ones(2, 8).to_sparse()", "torch.ones(2, 8) * float('nan')"),
)
MODELS = (
    *("'mlp'", "nn.Linear(8, 4)", "nn.Linear(8, 4)", "'\\0.py:Net'", "'a\\0b'", "'x' * 10**5"),
    *("'\\ud800'", "None", "7", "nn.Linear", "nn.Linear(8, 4, device='meta')", "nn.Identity()"),
    *(
        "nn.LazyLinear(4)",
        "''",
        "':'",
        "'.:.'",
        "'..a:b'",
        "'\\x1b[31m:b'",
        "'a b:c'",
        "'sys:path'",
    ),
)
LOADERS = (
    *("load", "load_audit", "load_compiled", "load_generation", "load_life", "load_load_test"),
    *("load_profile", "load_quantization", "load_study", "load_training"),
)
HEAD = """
import golow, torch
from torch import nn
from golow.workload.prepare import prepare
from golow.workload.request import Request
"""


def call(random: Random, folder: Path) -> Case:
    """What a Python user may write: names of anything, tensors of any kind."""
    kind = random.choice(("model", "example", "load"))
    if kind == "load":
        function = f"golow.{random.choice(LOADERS)}"
        place = random.choice(("'\\0'", "''", "'x' * 10**5", "'\\ud800'", "'/dev/zero'", "'/'"))
        code = f"{function}({place})"
    elif kind == "model":
        code = f"prepare(Request({random.choice(MODELS)}, torch.ones(2, 8), batch=2))"
    else:
        code = f"prepare(Request(nn.Linear(8, 4), {random.choice(EXAMPLES)}))"
    return Case(title=f"call: {code}", folder=str(folder), code=HEAD + code + "\n", statuses=(0, 2))
