"""An array that is in device memory already, such as a parameter of PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.copies import strided_copy
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.kernel_views import View

ALIGNMENT = 16  # bytes; what kernels load at once


class DeviceArray(NamedTuple):
    """Row-major elements of a type that golow's kernels have, at a multiple of `ALIGNMENT`.

    host: copies it to the host. passing: whether its memory goes when the object does.
    """

    address: int
    dtype: str
    host: Callable[[], np.ndarray]
    passing: bool = False

    def copy_to(self, tensor: Tensor) -> Kernel:
        """Return what copies it to a tensor of as many elements, which may have padding. Pointers:
        the array, the tensor."""
        here = View(self.dtype, Layout(self.dtype).strides(tensor.shape))
        there = View(tensor.dtype, tensor.layout.strides(tensor.shape))
        return strided_copy(here, there, tensor.shape)
