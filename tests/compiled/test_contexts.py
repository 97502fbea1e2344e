"""Compiled modules in threads, in forked processes, and over many calls."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import golow
from golow.compiled.compiled_module import CompiledModule
from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from support.direct.compiled_modules import X, close, compiled

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)


def test_contexts_run_at_once_and_one_context_does_not(module: nn.Module) -> None:
    f = compiled(module, X)
    wanted = [module(X * k).detach() for k in range(4)]
    wrong: list[int] = []

    def work(call: Callable[[Tensor], Tensor], k: int) -> None:
        wrong.extend(k for _ in range(50) if not close(call(X * k), wanted[k]))

    threads = [threading.Thread(target=work, args=(f.context(), k)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    context = f.context()
    with context.held(), pytest.raises(GolowError, match="another thread is calling"):
        context(X)


def test_each_call_has_its_own_number_of_threads(module: nn.Module) -> None:
    """Also where modules with other numbers are called in between."""
    openmp = ctypes.CDLL("libgomp.so.1")
    one = golow.compile(module, X, threads=1, quiet=True)
    two = golow.compile(module, X, threads=2, quiet=True)
    for f, threads in ((one, 1), (two, 2), (one, 1)):
        f(X)
        assert openmp.omp_get_max_threads() == threads


def test_a_process_that_was_forked_is_told(f: CompiledModule) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            f(X)
            said = "nothing"
        except GolowError as error:
            said = error.message
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert "forked from" in pipe.read()
    os.waitpid(child, 0)
    assert f(X).shape == (4, 5)


def test_many_calls_leave_nothing_behind_and_give_the_same_bits(f: CompiledModule) -> None:
    first = f(X)

    def held() -> tuple[int, int, int]:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages, len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    for k in range(500):
        f(X * (1 + k % 3))
    pages, files, threads = held()
    for k in range(2000):
        f(X[: 1 + k % 4] * (1 + k % 3))
    assert torch.equal(f(X), first)
    later = held()
    assert later[0] <= pages + 1024  # 4 MiB: an input kept by each call would be 8 MiB
    assert later[1:] == (files, threads)


def test_a_context_that_is_dropped_gives_its_memory_back(module: nn.Module) -> None:
    f = compiled(module, X)
    kept = f.context()
    for _ in range(3):
        f.context()(X)
    gc.collect()
    assert len(f._others) == 1, "the one that is kept"
    assert close(kept(X), module(X))
    f.close()
    with pytest.raises(GolowError, match="closed"):
        kept(X)


def test_out_that_shares_memory_is_refused(f: CompiledModule) -> None:
    class Turned(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x.flip(1) * 2 + x, x + 1

    x = torch.randn(4, 6)
    g = compiled(Turned().eval(), x)
    y = torch.empty(4, 6)
    with pytest.raises(GolowError, match="output 0 of out shares memory with input 0"):
        g(x, out=(x, y))
    with pytest.raises(GolowError, match="output 1 of out shares memory with output 0"):
        g(x, out=(y, y))
    whole = torch.empty(8, 6)
    assert g(x, out=(whole[:4], whole[4:]))[1].data_ptr() == whole[4:].data_ptr()
