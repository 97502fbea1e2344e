"""Serve a compiled ResNet-18 over HTTP: one context for each thread, from a pool.

    python examples/serve_resnet.py --port 8000 --contexts 2
    curl --data-binary @pictures.npy localhost:8000     # float32 [1 to 8, 3, 64, 64]

The answer is the class of each picture, as JSON. The weights are random without --weights FILE, a
state dict in a .safetensors file. With one, golow loads the server from outside:

    golow load resnet18 --weights FILE --resolution 64 --url http://localhost:8000 --rate 20
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

import golow
from golow.models.resnet import resnet18

SHAPE = (3, 64, 64)
LARGEST = 8


class Pool:
    """Contexts over the weights of one compiled module; a thread takes one for each call."""

    def __init__(self, contexts: int, weights: str | None) -> None:
        torch.manual_seed(0)
        model = resnet18().eval()
        if weights is not None:
            model.load_state_dict(load_file(weights))
        example = torch.randn(LARGEST, *SHAPE)
        self.compiled = golow.compile(model, example, batch=[1, 2, 4, LARGEST], threads=1)
        self._free: Queue[Any] = Queue()
        for _ in range(contexts):
            self._free.put(self.compiled.context())

    @contextmanager
    def context(self) -> Iterator[Any]:
        """A context that no other thread uses meanwhile."""
        taken = self._free.get()
        try:
            yield taken
        finally:
            self._free.put(taken)


class Answers(BaseHTTPRequestHandler):
    """Answers POST with the classes of the pictures."""

    pool: Pool

    def do_POST(self) -> None:
        """Read an array in NumPy's format, and answer with the largest logit of each row."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            pictures = np.load(io.BytesIO(body), allow_pickle=False)
            with self.pool.context() as call:
                classes = call(pictures).argmax(1).tolist()
        except (ValueError, golow.GolowError) as error:
            self._answer(400, {"error": str(error)})
        else:
            self._answer(200, {"classes": classes})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    """Serve until Ctrl-C."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--port", type=int, default=8000)
    options.add_argument("--contexts", type=int, default=2)
    options.add_argument("--weights")
    given = options.parse_args()
    Answers.pool = Pool(given.contexts, given.weights)
    with ThreadingHTTPServer(("127.0.0.1", given.port), Answers) as server:
        print(f"http://127.0.0.1:{server.server_port} takes up to {LARGEST} pictures", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("ended")


if __name__ == "__main__":
    main()
