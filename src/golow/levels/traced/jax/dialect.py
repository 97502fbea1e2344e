"""How JAX spells what the frameworks share: its names of functions, and its constructs."""

from __future__ import annotations

from collections.abc import Sequence

from golow.levels.traced.dialect import Dialect, Side

# JAX computes in 32 bits unless its users ask for more.
DTYPES = {
    "float32": "jnp.float32",
    "bfloat16": "jnp.bfloat16",
    "float16": "jnp.float16",
    "int64": "jnp.int32",
    "int32": "jnp.int32",
    "uint8": "jnp.uint8",
    "bool": "jnp.bool_",
}
INT32 = 2**31 - 1
Sizes = tuple[int, ...]

REDUCTIONS = {
    "sum": "jnp.sum",
    "mean": "jnp.mean",
    "maximum": "jnp.max",
    "minimum": "jnp.min",
    "product": "jnp.prod",
}


class Jax(Dialect):
    """`jax.numpy`, and `jax.lax` where that has no such function."""

    level = "jax"
    module = "jnp"
    nn = "jax.nn"
    dtypes = DTYPES
    taken = frozenset({"jax", "jnp", "lax"})
    array = "jnp.array"
    rsqrt = "lax.rsqrt"
    fold_in = "jax.random.fold_in"
    truth = "bool"
    zero = "0"
    activations = {
        "elu": "jax.nn.elu({x}, {0})",
        "leaky_relu": "jnp.where({x} > 0, {x}, {0} * {x})",  # JAX's own has another gradient at 0
        "sigmoid": "jax.nn.sigmoid({x})",
        "tanh": "jnp.tanh({x})",
    }

    def number(self, value: float | int | bool) -> str:
        """The number as Python's source; whole numbers within 32 bits."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        return super().number(max(-INT32 - 1, min(INT32, value)) if whole else value)

    def converted(self, x: str, dtype: str) -> str:
        """A method, which binds more tightly than any operator."""
        return f"{x}.astype({DTYPES[dtype]})"

    def cast(self, x: str, given: str, wanted: str) -> str:
        """Also where the two are the same; XLA then has nothing to do."""
        return self.converted(f"({x})", wanted)

    def filled(self, shape: Sequence[int], value: float, dtype: str) -> str:
        """An infinite number of a whole type is left to JAX."""
        whole = "int" in dtype and abs(value) != float("inf")
        number = self.number(int(value) if whole else value)
        return f"jnp.full({tuple(shape)}, {number}, {DTYPES[dtype]})"

    def counted(self, count: int, dtype: str) -> str:
        further = "" if dtype == "int64" else f", dtype={DTYPES[dtype]}"
        return f"jnp.arange({count}{further})"

    def drawn(self, shape: str, key: str, probability: float) -> str:
        return f"jax.random.bernoulli({key}, {probability!r}, {shape})"

    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        return f"{x}.reshape({tuple(shape)})"

    def concatenated(self, parts: Sequence[str], axis: int) -> str:
        return f"jnp.concatenate(({', '.join(parts)},), axis={axis})"

    def flipped(self, x: str, axes: Sequence[int]) -> str:
        return f"jnp.flip({x}, axis={tuple(axes)})"

    def padded(self, x: str, dtype: str, sides: Sequence[Side], value: float) -> str:
        text = ", ".join(f"({before}, {after}, 0)" for _, before, after in sides)
        return f"lax.pad({x}, jnp.array({self.number(value)}, {x}.dtype), ({text},))"

    def sliced(self, x: str, axis: int, start: int, stop: int, step: int) -> str:
        return f"lax.slice_in_dim({x}, {start}, {stop}, {step}, axis={axis})"

    def reduction(self, function: str, dtype: str) -> str:
        return REDUCTIONS[function]

    def running_sum(self, x: str, axis: int, given: str, wanted: str) -> str:
        return f"jnp.cumsum({x}, axis={axis}, dtype={DTYPES[wanted]})"

    def product(self, a: str, b: str) -> str:
        return f"{a} @ {b}"

    def affine(self, x: str, weight: str, bias: str | None, shape: Sequence[int], size: int) -> str:
        product = f"{x} @ {weight}.T"
        return product if bias is None else f"{product} + {bias}"

    def mean_of_windows(self, x: str, kernel: tuple[int, ...]) -> str:
        total = window(x, "0.0", "lax.add", kernel, kernel, ((0, 0), (0, 0)))
        return f"{total} / {kernel[0] * kernel[1]}"


JAX = Jax()


def window(
    x: str, start: str, function: str, kernel: Sizes, stride: Sizes, ends: tuple[Sizes, ...]
) -> str:
    """``lax.reduce_window`` of an image with channels last. ends: padding before and after its
    rows, and its columns."""
    sizes, steps, sides = (1, *kernel, 1), (1, *stride, 1), ((0, 0), *ends, (0, 0))
    return f"lax.reduce_window({x}, {start}, {function}, {sizes}, {steps}, {sides})"
