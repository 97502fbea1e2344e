"""Binds the arguments of a call to inputs, and checks their shapes, types and devices."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from golow.levels.called.batch_axis import batch_of, first_axis
from golow.levels.called.exact_inputs import ExactInputs
from golow.levels.called.given_arrays import as_tensor, write_array
from golow.levels.called.one_size import by_position
from golow.levels.called.sizes import Size, ascending, next_size, wanted_batches
from golow.records.errors import GolowError


class InputForm(NamedTuple):
    """Expected form of an input.

    label: its name in messages. shape: of the example. batched: whether its first axis is the
    batch.
    """

    label: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    batched: bool


class CallInputs:
    """The inputs of a module, in the order of the example.

    names: the parameters of the module's forward pass that take them. changed: places of those that
    the module changes.
    """

    def __init__(
        self,
        module: nn.Module,
        example: Any,
        sizes: int | Sequence[int] | None,
        device: torch.device,
    ) -> None:
        """example: as `listed_example` returns it.
        sizes: batch sizes, or None for the example's alone. device: of every input. Raises
        `GolowError` for inputs that are not tensors, or elsewhere, and for sizes of a batch that is
        in no first axis, or in several."""
        self.parameters, self._defaults = parameters_of(module), defaults_of(module)
        if isinstance(example, Mapping):
            self.keywords: tuple[str, ...] = tuple(example)
            tensors = list(example.values())
            self.names = self.keywords
        else:
            self.keywords = ()
            tensors = list(example)
            own = getattr(module, "golow_keywords", ())  # of a model that golow made take a tuple
            self.names = tuple((self.parameters or own)[: len(tensors)])
        self.device = device
        labels = [f"input {one}" for one in self.keywords or range(len(tensors))]
        self.example = tuple(map(as_tensor, labels, tensors))
        if not self.example:
            raise GolowError("there is no example input", "give the tensors that the module takes.")
        for label, item in zip(labels, self.example, strict=True):
            require_on(label, item, device)
        if first_axis(self.example) == 0:
            raise GolowError(
                f"the example has no samples: {labels[0]} is "
                f"{'x'.join(map(str, self.example[0].shape))}",
                "give an example with at least one.",
            )
        # Inputs that a forward pass takes as *inputs have numbers instead of names.
        numbers = tuple(map(str, range(len(self.names), len(self.example))))
        self._known = (*self.names, *numbers)
        self._order = [*self.parameters, *numbers]
        view = by_position(module, self.keywords)
        self.batch = first_axis(self.example) if sizes is None else batch_of(view, self.example)
        self.pads = sizes is not None
        self.batches = ascending("batch", sizes) if sizes is not None else (self.batch,)
        self.changed: tuple[int, ...] = ()
        self.length = 0
        self.lengths: tuple[int, ...] = (0,)
        self.forms = tuple(
            InputForm(
                label,
                tuple(item.shape),
                item.dtype,
                bool(item.dim()) and item.shape[0] == self.batch,
            )
            for label, item in zip(labels, self.example, strict=True)
        )

    @cached_property
    def exact(self) -> ExactInputs:
        """Return a check of inputs that a plan can read as they are."""
        dtypes = [form.dtype for form in self.forms]
        readable = not self.changed and not self.keywords
        sizes = {self.shapes(size): size for size in self.sizes} if readable else {}
        return ExactInputs(sizes, dtypes, self.device)

    def shapes(self, size: Size) -> tuple[torch.Size, ...]:
        """The shapes of the inputs at that size."""
        return tuple(
            torch.Size((size[0], *form.shape[1:]) if form.batched else form.shape)
            for form in self.forms
        )

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The sizes to build plans for, the largest last."""
        return tuple((batch, length) for batch in self.batches for length in self.lengths)

    def size_for(self, given: Size) -> Size:
        """The smallest size that holds what was given."""
        return next_size(given[0], self.batches), next_size(given[1], self.lengths)

    def sample(self, size: Size) -> tuple[Tensor, ...]:
        """The example at that size, repeated as often as it takes."""
        index = torch.arange(size[0], device=self.device) % self.batch
        return tuple(
            item.index_select(0, index) if form.batched else item.clone()
            for item, form in zip(self.example, self.forms, strict=True)
        )

    def ordered(self, given: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The inputs of a call in the order of the example. Raises `GolowError` for too few, too
        many or unknown ones."""
        if not named and len(given) == len(self.forms) and not self.keywords:
            return list(given)
        by_name = given[0] if len(given) == 1 else None
        if isinstance(by_name, Mapping) and self.keywords:
            given, named = (), {**by_name, **named}
        first = dict(zip(self._order, given, strict=False))
        found = {**first, **named}
        missing = [name for name in self._known if name not in found]
        for name in found:
            if name not in self._known:
                self._require_default(name, found[name])
        twice = [name for name in first if name in named]
        if twice or missing or len(given) > len(self._order):
            what = f"{len(given)} inputs are too many"
            what = f"input {missing[0]} is missing" if missing else what
            what = f"input {twice[0]} is given twice" if twice else what
            raise GolowError(f"{what}; this was compiled for {', '.join(self._known)}")
        return [found[name] for name in self._known]

    def _require_default(self, name: str, value: Any) -> None:
        """Raise `GolowError` for an argument that the example did not have, unless it is given as
        what the module takes without it."""
        if name not in self._defaults:
            raise GolowError(
                f"{name} is not an input; this was compiled for {', '.join(self._known)}"
            )
        default = self._defaults[name]
        if is_default(value, default):
            return
        if isinstance(value, Tensor) or hasattr(value, "__dlpack__"):
            names = ", ".join(f'"{one}": {one}' for one in (*self.names, name))
            hint = f"compile it with an example that has it: {{{names}}}."
        else:
            hint = "wrap the module in one that sets it, and compile that."
        raise GolowError(
            f"{name} was not in the example, so this was compiled with its default, {default!r}",
            hint,
        )

    def fitting(self, given: Sequence[Any]) -> tuple[list[Tensor], Size]:
        """The inputs as tensors that a plan may read, row-major on the device, and their size.
        Raises `GolowError` for what does not fit, with the input's name."""
        device, rows = self.device, self.batches[-1]
        found = []
        first = True
        for item, form in zip(given, self.forms, strict=True):
            tensor = item if isinstance(item, Tensor) else as_tensor(form.label, item)
            shape = tensor.shape
            if form.batched:
                if first:
                    first, rows = False, shape[0] if shape else 0
                wanted = (rows, *form.shape[1:])
            else:
                wanted = form.shape
            if shape != wanted or not self._takes(rows) or tensor.dtype != form.dtype:
                raise self._misfit(form, tensor)
            if tensor.device != device or not is_plain(tensor):
                tensor = self._prepared(form, tensor)
            found.append(tensor)
        return found, (rows, 0)

    def padded(self, tensors: Sequence[Tensor], size: Size) -> list[Tensor]:
        """Repeat the last row up to that size."""
        index = torch.arange(size[0], device=self.device).clamp_(max=self._rows_of(tensors) - 1)
        return [
            item.index_select(0, index) if form.batched else item
            for item, form in zip(tensors, self.forms, strict=True)
        ]

    def name_of(self, place: int, number: int) -> str:
        """The name of an output in messages, of this many with the changed inputs after them."""
        first = number - len(self.changed)
        if place < first:
            return f"output {place}"
        return f"{self.forms[self.changed[place - first]].label}, which the module changes,"

    def write_back(self, given: Sequence[Any], changes: Sequence[Tensor]) -> None:
        """Write the inputs that the module changes into the caller's memory, without padding.
        Raises `GolowError` for an array that cannot be written."""
        for place, change in zip(self.changed, changes, strict=True):
            for axis, size in enumerate(given[place].shape):
                change = change.narrow(axis, 0, size)
            write_array(self.forms[place].label, given[place], change)

    def _rows_of(self, tensors: Sequence[Tensor]) -> int:
        pairs = zip(tensors, self.forms, strict=True)
        return next(item.shape[0] for item, form in pairs if form.batched)

    def _takes(self, rows: int) -> bool:
        return 1 <= rows <= self.batches[-1] if self.pads else rows == self.batch

    def _prepared(self, form: InputForm, tensor: Tensor) -> Tensor:
        if is_transformed(tensor):
            raise GolowError(
                f"{form.label} is a tensor of torch.func, such as vmap, grad or jvp, which a "
                "compiled module cannot look into",
                "call the compiled module on the whole batch instead of vmap; transform the module "
                "itself for derivatives.",
            )
        require_on(form.label, tensor, self.device)
        if tensor.requires_grad and torch.is_grad_enabled():
            raise GolowError(
                f"{form.label} requires a gradient, and a compiled module has no backward pass",
                "call it under torch.no_grad(), or with the tensor's .detach().",
            )
        if tensor.layout is not torch.strided:
            raise GolowError(
                f"{form.label} is {str(tensor.layout).removeprefix('torch.')}; this was compiled "
                "for tensors with all their elements",
                "call it with the tensor's .to_dense().",
            )
        return tensor.detach().resolve_neg().resolve_conj().contiguous()

    def _misfit(self, form: InputForm, tensor: Tensor) -> GolowError:
        if tensor.dtype != form.dtype:
            return GolowError(
                f"{form.label} is {_name(tensor.dtype)}; this was compiled for {_name(form.dtype)}"
            )
        found = "x".join(map(str, tensor.shape)) or "one number"
        sample = "x".join(map(str, form.shape[1:])) or "one number"
        if not form.batched:
            wanted = "x".join(map(str, form.shape)) or "one number"
            return GolowError(f"{form.label} is {found}; this was compiled for {wanted}")
        return GolowError(
            f"{form.label} is {found}; this was compiled for {wanted_batches(self.batches)} of "
            f"{sample}",
            "compile for other sizes with batch=[...]; all inputs have the same batch.",
        )


def listed_example(module: nn.Module, example: Any) -> Mapping[str, Any] | list[Any]:
    """Return an example as its tensors in order, or by the names of the forward pass, without what
    is given as its default. Raises `GolowError` for anything else."""
    if isinstance(example, Mapping):
        defaults = defaults_of(module)
        return {
            name: item
            for name, item in example.items()
            if name not in defaults or not is_default(item, defaults[name])
        }
    if isinstance(example, Tensor) or hasattr(example, "__dlpack__"):
        return [example]
    if isinstance(example, str) or not isinstance(example, Iterable):
        raise GolowError(
            f"the example is {type(example).__name__}, not tensors",
            "give a tensor, a sequence of tensors, or a mapping from argument names to tensors.",
        )
    return list(example)


def parameters_of(module: nn.Module) -> list[str]:
    """The names of the forward pass's parameters that take inputs by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = inspect.signature(module.forward).parameters
    return [name for name, parameter in found.items() if parameter.kind in kinds]


def defaults_of(module: nn.Module) -> dict[str, Any]:
    """Defaults of the forward pass for parameters that a call leaves out."""
    found = inspect.signature(module.forward).parameters
    return {
        name: parameter.default
        for name, parameter in found.items()
        if parameter.default is not inspect.Parameter.empty
    }


def is_default(value: Any, default: Any) -> bool:
    """Return True if a value is a parameter's default, or a number or text like it."""
    plain = isinstance(default, bool | int | float | complex | str | torch.dtype)
    return value is default or (plain and type(value) is type(default) and value == default)


def is_transformed(tensor: Tensor) -> bool:
    """Return True for a tensor within torch.func's transformations, which has no memory."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def require_on(label: str, tensor: Tensor, device: torch.device) -> None:
    """Raise `GolowError` for a tensor on another device, or a sparse one."""
    if tensor.layout is not torch.strided:
        raise GolowError(f"{label} is a sparse tensor", "give a dense one: its .to_dense().")
    if tensor.device != device:
        move = ".cpu()" if device.type == "cpu" else f".to({str(device)!r})"
        place = "the CPU" if device.type == "cpu" else str(device)
        raise GolowError(
            f"{label} is on {tensor.device}; this was compiled for {place}",
            f"call it with the tensor's {move}.",
        )


def is_plain(tensor: Tensor) -> bool:
    """Return True if a plan on the tensor's device can read it in place."""
    return (
        tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.requires_grad
        and not tensor.is_neg()
        and not tensor.is_conj()
        and not is_transformed(tensor)
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
