"""Results of a plan in the caller's process, and how they get to the caller's memory."""

from __future__ import annotations

from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.copies import strided_copy
from golow.levels.direct.cudnn.steps.built_plan import Built, Tensor
from golow.levels.direct.kernel_views import View


def made_outputs(built: Built) -> list[Tensor]:
    """Results of a plan, in order; the inputs that the module changes are after its outputs."""
    made = ((int(t), tensor) for (kind, t), tensor in built.outputs.items() if kind == "output")
    return [tensor for _, tensor in sorted(made)]


def copy_out(tensor: Tensor, dtype: str) -> Kernel:
    """Return what copies an output to the caller's memory, row-major and of this type."""
    there = View(dtype, Layout(dtype).strides(tensor.shape))
    here = View(tensor.dtype, tensor.layout.strides(tensor.shape))
    return strided_copy(here, there, tensor.shape)
