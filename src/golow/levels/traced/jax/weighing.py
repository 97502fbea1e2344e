"""The number to which the worker commits, computed by JAX where the outputs are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def compiled_weighing(outputs: Sequence[Any]) -> Any:
    """The program that takes a tuple of outputs of these shapes and types, and returns what
    `golow.worker.results.weighted_sum` does, a float32."""
    given = tuple(jax.ShapeDtypeStruct(each.shape, each.dtype) for each in outputs)
    return jax.jit(weighed).lower(given).compile()


def weighed(outputs: tuple[Any, ...]) -> Any:
    """The weighted sum of the outputs, in their order. A GPU adds as a tree, so that float32 is
    exact enough; a CPU would add one by one."""
    total, start = jnp.float32(0), 0
    for output in outputs:
        elements = output.ravel().astype(jnp.float32)
        total += jnp.sum(elements * weights(start, output.size))
        start += output.size
    return total


def weights(start: int, count: int) -> Any:
    """As `golow.worker.results.weights`, bit for bit."""
    hashed = lax.iota(jnp.uint32, count) + jnp.uint32(start % 2**32)
    hashed *= jnp.uint32(0x9E3779B1)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashed ^= hashed >> shift
        hashed *= jnp.uint32(factor)
    hashed ^= hashed >> 16
    # Half of the range less, as a signed number, is rounded once: NumPy divides in float64.
    signed = lax.bitcast_convert_type(hashed ^ jnp.uint32(2**31), jnp.int32)
    return signed.astype(jnp.float32) * jnp.float32(2.0**-31)
