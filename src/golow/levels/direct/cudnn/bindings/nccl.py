"""NCCL's C API through ctypes: the mean of arrays over GPUs, enqueued on a stream.

It binds the part of ``nccl.h`` that golow uses, under the library's own names. Importing this
module loads nothing; the first object loads the library and checks its version.

A communicator must outlive every CUDA graph that its operations were captured into: destroyed
before, ncclCommDestroy waits forever for the graph's references.
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/cudagraph.html
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from ctypes import byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_void_p
from functools import cache
from typing import Any

from cuda.bindings import driver

from golow.levels.direct.cudnn.bindings.device import Gpu
from golow.levels.direct.ranks.meeting import Meeting, RankLost
from golow.levels.nvidia.memory import checked

OLDEST = 2_18_00  # as ncclGetVersion encodes it; the first with all fields of `_Config`
SUCCESS, IN_PROGRESS = 0, 7  # ncclResult_t
DATA_TYPES = {"float16": 6, "float32": 7, "bfloat16": 9}  # ncclDataType_t
AVERAGE = 4  # ncclRedOp_t: ncclAvg
ID_BYTES, MAGIC = 128, 0xCAFEBEEF
UNDEFINED = -(2**31)  # NCCL_CONFIG_UNDEF_INT
BLOCKS = 16
"""Most thread blocks (CTAs) of an operation. Each takes a multiprocessor from the backward pass
that it runs beside, and a few suffice for two GPUs with NVLink. NCCL_MAX_CTAS in the environment
takes precedence."""
LOOK = 0.001  # seconds


class NcclError(RuntimeError):
    """A call of the library failed."""


class _Id(ctypes.Structure):
    """ncclUniqueId."""

    _fields_ = [("internal", c_char * ID_BYTES)]


class _Config(ctypes.Structure):
    """ncclConfig_t of version 2.18; newer libraries have defaults for their further fields."""

    _fields_ = [
        ("size", c_size_t),
        ("magic", c_uint),
        ("version", c_uint),
        ("blocking", c_int),
        ("cga_cluster_size", c_int),
        ("min_ctas", c_int),
        ("max_ctas", c_int),
        ("net_name", c_char_p),
        ("split_share", c_int),
    ]


@cache
def library() -> ctypes.CDLL:
    """The loaded library. Raises OSError where it is missing or too old."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("nccl").abs_path
    except (ImportError, RuntimeError) as error:  # pathfinder's own errors are RuntimeErrors
        raise OSError("NCCL was not found; the package nvidia-nccl-cu13 brings it") from error
    loaded = ctypes.CDLL(path)
    loaded.ncclGetErrorString.restype = loaded.ncclGetLastError.restype = c_char_p
    loaded.ncclGetLastError.argtypes = [c_void_p]
    loaded.ncclCommInitRankConfig.argtypes = [
        ctypes.POINTER(c_void_p), c_int, _Id, c_int, ctypes.POINTER(_Config),
    ]  # fmt: skip
    loaded.ncclAllReduce.argtypes = [
        c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p,
    ]  # fmt: skip
    loaded.ncclCommGetAsyncError.argtypes = [c_void_p, ctypes.POINTER(c_int)]
    loaded.ncclCommDestroy.argtypes = [c_void_p]
    found = c_int()
    if loaded.ncclGetVersion(byref(found)) or found.value < OLDEST:
        raise OSError(f"NCCL {found.value} is too old; golow needs {OLDEST} (2.18) or newer")
    return loaded


class Communicator:
    """This rank's end of an exchange between GPUs. stream: for operations alongside the main
    stream's work, of the highest priority: their few blocks start as soon as there is room."""

    def __init__(self, meeting: Meeting, gpu: Gpu, blocks: int = BLOCKS) -> None:
        """Wait until all ranks are here. Raises `RankLost` if one does not come, OSError without
        the library."""
        self._library, self.meeting, self._gpu = library(), meeting, gpu
        name = meeting.numbered("nccl")
        self._handle = c_void_p()
        given = _Id.from_buffer_copy(meeting.from_first(name, self._new_id))
        config = _Config(
            ctypes.sizeof(_Config), MAGIC, OLDEST, 1, UNDEFINED, UNDEFINED, blocks, None, UNDEFINED
        )  # fmt: skip

        def begin() -> None:
            gpu.make_current()
            status = self._library.ncclCommInitRankConfig(
                byref(self._handle), meeting.ranks, given, meeting.rank, byref(config)
            )
            self._require(status, "ncclCommInitRankConfig")

        _within(meeting.patience, begin, "NCCL's start")
        answer = driver.cuCtxGetStreamPriorityRange()
        _, greatest = checked(answer, "cuCtxGetStreamPriorityRange")
        flag = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        made = driver.cuStreamCreateWithPriority(flag, greatest)
        self._stream = checked(made, "cuStreamCreateWithPriority")
        self.stream = int(self._stream)

    def mean(self, pieces: Sequence[tuple[int, int, str]], stream: int) -> None:
        """Enqueue on a stream that each array is replaced by its mean over all ranks, in one launch
        for all. pieces: addresses, numbers of elements and types."""
        self._require(self._library.ncclGroupStart(), "ncclGroupStart")
        try:
            for address, elements, dtype in pieces:
                status = self._library.ncclAllReduce(
                    address, address, elements, DATA_TYPES[dtype], AVERAGE, self._handle, stream
                )
                self._require(status, "ncclAllReduce")
        finally:
            ended = self._library.ncclGroupEnd()
        self._require(ended, "ncclGroupEnd")

    def wait(self, gpu: Gpu) -> None:
        """Wait for the main stream of this rank's GPU. Raises `NcclError` for an error of an
        enqueued operation, and `RankLost` if another rank does not take part in time."""
        begun, error = time.monotonic(), c_int()
        while driver.cuStreamQuery(gpu.stream)[0] == driver.CUresult.CUDA_ERROR_NOT_READY:
            status = self._library.ncclCommGetAsyncError(self._handle, byref(error))
            self._require(status or error.value, "ncclCommGetAsyncError")
            if time.monotonic() - begun > self.meeting.patience:
                raise RankLost(f"rank {self.meeting.rank} waited for others to exchange gradients")
            time.sleep(LOOK)
        gpu.synchronize()

    def close(self) -> None:
        """Destroy it, together with the other ranks. All graphs that have its operations must be
        destroyed, and all work be done."""
        if not self._handle:
            return
        handle, self._handle = self._handle, c_void_p()

        def end() -> None:
            self._gpu.make_current()
            self._require(self._library.ncclCommDestroy(handle), "ncclCommDestroy")

        _within(self.meeting.patience, end, "NCCL's end")
        checked(driver.cuStreamDestroy(self._stream), "cuStreamDestroy")

    def _new_id(self) -> bytes:
        made = _Id()
        self._require(self._library.ncclGetUniqueId(byref(made)), "ncclGetUniqueId")
        return bytes(made)

    def _require(self, status: int, call: str) -> None:
        if status not in (SUCCESS, IN_PROGRESS):
            words = self._library.ncclGetErrorString(status).decode()
            last = self._library.ncclGetLastError(None) or b""
            raise NcclError(f"{call}: {words}; {last.decode()}".rstrip("; "))


def _within(seconds: float, call: Callable[[], None], what: str) -> None:
    """Make a call that waits for other ranks, for so long; its own errors come first."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread: Any = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise RankLost(f"{what} took more than {seconds:g} s: a rank did not arrive")
    if raised:
        raise raised[0]
