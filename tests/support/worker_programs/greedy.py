"""A worker that serves a network as eager does, until an iteration wants more than there is."""

from __future__ import annotations

import torch

from golow.levels.torch.program import TorchProgram
from golow.worker.serve import run


class Greedy(TorchProgram):
    """Each iteration allocates a petabyte first."""

    def iterate(self) -> None:
        """Never gets to the network."""
        torch.empty(2**50, dtype=torch.uint8, device=self.device)
        super().iterate()


if __name__ == "__main__":
    run(Greedy)
