"""Downloads, from a server of this machine that breaks off, sends wrong data and loses things."""

from __future__ import annotations

import hashlib
import io
import socket
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from golow.data import catalog
from golow.data.catalog import Dataset, Download, PublishedFile
from golow.data.fetch import complete, fetch
from golow.data.image_file import open_images
from golow.data.prepare import prepare_dataset
from golow.records.errors import GolowError
from support.command import golow
from support.data.dataset_files import drawn, write_cifar10, write_mnist, write_voc


class Publisher:
    """What is served, how it goes wrong, and what was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.breaks_after: list[int] = []  # bytes of each of the next answers
        self.knows_ranges = True
        self.states_length = True
        self.asked: list[tuple[str, str | None]] = []  # path and range
        self.url = ""


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    state = Publisher()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.asked.append((self.path, wanted))
            data = state.files.get(self.path)
            if data is None:
                self.send_error(404)
                return
            first = int(wanted[len("bytes=") : -1]) if wanted and state.knows_ranges else 0
            if first and first >= len(data):
                self.send_error(416)
                return
            self.send_response(206 if first else 200)
            if state.states_length:
                self.send_header("Content-Length", str(len(data) - first))
            self.end_headers()
            sent = data[first:]
            self.wfile.write(sent[: state.breaks_after.pop(0)] if state.breaks_after else sent)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    server.server_close()


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def entered(
    name: str, publisher: Publisher, downloads: dict[str, bytes], files: dict[str, bytes]
) -> Dataset:
    """The catalogue's entry with the publisher's files, served from here."""
    publisher.files = {f"/{Path(place).name}": data for place, data in downloads.items()}
    return replace(
        catalog.find(name),
        files=tuple(PublishedFile(name, len(data), md5(data)) for name, data in files.items()),
        downloads=tuple(
            Download((f"{publisher.url}/{Path(place).name}",), place, len(data), md5(data))
            for place, data in downloads.items()
        ),
    )


def packed(folder: Path, inside: str) -> bytes:
    """The folder as a gzipped tar archive, under that name."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        tar.add(folder, inside)
    return made.getvalue()


@pytest.fixture
def mnist(publisher: Publisher, tmp_path: Path) -> Dataset:
    inside = write_mnist(tmp_path / "source", drawn((1, 28, 28), train=20, test=7))
    files = {file.name: file.read_bytes() for file in sorted(inside.iterdir())}
    return entered("mnist", publisher, {f"MNIST/raw/{n}": d for n, d in files.items()}, files)


@pytest.fixture
def cifar10(publisher: Publisher, tmp_path: Path) -> Dataset:
    inside = write_cifar10(tmp_path / "source", drawn((3, 32, 32), train=10, test=2))
    files = {file.name: file.read_bytes() for file in inside.iterdir()}
    archive = packed(inside, "cifar-10-batches-bin")
    return entered("cifar10", publisher, {"cifar-10-binary.tar.gz": archive}, files)


ARCHIVE = "/cifar-10-binary.tar.gz"

# ---------------------------------------------------------------- what works


def test_single_files_are_fetched_once(
    mnist: Dataset, publisher: Publisher, tmp_path: Path
) -> None:
    root, told = tmp_path / "root", []
    assert not complete(mnist, root)
    folder = fetch(mnist, root, lambda *news: told.append(news))
    assert folder == root / "MNIST/raw"
    assert complete(mnist, root)
    assert {f"/{file.name}": file.read_bytes() for file in folder.iterdir()} == publisher.files
    sizes = {name[1:]: len(data) for name, data in publisher.files.items()}
    assert {(name, done) for name, done, _ in told} >= set(sizes.items())
    assert len(publisher.asked) == 4

    fetch(mnist, root)
    assert len(publisher.asked) == 4  # nothing is asked for again
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    fetch(mnist, root)
    assert publisher.asked[4:] == [("/t10k-labels-idx1-ubyte.gz", None)]


