"""The variant ``freezing``: in inference the weights are constants of the compiled program."""

from __future__ import annotations

import math
from typing import Any

import jax

from golow.levels.direct.bundle_arrays import Read
from golow.levels.traced.jax.execution import Execution


class Frozen(Execution):
    """As ``jax.jit(lambda batch: forward(weights, batch))``: XLA folds and arranges the weights
    while it compiles. Nothing else holds them then, and other weights are another program."""

    _shapes: Any = None  # of the batches

    def load(self, read: Read) -> None:
        """Take the weights; if there is a program with others, compile again."""
        stale = self._compiled.pop("infer", None)
        super().load(read)
        self._leaves = ()
        if stale is not None:
            # Not for the cache: it would get the weights of every state that is restored.
            jax.config.update("jax_persistent_cache_min_compile_time_secs", math.inf)
            self._program("infer", self._shapes)

    def _take_weights(self) -> None:
        """The program has them."""
        self.state.clear()

    def _lowered(self, name: str, batch: dict[str, Any]) -> Any:
        self._shapes = {
            name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in batch.items()
        }
        weights = self.weights

        # A separate function for these weights: JAX remembers what it traced by the function.
        def infer(leaves: Any, batch: Any) -> Any:
            return self.module.forward(weights, batch)

        return jax.jit(infer).lower(self._leaves, self._shapes)
