"""golow's own kernels. Each is a CUDA file with its mathematics, and a Python file of the same name
that states how it is launched for a shape. This folder has the kernels that several operators or
engines use; the kernel of a single operator is beside it, in ``operators/``.

Images are NHWC in memory. A kernel's arguments are its pointers, inputs before outputs, then its
scalars. Nothing here touches a GPU.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

FOLDER = Path(__file__).parent
E4M3 = FOLDER / "e4m3.cuh"  # its type is not one of those that kernels include


class Kernel(NamedTuple):
    """One launch: an instantiation of a template in a file, its geometry, its scalar arguments.

    expression: the C++ name of the instantiation, for example ``max_pool<float>``. code: text
    before the file's own, for generated kernels. grid and block in blocks and threads; shared in
    bytes.
    """

    file: Path
    expression: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    scalars: tuple[np.generic, ...] = ()
    shared: int = 0
    code: str = ""

    @property
    def source(self) -> str:
        """The source text to compile."""
        text = self.code + _text(self.file)
        return _text(E4M3) + text if "E4m3" in text + self.expression else text


@cache
def _text(file: Path) -> str:
    return file.read_text()
