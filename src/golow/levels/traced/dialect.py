"""How a framework spells what all of them have: the names of its functions, and the few constructs
that differ in more than a name. Operators that differ in nothing else are written once over it, in
``operators/``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

# Padding of an axis: its size, and how many elements to add before and after it; less than zero
# takes away.
Side = tuple[int, int, int]


class Dialect(ABC):
    """The words of one framework. Arguments are expressions: their text.

    level: the name of the level. dtypes: the element types that it has values of. taken: names that
    its sources use themselves. module: what has the functions of tensors. nn: what has those of
    neural networks. array: the function that makes a tensor of nested lists. rsqrt: the function
    ``1 / sqrt(x)``. fold_in: the function that makes keys from a key. truth: the type of truth
    values where a tensor is made. zero: a zero beside floats. activations: those that no two
    frameworks spell alike, as in `operators.activation`. channels_last: whether the framework's
    users choose this order for images; otherwise it is PyTorch's, as that of the filters.
    """

    level: ClassVar[str]
    dtypes: ClassVar[Mapping[str, str]]
    taken: ClassVar[frozenset[str]]
    module: ClassVar[str]
    nn: ClassVar[str]
    array: ClassVar[str]
    rsqrt: ClassVar[str]
    fold_in: ClassVar[str]
    truth: ClassVar[str]
    zero: ClassVar[str]
    activations: ClassVar[Mapping[str, str]]
    channels_last: ClassVar[bool] = True

    # ------------------------------------------------------------ numbers and types

    def number(self, value: float | int | bool) -> str:
        """The number as Python's source."""
        if isinstance(value, bool | int):
            return repr(value)
        if value != value:
            return "math.nan"
        if value in (float("inf"), float("-inf")):
            return "math.inf" if value > 0 else "-math.inf"
        return repr(value)

    def operand(self, value: float | int | bool) -> str:
        """The number beside an operator, for which a negative one needs parentheses."""
        text = self.number(value)
        return f"({text})" if text.startswith("-") else text

    @abstractmethod
    def converted(self, x: str, dtype: str) -> str:
        """A name, or an expression in parentheses, in another type."""

    @abstractmethod
    def cast(self, x: str, given: str, wanted: str) -> str:
        """Any expression of the type ``given`` in the type ``wanted``."""

    # ------------------------------------------------------------ new values

    @abstractmethod
    def filled(self, shape: Sequence[int], value: float, dtype: str) -> str:
        """One number everywhere."""

    @abstractmethod
    def counted(self, count: int, dtype: str) -> str:
        """0, 1, ... as int64 or float32."""

    def key(self, index: int) -> str:
        """Key from which the draw with that index is made."""
        return f"{self.fold_in}(key, {index})"

    @abstractmethod
    def drawn(self, shape: str, key: str, probability: float) -> str:
        """Truth values, each true with that probability."""

    # ------------------------------------------------------------ shapes

    def transposed(self, x: str, order: Sequence[int]) -> str:
        """x with its axes in another order."""
        return f"{self.module}.transpose({x}, {tuple(order)})"

    @abstractmethod
    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        """x in another shape."""

    @abstractmethod
    def concatenated(self, parts: Sequence[str], axis: int) -> str:
        """The parts after one another."""

    @abstractmethod
    def flipped(self, x: str, axes: Sequence[int]) -> str:
        """x with axes reversed."""

    @abstractmethod
    def padded(self, x: str, dtype: str, sides: Sequence[Side], value: float) -> str:
        """x, of that type, with elements of that value added at both ends of each axis, or taken
        away."""

    @abstractmethod
    def sliced(self, x: str, axis: int, start: int, stop: int, step: int) -> str:
        """``x[start:stop:step]`` along an axis."""

    # ------------------------------------------------------------ along axes

    def reduced(
        self,
        function: str,
        x: str,
        axes: tuple[int, ...],
        keep: bool,
        dtype: str = "float32",
        rank: int = 0,
    ) -> str:
        """One number, of elements of that type, for each place outside of these axes. keep: their
        size becomes one. rank: how many axes x has, for an extreme."""
        kept = ", keepdims=True" if keep else ""
        return f"{self.reduction(function, dtype)}({x}, axis={axes}{kept})"

    @abstractmethod
    def reduction(self, function: str, dtype: str) -> str:
        """The name of the function that reduces elements of that type."""

    @abstractmethod
    def running_sum(self, x: str, axis: int, given: str, wanted: str) -> str:
        """``x[0] + ... + x[i]`` of the type ``given``, in the type ``wanted``."""

    # ------------------------------------------------------------ layers

    @abstractmethod
    def product(self, a: str, b: str) -> str:
        """``a b``, of matrices."""

    @abstractmethod
    def affine(self, x: str, weight: str, bias: str | None, shape: Sequence[int], size: int) -> str:
        """``x weight^T + bias``. shape: that of x. size: of the last axis of the result."""

    @abstractmethod
    def mean_of_windows(self, x: str, kernel: tuple[int, ...]) -> str:
        """The mean of each window of an image with channels last; windows are adjacent."""

    def returned(self, x: str) -> str:
        """An output of the model, which a training step returns besides the loss."""
        return x

    # ------------------------------------------------------------ what only some frameworks have

    def layer_norm(
        self, x: str, shape: Sequence[int], weight: str | None, bias: str | None, epsilon: float
    ) -> str | None:
        """The framework's own norm over the last axes, of that shape; None if it is written out."""
        return None

    def adaptive_mean(self, x: str, size: Sequence[int]) -> str | None:
        """The framework's own adaptive average pooling of an image, to that size; None if it is
        written out."""
        return None


class StrictDialect(Dialect):
    """A framework that converts no types by itself. dtypes: in the order of promotion."""

    @abstractmethod
    def typed(self, value: float, dtype: str) -> str:
        """A number that states its type."""

    def cast(self, x: str, given: str, wanted: str) -> str:
        return x if given == wanted else self.converted(x, wanted)
