"""A Hugging Face hub on this machine: as much of its protocol as `huggingface_hub` asks for, served
over HTTP, with files that may be cut off, exchanged or missing."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """What is served, how it goes wrong, and what was asked for.

    cut: bytes after which a transfer of the file ends. sent: what is sent in place of the file's
    own bytes, under the file's own checksum. named: what is given in place of that checksum.
    """

    def __init__(self) -> None:
        self.models: dict[str, dict[str, bytes]] = {}
        self.cut: dict[str, int] = {}
        self.sent: dict[str, bytes] = {}
        self.named: dict[str, str] = {}
        self.asked: list[str] = []
        self.url = ""

    def environment(self, home: Path) -> dict[str, str]:
        """The variables by which a process of huggingface_hub asks here and keeps its files there;
        without a retry that waits long."""
        return {"HF_ENDPOINT": self.url, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1",
                "no_proxy": "127.0.0.1", "HF_HUB_DISABLE_XET": "1"}  # fmt: skip


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub until the block ends."""
    hub = Hub()

    class Asked(_Asked):
        state = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Asked)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Asked(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Hub

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.state.asked.append(f"{self.command} /{path}")
        if path.startswith("api/models/"):
            self._listed(path.removeprefix("api/models/"))
        elif path.startswith("storage/"):
            self._stored(path.removeprefix("storage/"))
        else:
            model, _, rest = path.partition("/resolve/")
            self._resolved(model, rest.partition("/")[2])

    def _listed(self, path: str) -> None:
        model, _, _ = path.partition("/tree/")
        model = model.partition("/revision/")[0]
        files = self.state.models.get(model)
        if files is None:
            # So the hub answers whoever is not logged in: it does not say which models are private.
            self._send(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif "/tree/" in path:
            self._send(200, json.dumps([_entry(name, files[name]) for name in files]).encode(), {})
        else:
            said = {"_id": "1", "id": model, "modelId": model, "sha": COMMIT,
                    "siblings": [{"rfilename": name} for name in files]}  # fmt: skip
            self._send(200, json.dumps(said).encode(), {})

    def _resolved(self, model: str, name: str) -> None:
        data = self.state.models.get(model, {}).get(name)
        commit = {"X-Repo-Commit": COMMIT}
        if data is None:
            known = model in self.state.models
            code = "EntryNotFound" if known else "RepoNotFound"
            self._send(404 if known else 401, b"", {**commit, "X-Error-Code": code})
        elif _is_large(name):
            linked = {"X-Linked-Size": str(len(data)), "X-Linked-Etag": f'"{_etag(name, data)}"',
                      "Location": f"{self.state.url}/storage/{model}/{name}"}  # fmt: skip
            self._send(302, b"", {**commit, **linked})
        else:
            tag = self.state.named.get(name, _etag(name, data))
            self._send_file(name, data, {**commit, "ETag": f'"{tag}"'})

    def _stored(self, path: str) -> None:
        model, _, name = path.rpartition("/")
        data = self.state.models[model][name]
        self._send_file(name, data, {"X-Repo-Commit": COMMIT, "ETag": f'"{_etag(name, data)}"'})

    def _send_file(self, name: str, data: bytes, headers: dict[str, str]) -> None:
        data = self.state.sent.get(name, data)
        first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self._send(206 if first else 200, data[first:], headers, self.state.cut.get(name))

    def _send(
        self, status: int, data: bytes, headers: dict[str, str], cut: int | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[:cut])
        if cut is not None:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


def _entry(name: str, data: bytes) -> dict[str, object]:
    """A file in the listing of a model."""
    found = {"type": "file", "path": name, "size": len(data), "oid": _blob(data)}
    if _is_large(name):
        found["lfs"] = {"oid": _etag(name, data), "size": len(data), "pointerSize": 134}
    return found


def _is_large(name: str) -> bool:
    return name.endswith(".safetensors")


def _etag(name: str, data: bytes) -> str:
    return hashlib.sha256(data).hexdigest() if _is_large(name) else _blob(data)


def _blob(data: bytes) -> str:
    """The name that git gives to a file of these bytes."""
    header = b"blob %d\0" % len(data)
    return hashlib.sha1(header + data, usedforsecurity=False).hexdigest()
