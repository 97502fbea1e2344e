"""How TensorFlow spells what the frameworks share: its names of functions, and its constructs."""

from __future__ import annotations

from collections.abc import Sequence

from golow.levels.traced.dialect import Side, StrictDialect

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


class TensorFlow(StrictDialect):
    """`tf`, `tf.math` and `tf.nn`. TensorFlow converts no types by itself."""

    level = "tensorflow"
    module = "tf"
    nn = "tf.nn"
    dtypes = DTYPES
    taken = frozenset({"tf"})
    array = "tf.constant"
    rsqrt = "tf.math.rsqrt"
    fold_in = "tf.random.experimental.stateless_fold_in"
    truth = "tf.bool"
    zero = "0.0"
    activations = {
        "elu": "tf.where({x} > 0, {x}, {0} * tf.math.expm1(tf.minimum({x}, 0.0)))",
        "leaky_relu": "tf.nn.leaky_relu({x}, {0})",
        "sigmoid": "tf.math.sigmoid({x})",
        "tanh": "tf.math.tanh({x})",
    }

    def converted(self, x: str, dtype: str) -> str:
        return f"tf.cast({x}, {DTYPES[dtype]})"

    def typed(self, value: float, dtype: str) -> str:
        """A number that states its type."""
        return f"tf.constant({self.number(value)}, {DTYPES[dtype]})"

    def filled(self, shape: Sequence[int], value: float, dtype: str) -> str:
        """The number has the type of the result."""
        if dtype != "float32":
            value = bool(value) if dtype == "bool" else int(value)
        return f"tf.fill({tuple(shape)}, {self.typed(value, dtype)})"

    def counted(self, count: int, dtype: str) -> str:
        return f"tf.range({count}, dtype={DTYPES[dtype]})"

    def drawn(self, shape: str, key: str, probability: float) -> str:
        """Numbers from zero to one, of which this many are smaller."""
        return f"tf.random.stateless_uniform({shape}, {key}) < {probability!r}"

    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        return f"tf.reshape({x}, {tuple(shape)})"

    def concatenated(self, parts: Sequence[str], axis: int) -> str:
        return f"tf.concat([{', '.join(parts)}], axis={axis})"

    def flipped(self, x: str, axes: Sequence[int]) -> str:
        return f"tf.reverse({x}, {list(axes)})"

    def padded(self, x: str, dtype: str, sides: Sequence[Side], value: float) -> str:
        """``tf.pad`` takes nothing away, so that a slice does so first."""
        if any(min(ends) < 0 for _, *ends in sides):
            kept = (f"{max(0, -before)}:{size + min(0, after)}" for size, before, after in sides)
            x = f"{x}[{', '.join(kept)}]"
        added = tuple((max(0, before), max(0, after)) for _, before, after in sides)
        number = value if dtype == "float32" else int(value)
        constant = f"{number!r}" if dtype == "bool" else self.typed(number, dtype)
        return f"tf.pad({x}, {added}, constant_values={constant})"

    def sliced(self, x: str, axis: int, start: int, stop: int, step: int) -> str:
        further = f":{step}" if step != 1 else ""
        return f"{x}[{':, ' * axis}{start}:{stop}{further}]"

    def reduction(self, function: str, dtype: str) -> str:
        """Truth values have no order in TensorFlow."""
        return (TRUTHS if dtype == "bool" else REDUCTIONS)[function]

    def running_sum(self, x: str, axis: int, given: str, wanted: str) -> str:
        return f"tf.cumsum({self.cast(x, given, wanted)}, axis={axis})"

    def product(self, a: str, b: str) -> str:
        return f"tf.matmul({a}, {b})"

    def affine(self, x: str, weight: str, bias: str | None, shape: Sequence[int], size: int) -> str:
        """Affine map of rows, as Keras computes it."""
        *outer, width = shape
        rows = x if len(outer) == 1 else self.reshaped(x, (-1, width))
        product = f"tf.matmul({rows}, {weight}, transpose_b=True)"
        if bias is not None:
            product = f"tf.nn.bias_add({product}, {bias})"
        return product if len(outer) == 1 else self.reshaped(product, (*outer, size))

    def mean_of_windows(self, x: str, kernel: tuple[int, ...]) -> str:
        return f'tf.nn.avg_pool2d({x}, {kernel}, {kernel}, "VALID")'


TENSORFLOW = TensorFlow()
