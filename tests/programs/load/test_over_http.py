"""`benchmarks/load_over_http.py`: requests through HTTP, to a server of this test."""

from __future__ import annotations

import io
import json
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from load_over_http import Classes, Posting


class Handler(BaseHTTPRequestHandler):
    """Answers with the first number of each row as its class; a negative one is an error."""

    def do_POST(self) -> None:
        rows = np.load(io.BytesIO(self.rfile.read(int(self.headers["Content-Length"]))))
        bad = bool((rows < 0).any())
        data = json.dumps({"error": "bad"} if bad else {"classes": rows[:, 0].tolist()}).encode()
        self.send_response(400 if bad else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_each_sample_is_answered_with_its_class(url: str) -> None:
    context = Posting(url, np.array([[3.0], [5.0], [7.0], [-1.0]], dtype=np.float32))
    found = context.run(context.assemble([2, 0]))
    assert context.answers(found, 2) == [struct.pack("<q", 7), struct.pack("<q", 3)]
    with pytest.raises(ValueError, match="the server answered 400"):
        context.run(context.assemble([3]))


def test_a_wrong_or_missing_class_is_found() -> None:
    right = [(index, struct.pack("<q", index + 1)) for index in range(3)]
    classes = Classes([1, 2, 3])
    assert classes.judge(right).verdict == "match"
    assert "missing" in classes.judge(right[:2]).reason
    assert (
        "sample 1 is of class 9"
        in classes.judge([right[0], (1, struct.pack("<q", 9)), right[2]]).reason
    )
