"""Defaults in the user's PyTorch loop, mostly unnoticed: a choice may change them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from golow.levels.choices.batch_source import FromHost, FromLoader


@dataclass
class Habits:
    """How a level inside PyTorch calls its module and its optimizer.

    gradients: what surrounds a forward pass in inference. optimizer: which of PyTorch's
    implementations updates the parameters; empty leaves it to PyTorch. set_to_none: what
    ``zero_grad`` does to the gradients. batches: where an iteration's batch comes from; None if it
    is stored where it is used. tf32_products, tf32_convolutions: whether they may compute in TF32;
    None leaves it to the workload's precision. casts_kept: whether autocast keeps the weights it
    casts. frozen: whether parameters ask for no gradient in inference. script: how far TorchScript
    prepares a trace for inference. threads: of one operation.
    """

    gradients: Literal["inference_mode", "no_grad", "recorded"] = "inference_mode"
    optimizer: Literal["", "for-loop", "foreach", "fused"] = ""
    set_to_none: bool = True
    batches: FromHost | FromLoader | None = None
    tf32_products: bool | None = None
    tf32_convolutions: bool | None = None
    casts_kept: bool = True
    frozen: bool = False
    script: Literal["optimized", "frozen", "traced"] = "optimized"
    threads: Literal["as given", "half as many", "one", "one a logical CPU"] = "as given"

    def thread_count(self, given: int) -> int:
        """The threads of one operation in a workload that asks for this many."""
        if self.threads == "one":
            return 1
        if self.threads == "one a logical CPU":
            return len(os.sched_getaffinity(0))
        return max(1, given // 2) if self.threads == "half as many" else given
