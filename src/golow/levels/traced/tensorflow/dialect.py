"""TensorFlow's words."""

from __future__ import annotations

from collections.abc import Sequence

from golow.levels.traced.dialect import Dialect

# In the order of promotion.
DTYPES = {
    "bool": "tf.bool",
    "uint8": "tf.uint8",
    "int32": "tf.int32",
    "int64": "tf.int64",
    "float32": "tf.float32",
}
REDUCTIONS = {
    "sum": "tf.reduce_sum",
    "mean": "tf.reduce_mean",
    "maximum": "tf.reduce_max",
    "minimum": "tf.reduce_min",
    "product": "tf.reduce_prod",
}
TRUTHS = {"maximum": "tf.reduce_any", "minimum": "tf.reduce_all"}


class TensorFlow(Dialect):
    """`tf`, `tf.math` and `tf.nn`. TensorFlow converts no types by itself."""

    level = "tensorflow"
    module = "tf"
    nn = "tf.nn"
    dtypes = DTYPES
    taken = frozenset({"tf"})
    rsqrt = "tf.math.rsqrt"
    zero = "0.0"
    activations = {
        "elu": "tf.where({x} > 0, {x}, {0} * tf.math.expm1(tf.minimum({x}, 0.0)))",
        "leaky_relu": "tf.nn.leaky_relu({x}, {0})",
        "sigmoid": "tf.math.sigmoid({x})",
        "tanh": "tf.math.tanh({x})",
    }

    def converted(self, x: str, dtype: str) -> str:
        """``tf.cast``."""
        return f"tf.cast({x}, {DTYPES[dtype]})"

    def cast(self, x: str, given: str, wanted: str) -> str:
        """Nothing where the types are the same."""
        return x if given == wanted else self.converted(x, wanted)

    def constant(self, values: object) -> str:
        """``tf.constant``."""
        return f"tf.constant({values})"

    def typed(self, value: float, dtype: str) -> str:
        """A number that says its type."""
        return f"tf.constant({self.number(value)}, {DTYPES[dtype]})"

    def filled(self, shape: Sequence[int], value: float, dtype: str) -> str:
        """The number has the type of the result."""
        if dtype != "float32":
            value = bool(value) if dtype == "bool" else int(value)
        return f"tf.fill({tuple(shape)}, {self.typed(value, dtype)})"

    def counted(self, count: int, dtype: str) -> str:
        """``tf.range``."""
        return f"tf.range({count}, dtype={DTYPES[dtype]})"

    def key(self, index: int) -> str:
        """The seed of the draw with that index."""
        return f"tf.random.experimental.stateless_fold_in(key, {index})"

    def drawn(self, shape: str, key: str, probability: float) -> str:
        """Numbers from zero to one, of which so many are smaller."""
        return f"tf.random.stateless_uniform({shape}, {key}) < {probability!r}"

    def trues(self, shape: str) -> str:
        """``tf.ones``."""
        return f"tf.ones({shape}, tf.bool)"

    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        """``tf.reshape``."""
        return f"tf.reshape({x}, {tuple(shape)})"

    def concatenated(self, parts: Sequence[str], axis: int) -> str:
        """``tf.concat`` takes a list."""
        return f"tf.concat([{', '.join(parts)}], axis={axis})"

    def flipped(self, x: str, axes: Sequence[int]) -> str:
        """``tf.reverse`` takes a list."""
        return f"tf.reverse({x}, {list(axes)})"

    def padded(
        self,
        x: str,
        shape: Sequence[int],
        dtype: str,
        sides: Sequence[tuple[int, int]],
        value: float,
    ) -> str:
        """``tf.pad`` takes nothing away, so that a slice does so first."""
        if any(min(each) < 0 for each in sides):
            kept = ", ".join(
                f"{max(0, -before)}:{size - max(0, -after)}"
                for (before, after), size in zip(sides, shape, strict=True)
            )
            x = f"{x}[{kept}]"
        added = tuple((max(0, before), max(0, after)) for before, after in sides)
        number = value if dtype == "float32" else int(value)
        constant = f"{number!r}" if dtype == "bool" else self.typed(number, dtype)
        return f"tf.pad({x}, {added}, constant_values={constant})"

    def sliced(self, x: str, axis: int, start: int, stop: int, step: int) -> str:
        """An index."""
        further = f":{step}" if step != 1 else ""
        return f"{x}[{':, ' * axis}{start}:{stop}{further}]"

    def reduction(self, function: str, dtype: str) -> str:
        """Truth values have no order in TensorFlow."""
        return (TRUTHS if dtype == "bool" else REDUCTIONS)[function]

    def running_sum(self, x: str, axis: int, given: str, wanted: str) -> str:
        """``tf.cumsum`` keeps the type."""
        return f"tf.cumsum({self.cast(x, given, wanted)}, axis={axis})"

    def product(self, a: str, b: str) -> str:
        """``tf.matmul``."""
        return f"tf.matmul({a}, {b})"

    def affine(self, x: str, weight: str, bias: str | None, shape: Sequence[int], size: int) -> str:
        """Of rows, as Keras has it."""
        *outer, width = shape
        rows = x if len(outer) == 1 else self.reshaped(x, (-1, width))
        product = f"tf.matmul({rows}, {weight}, transpose_b=True)"
        if bias is not None:
            product = f"tf.nn.bias_add({product}, {bias})"
        return product if len(outer) == 1 else self.reshaped(product, (*outer, size))

    def mean_of_windows(self, x: str, kernel: tuple[int, ...]) -> str:
        """``tf.nn.avg_pool2d``."""
        return f'tf.nn.avg_pool2d({x}, {kernel}, {kernel}, "VALID")'


TENSORFLOW = TensorFlow()
