"""Workers forked from a process that has imported torch already.

That import is 2 of the 2.1 seconds that a small worker costs. Each worker is still a process of its
own, fresh, a child of the test's, and runs what it would run anyway: the fork takes the place of a
new interpreter and its imports, nothing else. A test of a start, of imports, or of what the
system shows of a process starts it as users do.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import gc
import inspect
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from golow.worker.process import worker_environment

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
IMPORTED = ("torch._dynamo", "torch._inductor.compile_fx", "golow.levels.torch.program")
SERVED = tuple(f"golow.levels.torch.{name}" for name in ("eager", "torchscript", "compile"))
MODULES = (
    "golow.levels.peers.export_process",
    "golow.life.capture_process",
    "golow.measure.peak",
    "golow.study.cell",
    "golow.worker.plant",
)
SCRIPTS = ("cheats.py", "faulty.py", "planted.py", "planted_levels.py", "planted_draws.py")
# Set anew in a forked worker. All others may have been read by what is imported already.
FREE = ("TORCHINDUCTOR_CACHE_DIR", "PYTEST_", "GOLOW_", "PYTHONPATH", "PWD", "COLUMNS", "LINES")
LARGEST = 1 << 20  # bytes of a request
ROOM = 1 << 15  # bytes in which the system finds a process's command; its environment has as many
# What torch's compiler reads when it is imported; says nothing to a level that does not compile.
COMPILER = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_FREEZING": "0"}


class ForkServer:
    """Forks workers, and what runs in the environment of the tests themselves."""

    def __init__(self) -> None:
        worker = worker_environment(sys.executable, 1, {})
        own = {**os.environ, "PYTHONPATH": worker["PYTHONPATH"]}
        self._forking = [_Forking({**each, **COMPILER}) for each in (worker, own)]

    def can_fork(self, command: list[str], environment: Mapping[str, str]) -> bool:
        """Whether one of its processes would run that command as a new interpreter does."""
        return self._alike(environment) is not None and _is_served(command)

    def fork(self, streams: list[int], environment: dict[str, str], **request: Any) -> int:
        """The process id of a new child of this process."""
        forking = self._alike(environment)
        assert forking is not None
        return forking.fork(streams, environment=environment, **request)

    def end(self) -> None:
        """End its processes; what they forked goes on."""
        for forking in self._forking:
            forking.end()

    def _alike(self, environment: Mapping[str, str]) -> _Forking | None:
        bound = _bound({**COMPILER, **environment})
        return next((one for one in self._forking if _bound(one.environment) == bound), None)


class _Forking:
    """A process that forks, of one environment, started when it is first needed."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._socket, self._far = socket.socketpair()

    def fork(self, streams: list[int], **request: Any) -> int:
        """The process id of a new child of this process."""
        if self._process is None:
            self._process = _UNPATCHED(
                [sys.executable, __file__, str(self._far.fileno()), "-" * ROOM],
                env={**self.environment, "GOLOW_ROOM": "-" * ROOM},
                pass_fds=[self._far.fileno()],
            )
            self._far.close()
        request |= {"parent": os.getpid(), "affinity": [*os.sched_getaffinity(0)]}
        socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
        return int(self._socket.recv(32))

    def end(self) -> None:
        """End it; what it forked goes on."""
        self._socket.close()
        if self._process is not None:
            self._process.wait()


_UNPATCHED = subprocess.Popen


@contextmanager
def forked_workers(server: ForkServer) -> Iterator[None]:
    """Workers that the server can fork are forked."""

    class Forked(subprocess.Popen[Any]):
        forks: ClassVar = server

        def _execute_child(self, *given: Any) -> None:
            start = super()._execute_child  # type: ignore[misc]
            asked = inspect.signature(start).bind(*given).arguments
            command = [os.fspath(word) for word in asked["args"]]
            environment = os.environ if asked["env"] is None else asked["env"]
            given_streams = (asked[name] for name in ("p2cread", "c2pwrite", "errwrite"))
            streams = [own if one < 0 else one for own, one in enumerate(given_streams)]
            plain = not (asked["shell"] or asked["preexec_fn"] or asked["pass_fds"])
            if not (plain and self.forks.can_fork(command, environment)):
                start(*given)
                return
            self.pid = self.forks.fork(
                streams,
                command=command,
                environment=dict(environment),
                folder=str(asked["cwd"] or Path.cwd()),
                leads=asked["start_new_session"],
                group=asked["process_group"],
            )
            self._child_created = True
            ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(asked[name] for name in ends))  # type: ignore[attr-defined]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Forked)
        # Whoever is left by the one that forked it becomes a child of this process.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        try:
            yield
        finally:
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0)


def _is_served(command: list[str]) -> bool:
    match command:
        case [sys.executable, "-m", "golow.worker.serve", level]:
            return level.partition(":")[0] in SERVED
        case [sys.executable, "-m", module, *_]:
            return module in MODULES
        case [sys.executable, script, *_]:
            return Path(script).name in SCRIPTS
    return False


def _bound(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: v for name, v in environment.items() if not name.startswith(FREE)}


# ---------------------------------------------------------------- in the process that forks


def serve(requests: socket.socket) -> dict[str, Any]:
    """Fork for every request; returns the request, in the new process only."""
    for name in IMPORTED:
        __import__(name)
    # A collection in a forked process would copy every page of what was imported: half its time.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    while True:
        text, streams, _, _ = socket.recv_fds(requests, LARGEST, 3)
        if not text:
            os._exit(0)
        request = json.loads(text)
        middle = os.fork()
        if middle == 0:
            return _second_fork(requests, request, streams)
        for stream in streams:
            os.close(stream)
        os.waitpid(middle, 0)


def _second_fork(
    requests: socket.socket, request: dict[str, Any], streams: array.array[int] | list[int]
) -> dict[str, Any]:
    """This process ends, so that the new one becomes a child of the test's process."""
    if os.fork():
        os._exit(0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    while os.getppid() != request["parent"]:
        time.sleep(0.0005)
    if request["leads"]:
        os.setsid()
    elif request["group"] >= 0:
        os.setpgid(0, request["group"])
    requests.send(str(os.getpid()).encode())
    requests.close()
    return request


def become(request: dict[str, Any]) -> int:
    """Run the command as its interpreter would; its status."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.sched_setaffinity(0, request["affinity"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    show_as(request["command"], os.environ)
    _, first, *rest = request["command"]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    here = request["folder"] if first == "-m" else str(Path(first).resolve().parent)
    sys.path[:] = [here, *paths, *sys.path[1:]]
    try:
        if first == "-m":
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = [first, *rest]
            runpy.run_path(first, run_name="__main__")
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def show_as(command: list[str], environment: Mapping[str, str]) -> None:
    """Let the system show this command and this environment of the process: many are found by them.

    It shows the memory in which they were when the process that forks was started. Nothing reads
    them there any more: `os.environ` has put each variable somewhere else.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    arguments, its_end, variables, their_end = map(int, fields[45:49])  # see proc(5)
    for start, end, words in (
        (arguments, its_end, command),
        (variables, their_end, [f"{name}={value}" for name, value in environment.items()]),
    ):
        text = "".join(f"{word}\0" for word in words).encode()
        assert len(text) <= end - start, "there is no room to show it"
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def main() -> None:
    """Fork on requests that come through the socket of that number."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    status = become(serve(socket.socket(fileno=int(sys.argv[1]))))
    atexit._run_exitfuncs()
    sys.stdout.flush()
    # To take torch apart, object by object, takes as long as half of its import.
    os._exit(status)


if __name__ == "__main__":
    main()
