"""Calls of a plan that compiled code runs as one: in their order, up to the first that fails, with
calls of Python between them."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import CFUNCTYPE, addressof, c_int, c_long, c_void_p
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from golow.levels.direct.onednn.run.compiled_calls import (
    Bound,
    Call,
    Start,
    Use,
    joined,
    joined_at,
    of_kernel,
    of_primitive,
)
from support.direct.onednn_in_process import Running, lower, workshop

Primitive = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_void_p)
Kernel = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
Arguments = c_void_p * 3
SetAddress = CFUNCTYPE(c_int, c_void_p, c_void_p)
SetThreads = CFUNCTYPE(None, c_int)
MEMORY = 0x1000  # the first of those of primitives


class Calls:
    """Calls of each kind that note their number when they run. failing: the primitive that does
    not succeed."""

    def __init__(self, kinds: list[str], failing: int = -1) -> None:
        self.ran: list[int] = []
        self.failing = failing
        self.kept: list[Any] = []
        self.arguments: dict[int, Any] = {}
        self.bound = [self._bound(number, kind) for number, kind in enumerate(kinds)]

    def _bound(self, number: int, kind: str) -> Bound:
        def note(*_: object) -> int:
            self.note(number)
            return 3 if number == self.failing else 0

        if kind == "numpy":
            return Bound(lambda: self.note(number))
        arguments = self.arguments[number] = Arguments()
        made = Primitive(note) if kind == "primitive" else Kernel(lambda *_: (note(), None)[1])
        self.kept.append(made)
        if kind == "kernel":
            return of_kernel(made, arguments, arguments, arguments)
        return of_primitive(made, c_void_p(1), c_void_p(2), arguments)

    def note(self, number: int) -> None:
        """Note that a call ran."""
        self.ran.append(number)

    def run(self) -> int:
        """Run them as an iteration does; the status of the call that failed, or 0."""
        return first_status(joined(self.bound, workshop().player()))


def first_status(calls: Sequence[Call]) -> int:
    """Run the calls up to the first that fails; return its status, or 0."""
    return next(filter(None, (call() for call in calls)), 0)


KINDS = st.lists(st.sampled_from(["primitive", "kernel", "numpy"]), min_size=1, max_size=9)


@given(kinds=KINDS)
def test_calls_run_in_their_order(kinds: list[str]) -> None:
    calls = Calls(kinds)
    assert calls.run() == 0
    assert calls.ran == list(range(len(kinds)))


@given(before=KINDS, behind=KINDS)
def test_nothing_runs_behind_a_primitive_that_fails(before: list[str], behind: list[str]) -> None:
    calls = Calls([*before, "primitive", *behind], failing=len(before))
    assert calls.run() == 3
    assert calls.ran == list(range(len(before) + 1))


def test_neighbours_that_need_no_python_are_one_call() -> None:
    kinds = ["primitive", "kernel", "numpy", "kernel", "primitive", "primitive"]
    assert len(joined(Calls(kinds).bound, workshop().player())) == 3
    assert len(joined(Calls(kinds).bound, None)) == len(kinds)


class Pointed(Calls):
    """Calls that use an address of the caller's: the first of three if their number is even, else
    the last, and as many bytes from there as their number. seen: what they used."""

    def __init__(self, kinds: list[str]) -> None:
        self.memories: dict[int, int] = {}
        self.seen: list[int] = []
        self.threads: list[int] = []
        super().__init__(kinds)
        self.addresses = (c_long * 3)()
        self.setters = (
            SetAddress(lambda memory, address: self.memories.update({memory: address}) or 0),
            SetThreads(self.threads.append),
        )
        self.uses = [
            Use(addressof(self.arguments[number]), number % 2 * 2, number, is_pointer=True)
            if kind == "kernel"
            else Use(MEMORY + number, number % 2 * 2, number, is_pointer=False)
            for number, kind in enumerate(kinds)
            if kind != "numpy"
        ]

    def note(self, number: int) -> None:
        super().note(number)
        if number in self.arguments:
            at = self.memories.get(MEMORY + number) or self.arguments[number][0]
            self.seen.append(at)

    def run(self) -> int:
        start = Start(self.addresses, self.uses, *self.setters, threads=3)
        return first_status(joined_at(start, self.bound, workshop().player()))


@given(kinds=KINDS)
def test_calls_use_the_memory_of_each_iteration(kinds: list[str]) -> None:
    calls = Pointed(kinds)
    native = [number for number, kind in enumerate(kinds) if kind != "numpy"]
    for base in (1 << 20, 5 << 20):
        calls.addresses[:] = [base, 0, 2 * base]
        assert calls.run() == 0
        wanted = [base * (1 + number % 2) + number for number in native]
        assert calls.seen == wanted
        assert calls.ran == list(range(len(kinds)))
        calls.seen.clear()
        calls.ran.clear()
    assert calls.threads == [3, 3]


@pytest.mark.parametrize("kinds", [["primitive"], ["numpy", "kernel"]])
def test_an_address_that_is_refused_ends_an_iteration(kinds: list[str]) -> None:
    calls = Pointed(kinds)
    calls.uses.append(Use(MEMORY, 1, 0, is_pointer=False))
    calls.setters = (SetAddress(lambda memory, address: 0 if address else 2), calls.setters[1])
    calls.addresses[:] = [1 << 20, 0, 1 << 20]
    assert calls.run() == 2
    assert calls.ran == []


class Block(nn.Module):
    """Layers that become primitives and generated kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.first(x).mul(0.3).tanh()
        scaled: torch.Tensor = self.last(made.mean((2, 3)).sort().values)
        return scaled


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_an_iteration_gives_what_its_steps_give(mode: Any) -> None:
    torch.manual_seed(0)
    network = lower(Block(), torch.randn(4, 3, 9, 9), mode)
    joint, single = Running(network), Running(network)
    assert len(joint.execution._joined) < len(joint.execution._calls)
    for _ in range(2):
        joint.point_at(0)
        single.point_at(0)
        joint.execution.run()
        single.execution.run_watched(lambda _: None)
    for key, (tensor, _) in joint.built.outputs.items():
        if key[0] in ("output", "loss", "parameter"):
            found = joint.execution.read(tensor)
            wanted = single.execution.read(single.built.outputs[key][0])
            np.testing.assert_array_equal(found, wanted, err_msg=str(key))
