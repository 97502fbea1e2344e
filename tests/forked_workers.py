"""Workers forked from a process that has imported torch already.

That import is 3 of the 4 seconds that a small worker costs. Each worker is still a process of its
own, fresh, a child of the test's, and runs what it would run anyway: the fork takes the place of a
new interpreter and its imports, nothing else. A test of a start, of imports, or of what the
system shows of a process starts it as users do.
"""

from __future__ import annotations

import array
import atexit
import ctypes
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
SCRIPTS = ("cheats.py", "planted.py", "planted_levels.py", "planted_draws.py")
# Set anew in a forked worker. All others may have been read by what is imported already.
FREE = ("TORCHINDUCTOR_CACHE_DIR", "PYTEST_", "GOLOW_", "PYTHONPATH", "PWD", "COLUMNS", "LINES")
LARGEST = 1 << 20  # bytes of a request
# What torch's compiler reads when it is imported; says nothing to a level that does not compile.
COMPILER = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_FREEZING": "0"}


class ForkServer:
    """The process that forks, started when it is first needed."""

    def __init__(self) -> None:
        self.environment = {**worker_environment(sys.executable, 1, {}), **COMPILER}
        self._process: subprocess.Popen[bytes] | None = None
        self._socket, self._far = socket.socketpair()

    def can_fork(self, command: list[str], environment: Mapping[str, str]) -> bool:
        """Whether it would run that command as a new interpreter does."""
        alike = _bound({**COMPILER, **environment}) == _bound(self.environment)
        return alike and _is_served(command)

    def fork(self, streams: list[int], **request: Any) -> int:
        """The process id of a new child of this process."""
        if self._process is None:
            self._process = _UNPATCHED(
                [sys.executable, __file__, str(self._far.fileno())],
                env=self.environment,
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
            streams = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
            plain = not (asked["shell"] or asked["preexec_fn"] or asked["pass_fds"])
            if not (plain and -1 not in streams and self.forks.can_fork(command, environment)):
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
        case [sys.executable, "-m", "golow.levels.peers.export_process", *_]:
            return True
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
