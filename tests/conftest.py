"""Tests run side by side: in each of their processes PyTorch computes on one thread. Several would
wait for cores that the other tests use, spinning. The window that tests of pages share is here."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch

from support import one_run
from support.examples import register_profiles
from support.graphs.shared_captures import captures_shared
from support.pages.browser import Browser, browser
from support.workers.forked_workers import ForkServer, fork_commands, forked_workers
from support.workers.pauses import leave_out_pauses

register_profiles()
torch.set_num_threads(1)
if not torch.cuda.is_available():
    # torch's own remembers each call, with its stack three times, for devices that are not there.
    torch.manual_seed = torch.default_generator.manual_seed
    leave_out_pauses()
# Inductor compiles and runs a probe of the processor's vectors for each new cache.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

# Modules whose fixtures or single tests take half a minute and more. They begin first: one that
# began last would keep the other process waiting, and processes that share a module build its
# fixtures twice.
LONGEST = frozenset(
    "test_life test_aotinductor test_cheats test_draws test_compare test_outputs_and_inputs "
    "test_peers".split()
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest tests first; all others stay in their order."""
    items.sort(key=lambda item: item.path.stem not in LONGEST)


def pytest_collection_finish() -> None:
    """Let the collector pass over what was imported, which is most of what it would look at, and
    come less often: figures and graphs are many small objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def run_begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What has no fixture to ask finds this process's folder, too; and golow's own cache is that
    of this run. xdist and readline, which pytest imports, set COLUMNS to the width of a terminal;
    commands would print tables of that width."""
    os.environ.pop("COLUMNS", None)
    os.unsetenv("COLUMNS")  # readline writes past Python's copy of the environment
    base = tmp_path_factory.getbasetemp()
    one_run.begin(base)
    os.environ.setdefault("GOLOW_CACHE", str(one_run.program_cache(base)))
    with captures_shared(one_run.shared_folder(base) / "captures"):
        yield


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    """A window of an installed browser."""
    with browser() as one:
        yield one


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """What forks the workers of this process's tests."""
    server = ForkServer()
    yield server
    server.end()


@pytest.fixture(scope="module")
def forked(fork_server: ForkServer) -> Iterator[None]:
    """The workers of this module are forked from a process that has imported torch; but a process
    that was forked cannot use a GPU."""
    with nullcontext() if torch.cuda.is_available() else forked_workers(fork_server):
        yield


@pytest.fixture
def forked_commands(forked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """So are the commands of this test, and what they start."""
    fork_commands(monkeypatch)
