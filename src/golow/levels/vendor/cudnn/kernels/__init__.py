"""golow's own kernels: one CUDA file each with its mathematics, and beside it a Python file of the
same name that says how it is launched for a shape. Here are those that several operators or engines
use; a kernel of one operator stands beside that, in ``operators/``.

Images are NHWC in memory. A kernel's pointers come first, what it reads before what it writes, then
its scalars. Nothing here touches a GPU.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

FOLDER = Path(__file__).parent

# Storage types by torch's names, and what they are called in the kernels.
C_TYPES = {
    "float32": "float",
    "bfloat16": "__nv_bfloat16",
    "float16": "__half",
    "int64": "long long",
    "int32": "int",
    "bool": "bool",
    "uint8": "unsigned char",
}
ITEM_BYTES = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int64": 8,
    "int32": 4,
    "bool": 1,
    "uint8": 1,
}


class Kernel(NamedTuple):
    """One launch: an instantiation of a template in a file, its geometry, its scalar arguments.

    expression: the C++ name of the instantiation, as ``max_pool<float>``. code: what stands before
    the file's text, for kernels that are generated. grid and block in blocks and threads; shared in
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
        """The text to compile."""
        return self.code + _text(self.file)


@cache
def _text(file: Path) -> str:
    return file.read_text()
