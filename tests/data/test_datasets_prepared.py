"""The prepared format: what is written is read, by golow and by safetensors, or refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from golow.data.image_file import ImageFacts, open_images, write_images
from golow.records.errors import GolowError
from support.examples import examples

FACTS = ImageFacts(dataset="mnist", part="train", classes=("a", "b", "ü"), source="here")


def drawn(count: int, shape: tuple[int, int, int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    return labels, random.integers(0, 256, (count, *shape)).astype(np.uint8)


def write(path: Path, count: int = 5, shape: tuple[int, int, int] = (2, 3, 4)) -> bytes:
    labels, images = drawn(count, shape)
    write_images(path, labels, [images[:2], images[2:]], shape, FACTS)
    return path.read_bytes()


# ---------------------------------------------------------------- written and read


@examples(40)
@given(
    count=st.integers(1, 30),
    shape=st.tuples(st.integers(1, 4), st.integers(2, 9), st.integers(1, 9)),
    batch=st.integers(1, 31),
    seed=st.integers(0, 99),
)
def test_what_is_written_is_read(
    count: int,
    shape: tuple[int, int, int],
    batch: int,
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("written") / "part.safetensors"
    labels, images = drawn(count, shape, seed)
    images[0, :, 0, 0], images[0, :, 1, 0] = 0, 255  # no channel is constant
    batches = (images[start : start + batch] for start in range(0, count, batch))
    facts = write_images(path, labels, batches, shape, FACTS)

    read = open_images(path, verify=True)
    assert read.facts == facts
    assert (read.labels.dtype, read.images.dtype) == (np.int64, np.uint8)
    np.testing.assert_array_equal(read.labels, labels)
    np.testing.assert_array_equal(read.images, images)
    assert facts.checksum == f"{zlib.crc32(labels.tobytes() + images.tobytes()):08x}"
    unit = images.astype(np.float64) / 255
    np.testing.assert_allclose(facts.mean, unit.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(facts.deviation, unit.std((0, 2, 3)), rtol=1e-9)

    with safe_open(path, "numpy") as file:  # the format's own reader, which checks every offset
        np.testing.assert_array_equal(file.get_tensor("labels"), labels)
        np.testing.assert_array_equal(file.get_tensor("images"), images)
        metadata = file.metadata()
    assert json.loads(metadata["classes"]) == ["a", "b", "ü"]
    assert tuple(json.loads(metadata["mean"])) == facts.mean
    assert metadata["checksum"] == facts.checksum


def test_the_images_are_mapped_and_aligned(tmp_path: Path) -> None:
    write(tmp_path / "part")
    labels, images, _ = open_images(tmp_path / "part")
    assert isinstance(images, np.memmap)
    assert labels.flags.aligned
    assert not images.flags.writeable


def test_mean_and_deviation_are_taken_over_when_given(tmp_path: Path) -> None:
    facts = ImageFacts(
        dataset="d", part="test", classes=("a",), mean=(0.1, 0.2), deviation=(0.3, 0.4)
    )
    images = np.zeros((3, 2, 1, 1), dtype=np.uint8)  # constant: a test set may be
    write_images(tmp_path / "part", np.zeros(3, dtype=np.int64), [images], (2, 1, 1), facts)
    assert open_images(tmp_path / "part").facts.deviation == (0.3, 0.4)


def test_a_constant_channel_is_refused(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 2, 4, 4)).astype(np.uint8)
    images[:, 1] = 7
    with pytest.raises(GolowError, match="channel 1 of mnist"):
        write_images(tmp_path / "p", np.zeros(3, dtype=np.int64), [images], (2, 4, 4), FACTS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("labels", [0, 2, 4])
def test_labels_and_images_must_fit_together(labels: int, tmp_path: Path) -> None:
    _, images = drawn(3, (1, 2, 2))
    with pytest.raises(ValueError, match=r"at least one sample|3 images for"):
        write_images(tmp_path / "p", np.zeros(labels, np.int64), [images], (1, 2, 2), FACTS)
    with pytest.raises(ValueError, match=r"at least one sample|not uint8"):
        write_images(tmp_path / "p", np.zeros(labels, np.int64), [images], (1, 2, 3), FACTS)
    assert not list(tmp_path.iterdir())


def test_a_part_larger_than_its_batches_takes_no_more_memory(tmp_path: Path) -> None:
    batch = np.random.default_rng(0).integers(0, 256, (16, 3, 64, 64)).astype(np.uint8)
    tracemalloc.start()
    write_images(
        tmp_path / "p",
        np.zeros(16 * 200, np.int64),
        (batch for _ in range(200)),
        (3, 64, 64),
        FACTS,
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "p").stat().st_size > 39e6
    assert peak < 4e6


# ---------------------------------------------------------------- never half a file

WRITER = """
import sys, time, numpy
from pathlib import Path
from golow.data.image_file import ImageFacts, write_images
def batches():
    for _ in range(100):
        yield numpy.arange(48, dtype=numpy.uint8).reshape(1, 3, 4, 4)
        print("batch", flush=True)
        time.sleep(PAUSE)
