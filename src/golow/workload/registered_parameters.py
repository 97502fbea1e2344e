"""Converts parameters while a module is being built, each as soon as a layer gets it, so that the
whole module is never in memory in another precision or on another device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook


@contextmanager
def parameters_in(
    device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> Iterator[None]:
    """Within it, a parameter that a layer gets moves to this device and becomes of this dtype. What
    a constructor draws afterwards is drawn there; on the meta device nothing is drawn. Buffers stay
    as they are, because their values may be computed."""

    def converted(layer: nn.Module, name: str, parameter: nn.Parameter) -> nn.Parameter:
        value = parameter.detach().to(device=device, dtype=dtype)
        if value.device == parameter.device and value.dtype == parameter.dtype:
            return parameter  # another layer may have the same object
        return nn.Parameter(value, requires_grad=parameter.requires_grad)

    hook = register_module_parameter_registration_hook(converted)  # type: ignore[arg-type]
    try:
        yield
    finally:
        hook.remove()
