"""Workers forked from a process that has imported torch already.

That import is 2 of the 2.1 seconds that a small worker costs. Each worker is still a process of its
own, fresh, a child of the test's, and runs what it would run anyway: the fork takes the place of a
new interpreter and its imports, nothing else. A test of a start, of imports, of memory or of the
garbage collector, which leaves out what was imported, starts a process as users do.

`fork_commands` does the same for commands, whose own workers are then forked from them.
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
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, NoReturn

import pytest

from golow.worker.process import worker_environment
from support.workers.pauses import leave_out_pauses

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
IMPORTED = ("torch._dynamo", "torch._inductor.compile_fx", "golow.levels.torch.program")
SERVED = (
    *(f"golow.levels.torch.{name}" for name in ("eager", "torchscript", "compile", "ddp", "fsdp")),
    *(
        f"golow.levels.generation.{n}"
        for n in ("growing", "static", "compiled", "openvino", "llama_cpp", "planned", "reference")
    ),
    *(f"golow.levels.called.{n}" for n in ("program", "training.program", "emitted_program")),
)
MODULES = (
    "golow.levels.peers.export_process",
    "golow.programs.life.capture_process",
    "golow.measure.peak",
    "golow.measure.plain_read",
    "golow.programs.load.served_level",
    "golow.programs.load.service",
    "golow.programs.load.served_texts",
    "golow.programs.study.cell",
    "golow.worker.plant",
)
SCRIPTS = (
    *("cheats.py", "faulty.py", "planted.py", "planted_levels.py", "planted_draws.py"),
    *("planted_model.py", "planted_texts.py", "planted_sources.py", "planted_ranks.py"),
    *("faulty_ranks.py", "example.py"),  # the last of a page
)
COMMANDS = "GOLOW_FORKED"  # of a command that is forked: what of its own is; all, where empty
# Set anew in a forked worker. All others may have been read by what is imported already.
FREE = ("TORCHINDUCTOR_CACHE_DIR", "PYTEST_", "GOLOW_", "PYTHONPATH", "PWD", "COLUMNS", "LINES",
        "TMPDIR", "_TORCHINDUCTOR_")  # fmt: skip  # the last is an address in the test's process
LARGEST = 1 << 20  # bytes of a request
ROOM = 1 << 15  # bytes in which the system finds a process's command; its environment has as many
# What torch's compiler reads when it is imported; says nothing to a level that does not compile.
COMPILER = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_FREEZING": "0"}


class ForkServer:
    """The process that forks, started when it is first needed."""

    def __init__(self) -> None:
        self.environment = {**worker_environment(sys.executable, 1, {}), **COMPILER}
        self._process: subprocess.Popen[bytes] | None = None
        self._socket, self._far = socket.socketpair()
        self._turn = threading.Lock()  # workers may be started in several threads

    def can_fork(self, command: list[str], environment: Mapping[str, str]) -> bool:
        """True if it would run that command as a new interpreter does."""
        alike = _bound({**COMPILER, **environment}) == _bound(self.environment)
        return alike and (_is_served(command) or (COMMANDS in environment and _is_command(command)))

    def fork(self, streams: list[int], **request: Any) -> int:
        """The process id of a new child of this process."""
        request |= {"parent": os.getpid(), "affinity": [*os.sched_getaffinity(0)]}
        with self._turn:
            socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
            return int(self._socket.recv(32))

    def start(self) -> None:
        """Start its process, if it does not run."""
        if self._process is not None:
            return
        number = self._far.fileno()
        self._process = _UNPATCHED(
            [sys.executable, __file__, str(number), "-" * ROOM],
            env={**self.environment, "GOLOW_ROOM": "-" * ROOM},
            pass_fds=[number],
        )
        self._far.close()

    def end(self) -> None:
        """End it; what it forked goes on."""
        self._socket.close()
        if self._process is not None:
            self._process.wait()


class OwnForkServer(ForkServer):
    """Forks what a forked command starts. It is forked itself, from that command before it runs."""

    def __init__(self, only: str) -> None:
        """only: what the commands that are forked mention."""
        super().__init__()
        self._only = only
        if os.fork() == 0:
            self._socket.close()
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nothing, stream)
            show_as([sys.executable, "forks"], {})
            run_forked(self._far)
        self._far.close()

    def can_fork(self, command: list[str], environment: Mapping[str, str]) -> bool:
        """True if it is to fork that command."""
        return self._only in " ".join(command) and super().can_fork(command, environment)

    def start(self) -> None:
        """It runs already."""


def fork_commands(patch: pytest.MonkeyPatch, only: str = "") -> None:
    """From now on commands that are started in this environment are forked too, and so is what they
    start if its own command mentions ``only``. For tests with the fixture `forked`."""
    for name, value in worker_environment(sys.executable, 1, {COMMANDS: only}).items():
        if os.environ.get(name) != value:
            patch.setenv(name, value)


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
            wanted = (asked[name] for name in ("p2cread", "c2pwrite", "errwrite"))
            streams = [own if one < 0 else one for own, one in enumerate(wanted)]
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

    server.start()  # in this thread: Linux ends it with the thread that started it
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Forked)
        # Whoever is left by the one that forked it becomes a child of this process.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        try:
            yield
        finally:
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0)


def _is_served(command: list[str]) -> bool:
    match _without_safe_path(command):
        case [sys.executable, "-m", "golow.worker.serve", level]:
            return level.partition(":")[0] in SERVED
        case [sys.executable, "-m", module, *_]:
            return module in MODULES
        case [sys.executable, script, *_]:
            return Path(script).name in SCRIPTS
    return False


def _is_command(command: list[str]) -> bool:
    """True if it is golow's own, or a program in its arguments."""
    return command[0] == sys.executable and (command[1:3] == ["-m", "golow"] or command[1] == "-c")


