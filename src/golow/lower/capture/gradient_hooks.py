"""Hooks on the gradients of parameters, which no graph contains."""

from __future__ import annotations

from torch import nn

from golow.records.errors import GolowError


def require_unhooked_gradients(module: nn.Module, name: str) -> None:
    """Raise `GolowError` for a parameter with a hook: what is captured, copied or sent to another
    process loses it, and would train another network. Hooks of layers are captured."""
    for path, parameter in module.named_parameters():
        after = getattr(parameter, "_post_accumulate_grad_hooks", None)
        if parameter._backward_hooks or after:
            kind = "register_post_accumulate_grad_hook" if after else "register_hook"
            raise GolowError(
                f"the parameter {path} of {name} has a hook on its gradient ({kind}), which only "
                "PyTorch's own backward pass calls",
                "remove it by the .remove() of its handle; a factor of the gradient can be a "
                "parameter group's learning rate, and clip= limits the norm.",
            )
