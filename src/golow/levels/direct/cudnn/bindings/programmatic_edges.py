"""Which kernels of a captured graph may begin before the one before them has ended."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from cuda.bindings import driver

from golow.levels.nvidia.memory import checked


def wait_for_ends(graph: Any, own: Collection[bytes]) -> None:
    """Make every node of a captured graph wait until the nodes before it have ended, except for the
    kernels of these names, which wait themselves.

    The libraries launch some kernels so that they may begin early, too. Not all of them wait for
    what they read: when a cuBLASLt product preceded a cuDNN convolution, up to 7% of the results
    were wrong, different ones each time. See
    https://github.com/NVIDIA/TransformerEngine/issues/2489
    """
    *_, count = checked(driver.cuGraphGetEdges(graph, 0), "cuGraphGetEdges")
    before, after, edges, _ = checked(driver.cuGraphGetEdges(graph, count), "cuGraphGetEdges")
    early = [i for i in range(count) if int(edges[i].type) != 0 and _name(after[i]) not in own]
    if not early:
        return
    ends = [before[i] for i in early], [after[i] for i in early]
    removed = driver.cuGraphRemoveDependencies(graph, *ends, [edges[i] for i in early], len(early))
    checked(removed, "cuGraphRemoveDependencies")
    checked(driver.cuGraphAddDependencies(graph, *ends, None, len(early)), "cuGraphAddDependencies")


def _name(node: Any) -> bytes:
    """The name of a kernel in its code."""
    launched = checked(driver.cuGraphKernelNodeGetParams(node), "cuGraphKernelNodeGetParams")
    if int(launched.func):
        return bytes(checked(driver.cuFuncGetName(launched.func), "cuFuncGetName"))
    return bytes(checked(driver.cuKernelGetName(launched.kern), "cuKernelGetName"))
