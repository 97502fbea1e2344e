"""Facts about a weight that are known before an iteration begins."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.lower.ir.graph import Ref

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def is_frozen(build: Builder, weight: Ref) -> bool:
    """True if no step that runs with the current node's writes the weight."""
    return build.current.is_constant(weight) and not build.loading.once


def is_cold(build: Builder, weight: Ref) -> bool:
    """True if iterations read the weight from memory, because all weights together do not fit into
    the GPU's cache. Each half of a large GPU keeps what it reads in its own half of the cache. Only
    known where engines are timed."""
    if not build.engines.times or not is_frozen(build, weight):
        return False
    sizes = (math.prod(i.value.shape) for i in build.current.graph.inputs if i.kind == "parameter")
    return 2 * sum(sizes) * ITEM_BYTES[build.types.computed] > build.engines.gpu.cache_bytes


def may_lie_anyhow(build: Builder, weight: Ref) -> bool:
    """True if a constant is read by the current node alone."""
    alone = build.current.links.only_reader(weight.name) == build.current.position
    return alone and build.current.is_constant(weight)
