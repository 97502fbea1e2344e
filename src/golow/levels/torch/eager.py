"""The top of the ladder: the nn.Module as it is. Every other level is compared with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from golow.levels.level import Launch, Level, Variant, python_worker
from golow.levels.probe import Probe
from golow.workload.bundle import Bundle

if TYPE_CHECKING:
    from golow.levels.torch.program import TorchProgram

# If the reference runs out of memory, larger blocks of PyTorch's allocator hold one tensor each.
WHOLE_MIB = 512


def probe() -> Probe:
    """torch must be installed; the probe does not import it."""
    if find_spec("torch") is None:
        return Probe(False, "torch is not installed", "pip install 'torch>=2.11,<2.14'")
    return Probe(True)


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Nothing to build."""
    return Launch(python_worker(__name__, variant))


def program(variant: str) -> TorchProgram:
    """The worker's side."""
    import torch
    from msgspec.structs import replace
    from torch import Tensor

    from golow.levels.torch import first_overflow, gradient_terms
    from golow.levels.torch.flipped_activations import (
        FLIPPED,
        NEARLY_FLIPPED,
        UNROUNDED,
        flip_activations,
        leave_unrounded,
    )
    from golow.levels.torch.in_double import InDouble
    from golow.levels.torch.layer_response import RESPONSE, layer_responses
    from golow.levels.torch.ranks_in_turn import RanksInTurn
    from golow.levels.torch.rounded_operations import (
        KERNELS_ROUNDED,
        ROUNDED,
        Grid,
        RoundedKernels,
        RoundedOperations,
    )
    from golow.workload.trial import give_back_memory

    class Eager(RanksInTurn):
        def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
            super().outputs(batches, learning_rate, file)
            # Eager and its reference take turns: each needs the memory that the other has cached.
            give_back_memory(self.workload.device)

    if variant == "channels_last":

        class ChannelsLast(Eager):
            memory_format = torch.channels_last

        return ChannelsLast()
    if variant == "float64":

        class Float64(Eager):
            dtype = torch.float64

            def __init__(self) -> None:
                super().__init__()
                self.cancelled: list[
                    gradient_terms.Uses
                ] = []  # of every step since the check began
                self.terms: list[gradient_terms.Uses] = []  # of the step's backward passes

            def _read(self, bundle: Bundle) -> None:
                super()._read(bundle)
                self.moves = bundle.file(gradient_terms.MOVED).exists()
                self.responds = bundle.file(RESPONSE).exists()
                if bundle.file(first_overflow.WATCHED).exists():
                    first_overflow.watch(self.module)
                if bundle.file(UNROUNDED).exists():
                    leave_unrounded(self.module)
                for mark, each in ((NEARLY_FLIPPED, False), (FLIPPED, True)):
                    if bundle.file(mark).exists():
                        flip_activations(self.module, each=each)
                self.rounding: tuple[RoundedOperations, ...] = ()
                if (file := bundle.file(ROUNDED)).exists():
                    grid = Grid.read(file.read_text())
                    grids = (grid, grid.of_gradients() if self.train else grid)
                    self.rounding = tuple(RoundedOperations(g) for g in grids)
                elif (file := bundle.file(KERNELS_ROUNDED)).exists():
                    self.rounding = (RoundedKernels(Grid.read(file.read_text())),) * 2

            def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
                with suppress(torch.OutOfMemoryError):
                    return super().outputs(batches, learning_rate, file)
                # A small tensor in a large block can make the rest of the block unusable. Blocks
                # that are not split cost time (PyTorch's notes on CUDA, max_split_size_mb), so they
                # are used only after memory has run out.
                give_back_memory(self.workload.device)
                torch._C._accelerator_setAllocatorSettings(f"max_split_size_mb:{WHOLE_MIB}")
                return super().outputs(batches, learning_rate, file)

            def _train_outputs(self, batches: list[int], learning_rate: float) -> dict[str, Tensor]:
                self.cancelled = []
                self.signs = torch.Generator(self.device).manual_seed(0)
                tensors = super()._train_outputs(batches, learning_rate)
                settings = replace(self.workload.optimizer, learning_rate=learning_rate)
                sizes = gradient_terms.of_tensors(self.cancelled, self.module, settings)
                scalars = {name: torch.tensor(size).double() for name, size in sizes.items()}
                return {**tensors, **scalars}

            @contextmanager
            def _in_double(self, *, backward: bool = False) -> Iterator[None]:
                """The reference's arithmetic; its operations round if the bundle asks for it."""
                with InDouble(), self.rounding[backward] if self.rounding else nullcontext():
                    yield

            def _infer_outputs(self, batches: list[int]) -> dict[str, Tensor]:
                if not self.responds:
                    return super()._infer_outputs(batches)
                inputs = self.inputs[batches[0]]

                def call() -> Any:
                    with self._in_double():
                        return self.call(*self._arrange(inputs))

                return layer_responses(self.module, call)

            def _infer(self, inputs: tuple[Tensor, ...]) -> Any:
                with self._in_double():
                    return super()._infer(inputs)

            def _loss_and_output(
                self, inputs: tuple[Tensor, ...], targets: tuple[Tensor, ...]
            ) -> tuple[Tensor, Any]:
                with self._in_double():
                    return super()._loss_and_output(inputs, targets)

            def _backward(self, loss: Tensor) -> None:
                self.terms.append(gradient_terms.watch(loss))
                if self.moves:
                    gradient_terms.move(loss, self.signs)
                with self._in_double(backward=True):
                    super()._backward(loss)

            def _update(self, optimizer: torch.optim.Optimizer) -> None:
                self.cancelled.append(gradient_terms.cancelled(gradient_terms.added(self.terms)))
                self.terms = []
                super()._update(optimizer)

        return Float64()
    return Eager()


LEVEL = Level(
    name="eager",
    summary="the nn.Module, operation by operation",
    needs="torch",
    probe=probe,
    prepare=prepare,
    served_by=__name__,
    devices=("cpu", "cuda"),
    variants={
        "channels_last": Variant("weights and activations in NHWC order"),
        "float64": Variant("in double precision: the reference of the check"),
    },
)
