"""A service as a level: a process that sends each batch to a URL by HTTP.

``python -m golow.programs.load.service URL SECONDS`` is `served_level` with contexts that hold one
connection each. A batch is the body of a POST: one input as ``.npy``, several as ``.npz`` by their
names. The service answers with ``.npy``, the first output of the module with a row for each sample,
or with JSON, ``{"classes": [...]}``, the index of the largest element of each row.
"""

from __future__ import annotations

import http.client
import io
import json
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

import numpy as np
import numpy.typing as npt

from golow.programs.load import served_level
from golow.programs.load.batcher import Bucket
from golow.programs.load.service_answers import CLASS, OUTPUT
from golow.records.errors import GolowError
from golow.workload.import_path import module_command

NAME = "http"
NUMPY, JSON = "application/octet-stream", "application/json"
MAGIC = b"\x93NUMPY"
SHOWN = 200  # characters of an answer that is an error

Array = npt.NDArray[Any]


class Answered(NamedTuple):
    """Answer of a service: classes, or rows of its output."""

    kind: bytes
    rows: Sequence[Any]


def command(url: str, patience: float) -> tuple[str, ...]:
    """The command of the process that sends requests to a URL."""
    return module_command(__spec__.name if __spec__ else __name__, url, f"{patience}")


class Service:
    """A context that holds one connection to the service.

    names: of the inputs, empty for one input.
    """

    def __init__(self, url: str, patience: float, samples: Any, names: Sequence[str]) -> None:
        self._address, self._patience = urlsplit(url), patience
        self._samples, self._names = samples, names
        self._connection = _connection(self._address, patience)

    def warm_up(self) -> None:
        """Ask for one sample, so that the connection is there. Raises `GolowError` if nothing
        answers."""
        try:
            self.run(self.assemble([0]))
        except OSError as error:
            raise GolowError(
                f"{self._address.geturl()} does not answer: {error.strerror or error}",
                "start the service, and give its address.",
            ) from error

    def group(self, index: int) -> int:
        """The length that a sample is padded to."""
        length: int = self._samples.size(index)
        return length

    def bucket(self, indices: Sequence[int]) -> Bucket:
        """The service gets as many samples as came."""
        length = max(1, self.group(indices[0]))
        return Bucket(len(indices), length, sum(map(self._samples.length, indices)))

    def assemble(self, indices: Sequence[int]) -> bytes:
        """The body of the request."""
        tensors = self._samples.batch(indices, (len(indices), self.group(indices[0])))
        arrays = [item.numpy() for item in tensors]
        body = io.BytesIO()
        if self._names:
            np.savez(body, **dict(zip(self._names, arrays, strict=True)))
        else:
            np.save(body, arrays[0])
        return body.getvalue()

    def run(self, batch: bytes) -> Answered:
        """The answer. Raises ValueError for one that is an error or in another form."""
        try:
            status, content = self._posted(batch)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            # A connection that waits for its next request may be closed by the service.
            self._connection.close()
            status, content = self._posted(batch)
        if status != http.client.OK:
            words = content[:SHOWN].decode(errors="replace")
            raise ValueError(f"the service answered {status}: {words}")
        if content.startswith(MAGIC):
            return Answered(OUTPUT, np.load(io.BytesIO(content), allow_pickle=False))
        return Answered(CLASS, _classes(content))

    def answers(self, outputs: Answered, indices: Sequence[int]) -> list[bytes]:
        """An answer for each sample, after the letter of its kind."""
        if len(outputs.rows) < len(indices):
            raise ValueError(f"the service answered {len(outputs.rows)} of {len(indices)} samples")
        return [
            outputs.kind + self._content(outputs, row, index)
            for row, index in zip(outputs.rows, indices, strict=False)
        ]

    def _content(self, outputs: Answered, row: Any, index: int) -> bytes:
        if outputs.kind == CLASS:
            return struct.pack("<q", row)
        data: bytes = row[self._samples.cut(0, index)].tobytes()
        return data

    def _posted(self, body: bytes) -> tuple[int, bytes]:
        path = self._address.path or "/"
        path += f"?{self._address.query}" if self._address.query else ""
        self._connection.request("POST", path, body, {"Content-Type": NUMPY})
        answer = self._connection.getresponse()
        return answer.status, answer.read()


def _connection(address: SplitResult, patience: float) -> http.client.HTTPConnection:
    kinds: dict[str, Callable[..., http.client.HTTPConnection]] = {
        "http": http.client.HTTPConnection,
        "https": http.client.HTTPSConnection,
    }
    return kinds[address.scheme](address.hostname or "", address.port, timeout=patience)


def _classes(content: bytes) -> list[int]:
    try:
        return [int(one) for one in json.loads(content)["classes"]]
    except (ValueError, KeyError, TypeError):
        words = content[:SHOWN].decode(errors="replace")
        raise ValueError(
            f'the service answered neither .npy nor {{"classes": [...]}}: {words}'
        ) from None


def main(url: str, patience: float) -> None:
    """Be the process of the level."""

    def contexts(asked: served_level.LoadRequest) -> list[Service]:
        from golow.programs.load.samples import samples_of
        from golow.workload.bundle import Bundle

        bundle = Bundle(Path(asked.bundle))
        samples = samples_of(bundle, asked.lengths)
        count = len(bundle.workload.inputs)
        keywords = bundle.workload.source.keywords or tuple(map(str, range(count)))
        names = keywords if count > 1 else ()
        return [Service(url, patience, samples, names) for _ in range(asked.contexts)]

    served_level.main(contexts)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
