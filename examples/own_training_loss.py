"""Measure a training step of a live module with your own loss, at each level.

    python examples/own_training_loss.py

golow copies module and loss to the workers, so this also works in a notebook. It calls the loss as
``loss(output, *targets)``; the loss must return a single number.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import golow


def smooth_and_sparse(output: Tensor, target: Tensor) -> Tensor:
    """Half the squared error near the target, the absolute error far from it, plus a penalty on
    large outputs."""
    return nn.functional.smooth_l1_loss(output, target) + 0.01 * output.abs().mean()


def main() -> None:
    """Compare one training step: forward, loss, backward, SGD."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 4))
    result = golow.compare(
        module,
        torch.randn(16, 32),
        targets=torch.randn(16, 4),
        mode="train",
        loss=smooth_and_sparse,
        optimizer=golow.Optimizer(learning_rate=0.01, momentum=0.9),
        levels=["eager", "torchscript"],
        time_limit=3,
    )
    result.table()
    worst = result.run("torchscript").check.worst
    if worst is not None:
        print(
            f"the tensor closest to its limit: {worst.name}, {worst.error / worst.limit:.0%} of it"
        )


if __name__ == "__main__":
    main()
