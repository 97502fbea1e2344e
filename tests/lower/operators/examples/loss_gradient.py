"""Examples of the gradient that a backward pass begins with."""

from __future__ import annotations

from golow.lower.operators.loss_gradient import LossGradient

RECORDS = (LossGradient(dtype="float32"),)
