"""transformers' ``Conv1D``: a linear layer of GPT-2 and models like it, whose weight is
transposed."""

from __future__ import annotations

from torch import nn


def as_linear(layer: nn.Module) -> nn.Module:
    """Return the linear layer that computes what a ``Conv1D`` computes and shares its weight;
    any other layer itself."""
    kind = type(layer)  # by its name: golow need not import transformers
    if (kind.__module__, kind.__name__) != ("transformers.pytorch_utils", "Conv1D"):
        return layer
    weight = layer.get_parameter("weight")
    inputs, outputs = weight.shape
    linear = nn.Linear(inputs, outputs, bias=False, device="meta")
    linear.weight = nn.Parameter(weight.detach().T, requires_grad=False)
    linear.bias = layer.get_parameter("bias")
    return linear.train(layer.training)
