"""How PaddlePaddle spells what the frameworks share: its names of functions, and its constructs."""

from __future__ import annotations

from collections.abc import Sequence

from golow.levels.traced.dialect import Side, StrictDialect

# In the order of promotion.
DTYPES = {
    "bool": "paddle.bool",
    "uint8": "paddle.uint8",
    "int32": "paddle.int32",
    "int64": "paddle.int64",
    "float32": "paddle.float32",
}
REDUCTIONS = {
    "sum": "paddle.sum",
    "mean": "paddle.mean",
    "maximum": "paddle.amax",
    "minimum": "paddle.amin",
    "product": "paddle.prod",
}
TRUTHS = {"maximum": "paddle.any", "minimum": "paddle.all"}


class Paddle(StrictDialect):
    """`paddle`, and `paddle.nn.functional` as ``F``. Its users have images as PyTorch has them."""

    level = "paddle"
    module = "paddle"
    nn = "F"
    dtypes = DTYPES
    taken = frozenset({"paddle", "F"})
    array = "paddle.to_tensor"
    rsqrt = "paddle.rsqrt"
    fold_in = ""
    truth = "paddle.bool"
    zero = "0.0"
    channels_last = False
    activations = {
        "elu": "F.elu({x}, {0})",
        # Paddle's own has another gradient at zero.
        "leaky_relu": "paddle.where({x} > 0, {x}, {0} * {x})",
        "sigmoid": "F.sigmoid({x})",
        "tanh": "paddle.tanh({x})",
    }

    def converted(self, x: str, dtype: str) -> str:
        return f"paddle.cast({x}, {DTYPES[dtype]})"

    def typed(self, value: float, dtype: str) -> str:
        return f"paddle.full((), {self.number(value)}, {DTYPES[dtype]})"

    def filled(self, shape: Sequence[int], value: float, dtype: str) -> str:
        """The number has the type of the result."""
        if dtype != "float32":
            value = bool(value) if dtype == "bool" else int(value)
        return f"paddle.full({tuple(shape)}, {self.number(value)}, {DTYPES[dtype]})"

    def counted(self, count: int, dtype: str) -> str:
        return f"paddle.arange({count}, dtype={DTYPES[dtype]})"

    def key(self, index: int) -> str:
        """Nothing: Paddle's draws come from a generator, one after another."""
        return ""

    def drawn(self, shape: str, key: str, probability: float) -> str:
        """Numbers from zero to one, of which this many are smaller."""
        return f"paddle.uniform({shape}, min=0.0, max=1.0) < {probability!r}"

    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        return f"paddle.reshape({x}, {tuple(shape)})"

    def concatenated(self, parts: Sequence[str], axis: int) -> str:
        return f"paddle.concat([{', '.join(parts)}], axis={axis})"

    def flipped(self, x: str, axes: Sequence[int]) -> str:
        return f"paddle.flip({x}, {list(axes)})"

    def padded(self, x: str, dtype: str, sides: Sequence[Side], value: float) -> str:
        """``F.pad`` takes nothing away, so that a slice does so first, and has kernels of no small
        types."""
        if any(min(ends) < 0 for _, *ends in sides):
            kept = (f"{max(0, -before)}:{size + min(0, after)}" for size, before, after in sides)
            x = f"{x}[{', '.join(kept)}]"
        added = [max(0, side) for _, *ends in sides for side in ends]
        number = value if dtype == "float32" else int(value)
        if dtype in ("bool", "uint8"):
            wide = f"F.pad({self.converted(x, 'int32')}, {added}, value={number!r})"
            return self.converted(wide, dtype)
        return f"F.pad({x}, {added}, value={self.number(number)})"

    def sliced(self, x: str, axis: int, start: int, stop: int, step: int) -> str:
        further = f":{step}" if step != 1 else ""
        return f"{x}[{':, ' * axis}{start}:{stop}{further}]"

    def reduced(
        self,
        function: str,
        x: str,
        axes: tuple[int, ...],
        keep: bool,
        dtype: str = "float32",
        rank: int = 0,
    ) -> str:
        """The gradient of `amax` over several of five axes or more is uninitialised memory, as
        seen at PaddlePaddle 3.3, so that one axis goes after another."""
        name, kept = self.reduction(function, dtype), ", keepdim=True" if keep else ""
        if name in ("paddle.amax", "paddle.amin") and rank > 4 and 1 < len(axes) < rank:
            for axis in sorted(axes, reverse=True):  # those before it keep their place
                x = f"{name}({x}, axis={axis}{kept})"
            return x
        return f"{name}({x}, axis={axes}{kept})"

    def reduction(self, function: str, dtype: str) -> str:
        """Truth values have no order in Paddle."""
        return (TRUTHS if dtype == "bool" else REDUCTIONS)[function]

    def running_sum(self, x: str, axis: int, given: str, wanted: str) -> str:
        return f"paddle.cumsum({self.cast(x, given, wanted)}, axis={axis})"

    def product(self, a: str, b: str) -> str:
        return f"paddle.matmul({a}, {b})"

    def affine(self, x: str, weight: str, bias: str | None, shape: Sequence[int], size: int) -> str:
        product = f"paddle.matmul({x}, {weight}, transpose_y=True)"
        return product if bias is None else f"{product} + {bias}"

    def mean_of_windows(self, x: str, kernel: tuple[int, ...]) -> str:
        return f"F.avg_pool2d({x}, {kernel}, {kernel})"

    def returned(self, x: str) -> str:
        """A copy: `paddle.jit.to_static` lets the loss be computed in place of an output, as seen
        at PaddlePaddle 3.3."""
        return f"paddle.assign({x})"

    def layer_norm(
        self, x: str, shape: Sequence[int], weight: str | None, bias: str | None, epsilon: float
    ) -> str:
        return f"F.layer_norm({x}, {tuple(shape)}, {weight}, {bias}, {epsilon!r})"

    def adaptive_mean(self, x: str, size: Sequence[int]) -> str:
        return f"F.adaptive_avg_pool2d({x}, {tuple(size)})"


PADDLE = Paddle()
