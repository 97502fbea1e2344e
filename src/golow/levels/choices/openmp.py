"""How OpenMP runs the loops of PyTorch and oneDNN on a CPU: its library, threads, binding, and how
threads wait between two loops."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from golow.levels.choices.choice import IN_PYTORCH, WITH_TORCH, Alternative, Choice
from golow.levels.choices.process_libraries import (
    installed,
    mapped,
    preloading,
    present,
    provider,
)
from golow.records.workload import Workload

WITH_OPENMP = (*WITH_TORCH, "onednn")
LIBRARIES = ("libgomp", "libiomp5", "libomp")
BINDINGS = {0: "off", 1: "on", 2: "primary", 3: "close", 4: "spread"}  # omp_proc_bind_t
POLICY = "OMP_WAIT_POLICY"
LIBGOMP = "https://gcc.gnu.org/onlinedocs/libgomp/Environment-Variables.html"
GIVEN, HALF, ONE, ALL = "as given", "half as many", "one", "one a logical CPU"


def library_file() -> str:
    """The file of the OpenMP library in this process."""
    return provider("omp_get_max_threads") or mapped(*LIBRARIES)


def library(program: Any) -> str:
    """The OpenMP library whose functions this process calls."""
    name = Path(library_file()).name
    return next((known for known in LIBRARIES if name.startswith(known)), name or "none")


def binding(program: Any) -> str:
    """Report the binding of OpenMP's threads, as OpenMP states it."""
    return BINDINGS.get(ctypes.CDLL(library_file()).omp_get_proc_bind(), "unknown")


def waiting(program: Any) -> str:
    """The policy in this process's environment: OpenMP has no function that returns it."""
    return os.environ.get(POLICY, "").lower() or "the library's default: spin a while, then sleep"


def threads(program: Any) -> str:
    """PyTorch's threads for one operation, relative to those that the workload asks for."""
    import torch

    given: int = program.workload.threads
    found = torch.get_num_threads()
    meanings = {given: GIVEN, 1: ONE, given // 2: HALF, len(os.sched_getaffinity(0)): ALL}
    names = [meaning for count, meaning in reversed(meanings.items()) if count == found]
    return GIVEN if found == given else ONE if found == 1 else (names or [str(found)])[-1]


def interop(program: Any) -> str:
    """The threads among which PyTorch divides operations that do not need one another."""
    import torch

    return _count(torch.get_num_interop_threads())


def _count(number: int) -> str:
    return ONE if number == 1 else str(number)


def _one_interop(program: Any) -> None:
    import torch

    if torch.get_num_interop_threads() != 1:  # it may be set once in a process
        torch.set_num_interop_threads(1)


def _as_given(count: Callable[[int], int]) -> Callable[[Workload], str]:
    """Why so many threads are nothing new; count: of the threads that a workload asks for."""

    def redundant(workload: Workload) -> str:
        given = workload.threads
        if count(given) == given:
            return "the workload has as many threads"
        return ""

    return redundant


def _half_redundant(workload: Workload) -> str:
    return (
        "half of its threads is one" if workload.threads // 2 == 1 else _as_given(_half)(workload)
    )


def _half(given: int) -> int:
    return max(1, given // 2)


def _logical(_given: int) -> int:
    return len(os.sched_getaffinity(0))


def _threads(
    name: str, value: str, summary: str, count: str, redundant: Callable[[Workload], str]
) -> Alternative:
    def call(program: Any) -> None:
        program.habits.threads = value

    return Alternative(
        name=name,
        summary=summary,
        value=value,
        call=call,
        rebuilds=True,
        built_by=("compile",),
        shell=f"OMP_NUM_THREADS={count}",
        python=f"torch.set_num_threads({count})",
        cpp=f"at::set_num_threads({count});",
        redundant=redundant,
    )


def _bound(how: str, summary: str) -> Alternative:
    return Alternative(
        name=f"bind_{how}",
        summary=summary,
        value=how,
        environment={"OMP_PROC_BIND": how, "OMP_PLACES": "cores"},
        shell=f"OMP_PROC_BIND={how} OMP_PLACES=cores",
    )


def _waits(how: str, summary: str) -> Alternative:
    return Alternative(
        name=f"wait_{how}",
        summary=summary,
        value=how,
        environment={POLICY: how},
        shell=f"{POLICY}={how}",
    )


INTEL = installed("libiomp5.so")

CHOICES = (
    Choice(
        name="openmp_threads",
        summary="how many threads share the work of one operation",
        made_by="PyTorch",
        where="torch.set_num_threads; golow gives every level one per physical core, or --threads",
        levels=WITH_TORCH,
        devices=("cpu",),
        read=threads,
        likely=True,
        changes_results=True,
        alternatives=(
            _threads("threads_one", ONE, "one thread", "1", _as_given(lambda given: 1)),
            _threads(
                "threads_half",
                HALF,
                "half of the threads that the workload has",
                "N/2",
                _half_redundant,
            ),
            _threads(
                "threads_all",
                ALL,
                "one thread for each logical CPU",
                "$(nproc)",
                _as_given(_logical),
            ),
        ),
    ),
    Choice(
        name="openmp_binding",
        summary="whether each thread stays on one core",
        made_by="OpenMP's library",
        where=f"{LIBGOMP}: OMP_PROC_BIND, OMP_PLACES; GOMP_CPU_AFFINITY does the same",
        levels=WITH_OPENMP,
        devices=("cpu",),
        read=binding,
        likely=True,
        costs="other programs on the same cores delay a thread that cannot move",
        alternatives=(
            _bound("close", "neighbouring threads on neighbouring cores"),
            _bound("spread", "threads as far from one another as possible"),
        ),
    ),
    Choice(
        name="openmp_waiting",
        summary="whether threads spin or sleep between two loops",
        made_by="OpenMP's library",
        where=f"{LIBGOMP}: OMP_WAIT_POLICY, GOMP_SPINCOUNT",
        levels=WITH_OPENMP,
        devices=("cpu",),
        read=waiting,
        likely=True,
        costs="active: cores are busy while nothing is computed",
        alternatives=(
            _waits("active", "they spin until the next loop"),
            _waits("passive", "they sleep at once"),
        ),
    ),
    Choice(
        name="openmp_library",
        summary="which library runs the parallel loops",
        made_by="PyTorch's packages",
        where="torch/lib; PyTorch's Performance Tuning Guide, Intel OpenMP Runtime Library",
        levels=WITH_OPENMP,
        devices=("cpu",),
        read=library,
        alternatives=(
            Alternative(
                name="openmp_intel",
                summary="Intel's libiomp5 instead of GCC's libgomp",
                value="libiomp5",
                environment=preloading(INTEL),
                shell="LD_PRELOAD=libiomp5.so",
                probe=partial(present, INTEL, "libiomp5.so", "pip install intel-openmp"),
            ),
        ),
    ),
    Choice(
        name="interop_threads",
        summary="how many threads PyTorch keeps for operations that do not depend on one another",
        made_by="PyTorch",
        where="torch.set_num_interop_threads",
        levels=IN_PYTORCH,
        read=interop,
        alternatives=(
            Alternative(
                name="interop_one",
                summary="one such thread",
                value=ONE,
                call=_one_interop,
                python="torch.set_num_interop_threads(1)",
                cpp="at::set_num_interop_threads(1);",
            ),
        ),
    ),
)
