"""Inputs are recognised in later calls only where they are as those that were examined."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from golow.levels.called.exact_inputs import MOST, ExactInputs

SHAPE = torch.Size((3, 3))


class Named(Tensor):
    """A class that may compute something else."""


OTHERS: dict[str, Callable[[], object]] = {
    "transposed": lambda: torch.ones(3, 3).T,
    "strided": lambda: torch.ones(3, 6)[:, ::2],
    "another shape": lambda: torch.ones(3, 4),
    "another number of axes": lambda: torch.ones(3, 3, 1),
    "double": lambda: torch.ones(3, 3, dtype=torch.float64),
    "no memory": lambda: torch.ones(3, 3, device="meta"),
    "a subclass": lambda: torch.ones(3, 3).as_subclass(Named),
    "a parameter": lambda: nn.Parameter(torch.ones(3, 3)),
    "with gradient": lambda: torch.ones(3, 3).requires_grad_(),
    "negative": lambda: torch.ones(3, 3)._neg_view(),
    "sparse": lambda: torch.ones(3, 3).to_sparse(),
    "no tensor": lambda: [[1.0] * 3] * 3,
    "an array": lambda: torch.ones(3, 3).numpy(),
}


def exact() -> ExactInputs:
    return ExactInputs(
        {(SHAPE, SHAPE): (3, 0)}, (torch.float32, torch.float32), torch.device("cpu")
    )


@pytest.mark.parametrize("recognises", [False, True])
@pytest.mark.parametrize("kind", OTHERS)
def test_only_plain_inputs_of_the_example_are_exact(kind: str, recognises: bool) -> None:
    found, plain = exact(), torch.zeros(3, 3)
    if recognises:
        assert found((torch.ones(3, 3), plain)) is not None
    other = OTHERS[kind]()
    assert found((other, plain)) is None
    assert found((plain, other)) is None


def test_addresses_are_those_of_each_call() -> None:
    found = exact()
    for _ in range(3):
        first, second = torch.ones(3, 3), torch.ones(4, 3)[1:]
        assert found((first, second)) == ((3, 0), [first.data_ptr(), second.data_ptr()])


def test_one_tensor_may_be_two_inputs() -> None:
    found, x = exact(), torch.ones(3, 3)
    for _ in range(2):
        assert found((x, x)) == ((3, 0), [x.data_ptr()] * 2)


def test_inputs_are_recognised_in_each_of_torchs_modes() -> None:
    """Tensors that were made in inference mode have other keys; no mode fills the memory."""
    found = exact()
    for _ in range(MOST):
        with torch.inference_mode():
            assert found((torch.ones(3, 3), torch.ones(3, 3))) is not None
        with torch.no_grad():
            assert found((torch.ones(3, 3), torch.ones(3, 3))) is not None
    assert len(found._recognised) <= 2


def test_transformed_inputs_are_not_plain() -> None:
    """A tensor under vmap has the memory of all samples."""
    found = exact()
    assert found((torch.ones(3, 3), torch.ones(3, 3))) is not None
    seen = []

    def look(x: Tensor) -> Tensor:
        seen.append(found((x, x + 1)))
        return x

    torch.func.vmap(look)(torch.ones(5, 3, 3))
    assert seen == [None]
