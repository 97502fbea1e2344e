"""Random numbers that a model draws in its forward pass, as further inputs of the step.

They are drawn once for each batch, when the workload is prepared, and are in the bundle after the
model's own inputs. Every level is then given the same numbers, and can be compared with the
reference. Dropout in training is not among them: each level draws its own masks, off in the check.

Functions stand in for PyTorch's, under the same names: they record what is drawn, or give what was.
Outside a forward pass they only call PyTorch's. Draws inside other operators are not seen; they
make the step unrepeatable, which `trial` refuses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.records.errors import GolowError
from golow.records.workload import Device, Mode
from golow.workload.patched_functions import StandIns, install, installed

_Call = Callable[..., Any]

MADE = (
    "bernoulli", "multinomial", "normal", "poisson", "rand", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "randperm",
)  # fmt: skip
"""Functions of torch that return a new tensor of draws."""
MADE_FROM = ("bernoulli", "multinomial")
"""Methods of a tensor that do."""
FILLED = (
    "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_",
    "uniform_",
)  # fmt: skip
"""Methods that fill a tensor with draws."""
DROPPED = ("dropout", "dropout1d", "dropout2d", "dropout3d")
"""Functions whose masks are draws in inference, where a model that calls them drops always."""


class _Source(Protocol):
    """Source of random numbers for the stand-ins in a forward pass."""

    def made(self, original: _Call, given: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        """A new tensor of draws."""

    def filled(self, original: _Call, given: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        """The tensor given, full of draws."""


class _Recorder:
    """Lets PyTorch draw and keeps a copy of every draw."""

    def __init__(self) -> None:
        self.draws: list[Tensor] = []

    def made(self, original: _Call, given: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        return self._kept(original(*given, **named))

    filled = made

    def _kept(self, result: Tensor) -> Tensor:
        self.draws.append(result.detach().clone())
        return result


class _Replay:
    """Returns the recorded draws, in their order."""

    def __init__(self, draws: Sequence[Tensor]) -> None:
        self._draws = draws
        self._position = 0

    def made(self, original: _Call, given: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        draw, like = self._next(), next((item for item in given if isinstance(item, Tensor)), None)
        dtype = named.get("dtype")
        if dtype is None and like is not None and like.is_floating_point():
            dtype = like.dtype if draw.is_floating_point() else None
        # A copy, because the model may change what it drew.
        return draw.to(dtype or draw.dtype, copy=True)

    def filled(self, original: _Call, given: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        draw, tensor = self._next(), given[0]
        if tuple(draw.shape) != tuple(tensor.shape):
            raise _unlike(f"fills a tensor of {list(tensor.shape)}, not {list(draw.shape)},")
        filled: Tensor = tensor.copy_(draw)
        return filled

    def finish(self) -> None:
        """Raise `GolowError` unless everything was drawn."""
        if self._position != len(self._draws):
            raise _unlike(f"draws {self._position} times, not {len(self._draws)},")

    def _next(self) -> Tensor:
        self._position += 1
        if self._position > len(self._draws):
            raise _unlike(f"draws more than {len(self._draws)} times")
        return self._draws[self._position - 1]


class _Active:
    """source: that of the forward pass that is running."""

    source: _Source | None = None


_ACTIVE = _Active()


@contextmanager
def _asked(source: _Source | None) -> Iterator[None]:
    before, _ACTIVE.source = _ACTIVE.source, source
    try:
        yield
    finally:
        _ACTIVE.source = before


# ---------------------------------------------------------------- the stand-ins


def _stand_in(original: _Call, answer: str) -> _Call:
    def called(*given: Any, **named: Any) -> Any:
        source = _ACTIVE.source
        if source is None or named.get("out") is not None or _is_internal(sys._getframe(1)):
            return original(*given, **named)
        return getattr(source, answer)(original, given, named)

    return called


def _is_internal(caller: FrameType) -> bool:
    """True if PyTorch itself calls, from the definition of an operator: while it traces dropout, it
    calls ``rand_like``, which is not a draw of the model."""
    return str(caller.f_globals.get("__name__", "")).startswith("torch._")


def _dropout_stand_in(original: _Call) -> _Call:
    """Dropout by a mask that is a draw: zeros, and 1 / (1 - p) where a value is kept."""

    def called(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        source = _ACTIVE.source
        if source is None or not training or p == 0:
            return original(input, p, training, inplace)
        mask = source.made(lambda like: original(torch.ones_like(like), p, True), (input,), {})
        return input.mul_(mask) if inplace else input * mask

    return called


_DRAWS: StandIns = {
    **{(torch, name): _stand_in(getattr(torch, name), "made") for name in MADE},
    **{(Tensor, name): _stand_in(getattr(Tensor, name), "made") for name in MADE_FROM},
    **{(Tensor, name): _stand_in(getattr(Tensor, name), "filled") for name in FILLED},
}
_DROPOUT: StandIns = {
    (functional, name): _dropout_stand_in(getattr(functional, name)) for name in DROPPED
}


def _stand_ins(mode: Mode) -> StandIns:
    return {**_DRAWS, **_DROPOUT} if mode == "infer" else _DRAWS


# ---------------------------------------------------------------- recording and giving


@contextmanager
def drawn(mode: Mode, seed: int, device: Device) -> Iterator[list[Tensor]]:
    """Record the draws of the model in the block, from this seed; the generators stay as they
    are."""
    recorder = _Recorder()
    devices = [torch.cuda.current_device()] if device == "cuda" else []
    with torch.random.fork_rng(devices), installed(_stand_ins(mode)), _asked(recorder):
        torch.manual_seed(seed)
        yield recorder.draws


class _Given(nn.Module):
    """A model whose draws are its last inputs."""

    golow_draws: tuple[int, Mode]

    def forward(self, *batch: Tensor) -> Any:
        """The model's output for its own inputs, with these draws."""
        count, mode = self.golow_draws
        if isinstance(_ACTIVE.source, _Recorder):
            return super().forward(*batch)
        replay = _Replay(batch[-count:])
        with _standing_in(mode), _asked(replay):
            output = super().forward(*batch[:-count])
        replay.finish()
        return output


def accept_draws(module: nn.Module, count: int, mode: Mode) -> None:
    """Let the module take this many draws after its own inputs. Its class becomes a subclass, so
    that layers and parameters keep their names."""
    module.golow_draws = (count, mode)  # type: ignore[assignment]
    own: type[nn.Module] = type(module)
    names = {"__module__": own.__module__, "__qualname__": own.__qualname__}
    module.__class__ = type(own.__name__, (_Given, own), names)


_INSTALLED: set[Mode] = set()


def install_draws(mode: Mode) -> None:
    """Let the stand-ins stay in this process. A worker's forward pass is then as fast as it can
    be: the first change of a class slows down all later look-ups in it."""
    install(_stand_ins(mode))
    _INSTALLED.add(mode)


def _standing_in(mode: Mode) -> Any:
    return nullcontext() if mode in _INSTALLED else installed(_stand_ins(mode))


def _unlike(what: str) -> GolowError:
    return GolowError(
        f"the model {what} when its draws are replayed, unlike in preparation",
        "a model's draws must not depend on earlier draws or on the batch.",
    )
