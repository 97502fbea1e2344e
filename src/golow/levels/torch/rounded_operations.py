"""A model whose operations round: what a working precision costs, without that precision's kernels.

The float64 reference runs, and each result of an operation is rounded to fewer binary digits, up or
down with equal chance. Vignes's CESTAC method does this in a program's own precision. As there, a
number that has no more digits stays as it is: copies, choices and whole numbers are exact. As in
any precision, equal numbers in one result round alike, and so do a number and its negative.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_any, tree_map

ROUNDED = "rounded"
"""A file of a bundle whose reference rounds: it holds a `Grid`."""

KERNELS_ROUNDED = "kernels-rounded"
"""A file of a bundle whose reference rounds within kernels in which numbers cancel, and nowhere
else."""

DOUBLE_DIGITS = 52

LARGEST = 2.0**1023
"""Numbers beyond it are not rounded up, which could be infinite."""

STEPS = frozenset(
    """
    native_batch_norm native_batch_norm_backward _native_batch_norm_legit
    _native_batch_norm_legit_no_training cudnn_batch_norm cudnn_batch_norm_backward
    batch_norm_backward native_layer_norm native_layer_norm_backward
    native_group_norm native_group_norm_backward
    _softmax _softmax_backward_data _log_softmax _log_softmax_backward_data
    var var_mean std std_mean gelu gelu_backward
    _euclidean_dist
    """.split()
)
"""Kernels within which numbers cancel. Their steps round, too: the rounding of a mean that is
subtracted shows in no digit of the kernel's result."""

SUMS = frozenset(("sum", "mean"))
"""Operations whose terms may cancel in an order that no rounding of single terms shows."""

FACTORISING = ("linalg_", "_linalg_", "cholesky", "triangular_solve", "lu_")
"""How operations begin whose result is exact for operands that are a few roundings away, which are
not those that other operations get."""

OF_TERMS = 2.0**-23
"""Share of the absolute terms by which a sum is moved."""


class Grid(NamedTuple):
    """The numbers to which results are rounded.

    digits: binary digits after the first. least: exponent of the least number that has all of them.
    seed: of the draw of which numbers go up.
    """

    digits: int
    least: int
    seed: int = 0

    def __str__(self) -> str:
        return " ".join(map(str, self))

    @classmethod
    def read(cls, text: str) -> Grid:
        """Read what `str` wrote."""
        return cls(*map(int, text.split()))

    def of_gradients(self) -> Grid:
        """Return the grid of a backward pass, which a loss scaler of 2^16 lifts above fp16's
        least numbers."""
        return self._replace(least=max(self.least - 16, -126), seed=self.seed + 1000)


FLOAT32_KERNELS = Grid(20, -126)
"""Kernels compute in float32 in every precision. Here it has three digits less, so that one
rounding stands for the eight that another order of summation is worth."""


class RoundedOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, float64 results of operations on floating point numbers are rounded to a grid.

    What a view shows was rounded before. Enter it within `InDouble`, whose results it rounds.
    """

    supports_higher_order_operators = True  # they call operators, which come here

    def __init__(self, grid: Grid) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._grid = grid
        self._draw = random.Random(grid.seed)  # noqa: S311 - no secret

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return true: what a model compiles itself is one operation."""
        return True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the operation and round what it returns."""
        named = dict(kwargs or {})
        if not isinstance(func, torch._ops.OpOverload) or not tree_any(_rounds, (args, named)):
            return func(*args, **named)
        if (steps := _steps_of(func)) is not None:
            with self._within_a_kernel(func):
                result = steps(*args, **named)
        else:
            result = self._called(func, args, named)
        aliases = [value.alias_info for value in func._schema.returns]
        with _disable_current_modes():  # `InDouble` would look at every step of the rounding
            if any(alias is not None and alias.is_write for alias in aliases):
                return tree_map(self._round_in_place, result)
            return result if any(aliases) else tree_map(self._rounded, result)

    def _called(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Result of the operation, with the changes that intermediate rounding may cause."""
        if func._opname.startswith(FACTORISING):
            args = tuple(self._moved(value) if _rounds(value) else value for value in args)
        result = func(*args, **named)
        if func._opname in SUMS and _rounds(result) and not result.is_complex():
            terms = func(args[0].abs(), *args[1:], **named).mul_(self._signs(result))
            return torch.where(self._beyond(result) == 0, result, result + OF_TERMS * terms)
        return result

    @contextmanager
    def _within_a_kernel(self, func: Any) -> Iterator[None]:
        """Round what is called in between. What PyTorch itself defines by other operations is
        not a kernel, and has none of its own where nothing is recorded for a backward pass."""
        before = self._grid
        if func._opname in STEPS:
            self._grid = FLOAT32_KERNELS
        try:
            with self:
                yield
        finally:
            self._grid = before

    def _moved(self, value: Tensor) -> Tensor:
        """A matrix, moved by a rounding for each of its rows: what solving with it may cost."""
        rows = value.shape[-1] if value.dim() else 1
        return value * (1 + rows * 2.0**-FLOAT32_KERNELS.digits * self._signs(value))

    def _round_in_place(self, value: Any) -> Any:
        return value.copy_(self._rounded(value)) if _rounds(value) else value

    def _rounded(self, value: Any) -> Any:
        if not _rounds(value):
            return value
        value = value.resolve_conj().resolve_neg()
        if value.is_complex():
            return torch.view_as_complex(self._rounded(torch.view_as_real(value)))
        size = value.abs()
        up = self._tossed(size)
        least, largest = map(float, size.aminmax()) if size.numel() else (1.0, 1.0)
        if not largest < LARGEST:
            up = up * (size < LARGEST)
        rounded = self._to_digits(value, up)
        if least >= 2.0**self._grid.least:
            return rounded
        small = size < 2.0**self._grid.least
        if not bool((small & (size > 0)).any()):
            return rounded
        return torch.where(small, self._to_least(value, size, up), rounded)

    def _to_digits(self, value: Tensor, up: Tensor) -> Tensor:
        """The next number of the grid's digits towards zero, or the one beyond: the digits that the
        grid lacks are cut off, for the second after adding the largest number that fits into them.
        An infinity has no digits; a NaN stays one."""
        added = up.neg().bitwise_and_(self._dropped - 1)
        return added.add_(value.view(torch.int64)).bitwise_and_(-self._dropped).view(torch.float64)

    def _to_least(self, value: Tensor, size: Tensor, up: Tensor) -> Tensor:
        """Below the least number digits are lost, as subnormal numbers lose them."""
        step = 2.0 ** (self._grid.least - self._grid.digits)
        steps = size / step
        whole = steps.floor()
        return (whole + up * (steps != whole)).copysign(value) * step

    def _beyond(self, value: Tensor) -> Tensor:
        """The bits of the digits that the grid does not have."""
        return value.view(torch.int64) & (self._dropped - 1)

    def _tossed(self, size: Tensor) -> Tensor:
        """0 or 1 for each number, the same for equal ones, and drawn anew in each call: one bit of
        the product of the number's bits and an odd number."""
        odd = self._draw.getrandbits(62) | 1
        return (size.view(torch.int64) * odd).bitwise_right_shift_(61).bitwise_and_(1)

    def _signs(self, value: Tensor) -> Tensor:
        return self._tossed(value.abs()).mul_(2).sub_(1).to(torch.float64)

    @property
    def _dropped(self) -> int:
        return int(2 ** (DOUBLE_DIGITS - self._grid.digits))


class RoundedKernels(RoundedOperations):  # type: ignore[no-untyped-call]
    """Rounds within kernels in which numbers cancel, and what these return: a mean that is
    subtracted from equal numbers moves a result whose exact value is zero."""

    _within = False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the operation, and round if it is such a kernel or within one."""
        named = dict(kwargs or {})
        if self._within or getattr(func, "_opname", "") in STEPS:
            before, self._within = self._within, True
            try:
                return super().__torch_dispatch__(func, types, args, named)
            finally:
                self._within = before
        composite = _steps_of(func) if isinstance(func, torch._ops.OpOverload) else None
        if composite is None:
            return func(*args, **named)
        with self:
            return composite(*args, **named)


def _rounds(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in (torch.float64, torch.complex128)


def _steps_of(func: Any) -> Callable[..., Any] | None:
    """The operations that PyTorch itself calls for this one, or the steps of its kernel."""
    if func._opname in STEPS:
        return _definitions().get(func)
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    return func.decompose if func.has_kernel_for_dispatch_key(composite) else None


@cache
def _definitions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's definitions of operations, by overload."""
    from torch._decomp import decomposition_table  # takes long to import

    return decomposition_table