def _without_safe_path(command: list[str]) -> list[str]:
    """The command without the option that keeps the current folder out of its import path."""
    return [command[0], *command[2:]] if command[1:2] == ["-P"] else command


def _bound(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: v for name, v in environment.items() if not name.startswith(FREE)}


# ---------------------------------------------------------------- in the process that forks


def serve(requests: socket.socket) -> dict[str, Any]:
    """Fork for every request; returns the request, in the new process only."""
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
        if not Path(f"/proc/{request['parent']}").exists():  # it was killed meanwhile
            os._exit(1)
        time.sleep(0.0005)
    if request["leads"]:
        os.setsid()
    elif request["group"] >= 0:
        os.setpgid(0, request["group"])
    os.sched_setaffinity(0, request["affinity"])  # before anybody can pin it to a core
    requests.send(str(os.getpid()).encode())
    requests.close()
    return request


def become(request: dict[str, Any]) -> int:
    """Run the command as its interpreter would; its status."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # it may be another one
    command = request["command"]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    first = {"-m": [request["folder"]], "-c": [""], "-P": []}
    beside = [str(Path(command[1]).resolve().parent)]
    sys.path[:] = [*first.get(command[1], beside), *paths, *sys.path[1:]]
    show_as(command, os.environ)
    try:
        with _own_forked(command):
            _run(_without_safe_path(command))
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _own_forked(command: list[str]) -> AbstractContextManager[None]:
    """What a command that is forked starts is forked from it; but a worker starts nothing."""
    if COMMANDS not in os.environ or "golow.worker.serve" in command:
        return nullcontext()
    return forked_workers(OwnForkServer(os.environ[COMMANDS]))


def _run(command: list[str]) -> None:
    match command[1:]:
        case ["-m", module, *rest]:
            sys.argv = [module, *rest]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *rest]:
            sys.argv = ["-c", *rest]
            sys.modules["__main__"] = main_module = ModuleType("__main__")
            exec(code, vars(main_module))  # noqa: S102 - as the interpreter does
        case [script, *_]:
            sys.argv = command[1:]
            runpy.run_path(script, run_name="__main__")


def show_as(command: list[str], environment: Mapping[str, str]) -> None:
    """Let the system show this command and this environment of the process: many are found by them.

    It shows the memory in which they were when the process that forks was started. Nothing reads
    them there any more: `os.environ` has put each variable somewhere else.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    arguments, their_end, variables, last = map(int, fields[45:49])  # see proc(5)
    for start, end, words in (
        (arguments, their_end, command),
        (variables, last, [f"{name}={value}" for name, value in environment.items()]),
    ):
        text = "".join(f"{word}\0" for word in words).encode()
        assert len(text) <= end - start, "there is no room to show it"
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def run_forked(requests: socket.socket) -> NoReturn:
    """Fork on requests; here, and in each forked process."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    status = become(serve(requests))
    atexit._run_exitfuncs()
    sys.stdout.flush()
    # To take torch apart, object by object, takes as long as half of its import.
    os._exit(status)


def main() -> None:
    """Fork on requests that come through the socket of that number."""
    for name in IMPORTED:
        __import__(name)
    leave_out_pauses()  # of commands that are forked
    # A collection in a forked process would copy every page of what was imported: half its time.
    gc.collect()
    gc.freeze()
    run_forked(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