def test_the_command_fetches_and_verifies(
    mnist: Dataset, publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And refuses other bytes of the same size, with a status and no traceback."""
    monkeypatch.setitem(catalog.CATALOG, "mnist", mnist)
    root = str(tmp_path / "root")
    right = dict(publisher.files)
    publisher.files = {name: bytes(len(data)) for name, data in right.items()}
    refused = golow("data", "fetch", "mnist", "--data-root", root)
    assert refused.status == 2
    assert "whose md5 is not" in refused.error and "Traceback" not in refused.error
    assert not list((tmp_path / "root").rglob("*.gz"))

    publisher.files = right
    done = golow("data", "fetch", "mnist", "--data-root", root)
    assert (done.status, done.output) == (0, f"mnist: {root}/MNIST/raw\n")
    assert golow("data", "verify", "mnist", "--data-root", root).status == 0


def test_an_archive_is_fetched_unpacked_and_removed(cifar10: Dataset, tmp_path: Path) -> None:
    root = tmp_path / "root"
    folder = fetch(cifar10, root)
    assert folder == root / "cifar-10-batches-bin"
    assert list(root.iterdir()) == [folder]
    assert complete(cifar10, root)
    train, _ = prepare_dataset("cifar10", root, None, tmp_path / "cache")
    assert len(open_images(train, verify=True).labels) == 10


def test_the_folder_may_lie_deeper_in_an_archive(publisher: Publisher, tmp_path: Path) -> None:
    write_voc(tmp_path / "source")
    archive = packed(tmp_path / "source", ".")
    voc = entered("voc2012", publisher, {"VOCtrainval_11-May-2012.tar": archive}, {})
    assert fetch(voc, tmp_path / "root") == tmp_path / "root/VOCdevkit/VOC2012"
    prepare_dataset("voc2012", tmp_path / "root", 16, tmp_path / "cache")


def test_an_archive_that_was_got_by_other_means_is_taken(
    cifar10: Dataset, publisher: Publisher, tmp_path: Path
) -> None:
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(publisher.files[ARCHIVE])
    fetch(cifar10, tmp_path)
    assert publisher.asked == []


# ---------------------------------------------------------------- transfers that break


def test_a_broken_transfer_goes_on_where_it_broke(
    cifar10: Dataset, publisher: Publisher, tmp_path: Path
) -> None:
    publisher.breaks_after = [1000, 500]
    fetch(cifar10, tmp_path)
    assert [ranges for _, ranges in publisher.asked] == [None, "bytes=1000-", "bytes=1500-"]
    assert complete(cifar10, tmp_path)


def test_the_next_command_goes_on_too(
    cifar10: Dataset, publisher: Publisher, tmp_path: Path
) -> None:
    publisher.breaks_after = [1000, 0]  # then nothing comes any more
    with pytest.raises(GolowError, match=r"ended after 1,000 of .* bytes") as caught:
        fetch(cifar10, tmp_path)
    assert "continues where this stopped" in caught.value.hint
    assert (tmp_path / "cifar-10-binary.tar.gz.part").stat().st_size == 1000
    publisher.asked.clear()
    fetch(cifar10, tmp_path)
    assert publisher.asked == [(ARCHIVE, "bytes=1000-")]
    assert complete(cifar10, tmp_path)


def test_a_server_without_ranges_begins_again(
    cifar10: Dataset, publisher: Publisher, tmp_path: Path
) -> None:
    publisher.knows_ranges, publisher.breaks_after = False, [1000]
    fetch(cifar10, tmp_path)
    assert [ranges for _, ranges in publisher.asked] == [None, "bytes=1000-"]
    assert complete(cifar10, tmp_path)


def test_a_part_of_another_file_is_given_up(
    cifar10: Dataset, publisher: Publisher, tmp_path: Path
) -> None:
    """What came before was another file: the server has no such range, or the sum is wrong."""
    (tmp_path / "cifar-10-binary.tar.gz.part").write_bytes(b"x" * 100)
    with pytest.raises(GolowError, match="whose md5 is not"):
        fetch(cifar10, tmp_path)
    fetch(cifar10, tmp_path)
    assert complete(cifar10, tmp_path)


# ---------------------------------------------------------------- what is refused


def nothing_is_left(root: Path) -> bool:
    return not root.exists() or not [file for file in root.rglob("*") if file.is_file()]


def test_other_bytes_than_published(cifar10: Dataset, publisher: Publisher, tmp_path: Path) -> None:
    data = publisher.files[ARCHIVE]
    publisher.files[ARCHIVE] = bytes([data[0] ^ 1]) + data[1:]
    with pytest.raises(GolowError, match="whose md5 is not") as caught:
        fetch(cifar10, tmp_path / "root")
    assert md5(data) in caught.value.message
    assert nothing_is_left(tmp_path / "root")


@pytest.mark.parametrize(
    ("cut", "more", "states_length", "word"),
    [
        (0, b"more", True, "offers .* bytes, not the published"),
        (7, b"", True, "offers .* bytes, not the published"),
        (0, b"more", False, "sent more than the published"),
        (7, b"", False, "has no more than"),
    ],
)
def test_another_size_than_published(
    cut: int,
    more: bytes,
    states_length: bool,
    word: str,
    cifar10: Dataset,
    publisher: Publisher,
    tmp_path: Path,
) -> None:
    data = publisher.files[ARCHIVE]
    publisher.files[ARCHIVE] = data[: len(data) - cut] + more
    publisher.states_length = states_length
    with pytest.raises(GolowError, match=word):
        fetch(cifar10, tmp_path / "root")
    assert nothing_is_left(tmp_path / "root")


def test_a_page_instead_of_the_file_leaves_nothing(
    cifar10: Dataset, publisher: Publisher, tmp_path: Path
) -> None:
    publisher.files[ARCHIVE] = b"<html>please accept our terms</html>"
    with pytest.raises(GolowError, match="offers 36 bytes"):
        fetch(cifar10, tmp_path / "root")
    assert nothing_is_left(tmp_path / "root")


def test_a_file_that_is_not_served(cifar10: Dataset, publisher: Publisher, tmp_path: Path) -> None:
    publisher.files.clear()
    with pytest.raises(GolowError, match="404") as caught:
        fetch(cifar10, tmp_path / "root")
    assert "no network" not in caught.value.message
    assert str(tmp_path / "root/cifar-10-binary.tar.gz") in caught.value.hint
    assert nothing_is_left(tmp_path / "root")


def test_the_next_address_is_tried(cifar10: Dataset, publisher: Publisher, tmp_path: Path) -> None:
    [download] = cifar10.downloads
    urls = (f"{publisher.url}/moved", *download.urls)
    fetch(replace(cifar10, downloads=(replace(download, urls=urls),)), tmp_path)
    assert complete(cifar10, tmp_path)


def test_no_network(cifar10: Dataset, publisher: Publisher, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    [download] = cifar10.downloads
    gone = replace(download, urls=(f"http://127.0.0.1:{port}/x.tar.gz",))
    with pytest.raises(GolowError, match="there seems to be no network") as caught:
        fetch(replace(cifar10, downloads=(gone,)), tmp_path / "root")
    for word in (f"{download.size:,} bytes", download.md5, str(tmp_path / "root")):
        assert word in caught.value.hint
    (tmp_path / "root/cifar-10-binary.tar.gz").write_bytes(b"got elsewhere, cut off")
    with pytest.raises(GolowError, match="the existing file has md5"):
        fetch(replace(cifar10, downloads=(gone,)), tmp_path / "root")


def archive_with(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, link
        entry.size = 4 if kind == tarfile.REGTYPE else 0
        tar.addfile(entry, io.BytesIO(b"evil"))
    return made.getvalue()


# Named, since an archive's bytes hold the second it was made in.
@pytest.mark.parametrize(
    "archive",
    [
        pytest.param(archive_with("../outside"), id="above"),
        pytest.param(archive_with("cifar-10-batches-bin/../../outside"), id="above-by-detour"),
        pytest.param(
            archive_with("cifar-10-batches-bin/link", tarfile.SYMTYPE, "../../.."), id="link"
        ),
        pytest.param(archive_with("cifar-10-batches-bin/device", tarfile.CHRTYPE), id="device"),
        pytest.param(archive_with("another-folder/x"), id="another-folder"),
        pytest.param(b"no archive", id="no-archive"),
        pytest.param(archive_with("x")[:-10], id="cut-off"),
    ],
)
def test_an_archive_that_does_not_unpack_where_it_should(
    archive: bytes, publisher: Publisher, tmp_path: Path
) -> None:
    dataset = entered("cifar10", publisher, {"cifar-10-binary.tar.gz": archive}, {"a": b"b"})
    with pytest.raises(GolowError, match="does not unpack to cifar-10-batches-bin"):
        fetch(dataset, tmp_path / "root")
    assert [file.name for file in tmp_path.iterdir()] == ["root"]
    assert [file.name for file in (tmp_path / "root").iterdir()] == ["cifar-10-binary.tar.gz"]


def test_a_folder_of_the_user_is_not_touched(
    cifar10: Dataset, publisher: Publisher, tmp_path: Path
) -> None:
    (tmp_path / "cifar-10-batches-bin").mkdir()
    (tmp_path / "cifar-10-batches-bin/mine").write_text("mine")
    with pytest.raises(GolowError, match="exists already"):
        fetch(cifar10, tmp_path)
    assert publisher.asked == []


def test_what_is_embedded_or_the_users_own(tmp_path: Path) -> None:
    with pytest.raises(GolowError, match="nothing to download for digits"):
        fetch(catalog.find("digits"), tmp_path)


def test_without_pooch(cifar10: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)  # as if it were not installed
    with pytest.raises(GolowError, match="downloads need pooch, which is not installed") as caught:
        fetch(cifar10, tmp_path)
    assert caught.value.hint == "pip install 'golow[fetch]'"


def test_a_root_that_cannot_be_written(cifar10: Dataset, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GolowError, match="cannot be written to"):
        fetch(cifar10, tmp_path / "file")
