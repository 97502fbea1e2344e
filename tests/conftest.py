"""Tests run side by side: in each of their processes PyTorch computes on one thread. Several would
wait for cores that the other tests use, spinning."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
