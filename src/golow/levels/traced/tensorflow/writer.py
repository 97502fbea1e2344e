"""Writes a lowered graph as the source of TensorFlow functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from golow.levels.direct.implementation import Implementation, implementations
from golow.levels.traced import writer
from golow.levels.traced.tensorflow import operators
from golow.levels.traced.tensorflow.step import step_source
from golow.lower.ir.graph import Graph, Ref
from golow.records.workload import Workload

DTYPES = {
    "bool": "tf.bool",
    "uint8": "tf.uint8",
    "int32": "tf.int32",
    "int64": "tf.int64",
    "float32": "tf.float32",
}
HEADER = "import math\n\nimport tensorflow as tf\n"


@cache
def implemented() -> dict[str, Implementation]:
    """Return every operator of the level, by its name in nodes."""
    return implementations(operators)


def written_source(graph: Graph, workload: Workload) -> str:
    """Return the source for a lowered graph. Raises `Unsupported` for the first node that the level
    cannot run."""
    return Writer(graph).source(workload, HEADER, step_source(workload.optimizer))


class Writer(writer.Writer):
    """TensorFlow's words."""

    level = "tensorflow"
    dtypes = DTYPES
    taken = frozenset({"tf"})

    @classmethod
    def implemented(cls) -> Mapping[str, Implementation]:
        """Return every operator of the level, by its name in nodes."""
        return implemented()

    def transposed(self, expression: str, order: Sequence[int]) -> str:
        """The expression with its axes in another order."""
        return f"tf.transpose({expression}, {tuple(order)})"

    def reshaped(self, expression: str, shape: Sequence[int]) -> str:
        """The expression in another shape."""
        return f"tf.reshape({expression}, {tuple(shape)})"

    def key(self, index: int) -> str:
        """The seed of the draw with that index."""
        return f"tf.random.experimental.stateless_fold_in(key, {index})"

    def cast(self, expression: str, given: str, wanted: str) -> str:
        """The expression of that dtype in another; nothing is converted by itself in TensorFlow."""
        return expression if given == wanted else f"tf.cast({expression}, {DTYPES[wanted]})"

    def index(self, reference: Ref, size: int | None = None) -> str:
        """An index. size: of the axis, where it may be negative, which TensorFlow does not know."""
        text = self.plain(reference)
        if size is None:
            return text
        name = f"{self._identifier(reference.name)}_from_start"
        return self.line(name, f"tf.math.floormod({text}, {size})")