facts = ImageFacts(dataset="d", part="train", classes=("a",))
write_images(Path(sys.argv[1]), numpy.zeros(100, numpy.int64), batches(), (3, 4, 4), facts)
"""


def test_a_writer_that_is_killed_leaves_no_file_of_that_name(tmp_path: Path) -> None:
    path = tmp_path / "part.safetensors"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER.replace("PAUSE", "0.05"), str(path)], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    for _ in range(3):
        writer.stdout.readline()
    writer.kill()
    assert writer.wait() == -signal.SIGKILL
    writer.stdout.close()
    [left] = tmp_path.iterdir()
    assert left.name.startswith(".part.safetensors.")
    write(path)
    open_images(path, verify=True)


def test_a_full_disk_is_an_error_that_says_so(tmp_path: Path) -> None:
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
    done = subprocess.run(
        [sys.executable, "-c", limited + WRITER.replace("PAUSE", "0"), str(tmp_path / "part")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "GolowError" in done.stderr
    assert "part cannot be written: File too large" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GolowError, match="cannot be written"):
        write(tmp_path / "file" / "part")


# ---------------------------------------------------------------- what is refused


def refused(path: Path, data: bytes, verify: bool = False) -> str:
    path.write_bytes(data)
    with pytest.raises(GolowError, match="is not a prepared data set") as caught:
        open_images(path, verify)
    assert str(path) in caught.value.message
    return caught.value.message


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "part")
    for length in range(len(data)):
        refused(tmp_path / "cut", data[:length])
    refused(tmp_path / "long", data + b"\0")


def test_one_changed_byte_of_pixels_or_labels_fails_the_checksum(tmp_path: Path) -> None:
    data = bytearray(write(tmp_path / "part"))
    for place in (-1, -5 * 24, -5 * 24 - 8 * 5):
        changed = bytearray(data)
        changed[place] ^= 1
        message = refused(tmp_path / "changed", bytes(changed), verify=True)
        assert "its checksum is" in message or "its labels range from 0 to 3" in message


def header(data: bytes) -> dict[str, dict[str, object]]:
    found = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert isinstance(found, dict)
    return found


def with_header(data: bytes, fields: object) -> bytes:
    text = json.dumps(fields).encode()
    body = data[8 + int.from_bytes(data[:8], "little") :]
    return len(text).to_bytes(8, "little") + text + body


@pytest.mark.parametrize(
    ("tensor", "field", "value", "reason"),
    [
        ("labels", "dtype", "I32", "not a list of int64"),
        ("labels", "shape", [6], "not uint8"),
        ("labels", "shape", [5, 1], "not a list of int64"),
        ("labels", "shape", [], "not a list of int64"),
        ("labels", "shape", [-5], "not a list of int64"),
        ("images", "dtype", "F32", "not uint8"),
        ("images", "shape", [5, 24], "not uint8"),
        ("images", "shape", [5, 2, 3, 5], "not contiguous"),
        ("images", "shape", [5, -2, -3, 4], "not contiguous"),
        ("images", "shape", [5, 2, 3, 2**70], "not contiguous|integer"),
        ("images", "shape", "5", "array"),
        ("images", "data_offsets", [0, 120], "not contiguous"),
        ("images", "data_offsets", [40, 10**12], "not contiguous"),
        ("__metadata__", "mean", "[0.1]", "one number per channel"),
        ("__metadata__", "mean", "[0.1, ", "Expecting value"),
        ("__metadata__", "deviation", '["a", "b"]', "float"),
        ("__metadata__", "deviation", "[0.1, 0]", "positive"),
        ("__metadata__", "mean", "[NaN, 0.1]", "finite"),
        ("__metadata__", "classes", '["a"]', "its labels range from 0 to 2, for 1 classes"),
        ("__metadata__", "checksum", 5, "str"),
    ],
)
def test_a_header_that_lies_is_refused(
    tensor: str, field: str, value: object, reason: str, tmp_path: Path
) -> None:
    data = write(tmp_path / "part")
    fields = header(data)
    fields[tensor][field] = value
    message = refused(tmp_path / "lies", with_header(data, fields))
    assert any(text in message for text in reason.split("|")), message


@pytest.mark.parametrize("name", ["labels", "images", "__metadata__"])
def test_a_header_that_lacks_something_is_refused(name: str, tmp_path: Path) -> None:
    data = write(tmp_path / "part")
    fields = header(data)
    del fields[name]
    refused(tmp_path / "lacks", with_header(data, fields))


def test_other_things_are_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "part")
    refused(tmp_path / "more", with_header(data, header(data) | {"third": {}}))
    refused(tmp_path / "deep", with_header(data, []).replace(b"[]", b"[" * 2))
    nested = b'{"a":' * 100_000
    refused(tmp_path / "nested", len(nested).to_bytes(8, "little") + nested)
    refused(tmp_path / "huge", (2**63).to_bytes(8, "little") + data[8:])
    with pytest.raises(GolowError, match="No such file"):
        open_images(tmp_path / "nowhere")
    with pytest.raises(GolowError, match="Is a directory"):
        open_images(tmp_path)


@examples(150)
@given(data=st.data())
def test_whatever_the_bytes_are_it_is_a_golow_error_or_well_formed(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    content = bytearray(write(path))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        labels, images, facts = open_images(path, verify=True)
    except GolowError:
        return
    assert len(labels) == len(images)
    assert labels.max() < len(facts.classes)
