"""Which of PyTorch's kernels computes `scaled_dot_product_attention`.

PyTorch takes the first that is enabled and can run the call; if none can, the call is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from golow.levels.choices.choice import DEVICES, IN_PYTORCH, Alternative, Choice
from golow.records.workload import Device

# Name in torch.nn.attention.SDPBackend, name in torch.backends.cuda, and where it exists.
KERNELS: dict[str, tuple[str, str, tuple[Device, ...]]] = {
    "flash": ("FLASH_ATTENTION", "flash", DEVICES),
    "efficient": ("EFFICIENT_ATTENTION", "mem_efficient", ("cuda",)),
    "math": ("MATH", "math", DEVICES),
    "cudnn": ("CUDNN_ATTENTION", "cudnn", ("cuda",)),
}


def read(program: Any) -> str:
    """The kernels that are enabled, by name."""
    import torch

    enabled = [
        name
        for name, (_, flag, _) in KERNELS.items()
        if getattr(torch.backends.cuda, f"{flag}_sdp_enabled")()
    ]
    return ", ".join(enabled)


def _allow(only: str) -> Callable[[Any], None]:
    def call(program: Any) -> None:
        import torch

        for name, (_, flag, _) in KERNELS.items():
            getattr(torch.backends.cuda, f"enable_{flag}_sdp")(name == only)

    return call


def _alternative(name: str) -> Alternative:
    backend, _, devices = KERNELS[name]
    return Alternative(
        name=f"{name}_attention",
        summary=f"attention only by PyTorch's {name} kernel",
        value=name,
        call=_allow(name),
        devices=devices,
        rebuilds=True,
        python=f"with torch.nn.attention.sdpa_kernel(SDPBackend.{backend}):",
    )


CHOICES = (
    Choice(
        name="attention_kernel",
        summary="which kernels may compute scaled_dot_product_attention",
        made_by="PyTorch",
        where="torch.nn.attention.SDPBackend; aten/src/ATen/native/transformers/cuda/sdp_utils.cpp",
        # The others run the calls that the captured graph has.
        levels=IN_PYTORCH,
        read=read,
        changes_results=True,
        costs="memory: the math kernel stores the whole matrix of scores",
        alternatives=tuple(map(_alternative, KERNELS)),
    ),
)
