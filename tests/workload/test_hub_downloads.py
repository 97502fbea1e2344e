"""Models by name, from a hub on this machine: what is downloaded and checked, what is refused, and
that nothing asks the network unless the user does."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from support.data.hub import Hub, serving

NAME = "some/tiny"
FILES = {
    "config.json": b'{"model_type": "gpt2"}',
    "model.safetensors": bytes(range(256)) * 400,
    "pytorch_model.bin": b"a pickle, which nobody asks for",
}
DOWNLOAD = """
import sys
from golow.records.errors import GolowError
from golow.workload.hub.downloads import WEIGHTS, cached, download
try:
    folder = download(sys.argv[1], ("config.json", *WEIGHTS))
except GolowError as error:
    sys.exit(str(error))
assert cached(sys.argv[1], "config.json") == folder / "config.json"
print(*sorted(file.name for file in folder.iterdir()))
"""
PREPARE = """
import json, sys
from golow.records.errors import GolowError
from golow.workload.prepare import prepare
from golow.workload.request import Request
try:
    found = prepare(Request(sys.argv[1], batch=1, **json.loads(sys.argv[2])))
except GolowError as error:
    sys.exit(str(error))
print(sum(tensor.double().sum().item() for tensor in found.module.state_dict().values()))
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    """With one small model."""
    pytest.importorskip("huggingface_hub")
    with serving() as found:
        found.models[NAME] = dict(FILES)
        yield found


def python(hub: Hub, home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A process of Python that knows this hub; huggingface_hub reads its variables on import."""
    environment = {**os.environ, **hub.environment(home), **more}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300
    )


def asked_files(hub: Hub) -> list[str]:
    """The files whose bytes were asked for."""
    return sorted(
        asked.rpartition("/")[2]
        for asked in hub.asked
        if asked.startswith("GET") and "/api/" not in asked
    )


@pytest.mark.parametrize("variables", [{}, {"HF_HUB_DISABLE_SYMLINKS": "1"}])
def test_a_download_takes_what_it_needs_once(
    hub: Hub, tmp_path: Path, variables: dict[str, str]
) -> None:
    for _ in range(2):
        done = python(hub, tmp_path, "-c", DOWNLOAD, NAME, **variables)
        assert done.stdout == "config.json model.safetensors\n", done.stderr
    assert asked_files(hub) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("variables", [{}, {"HF_HUB_DISABLE_SYMLINKS": "1"}])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_exchanged_bytes_are_found_and_removed(
    hub: Hub, tmp_path: Path, name: str, variables: dict[str, str]
) -> None:
    hub.sent[name] = FILES[name][:-1] + b"?"
    done = python(hub, tmp_path, "-c", DOWNLOAD, NAME, **variables)
    assert done.returncode == 1
    assert f"{NAME}: checksum mismatch after download: {name}" in done.stderr
    assert "run the same command again" in done.stderr
    assert not any(file.is_file() and _holds(file, hub.sent[name]) for file in tmp_path.rglob("*"))
    hub.sent.clear()
    done = python(hub, tmp_path, "-c", DOWNLOAD, NAME, **variables)
    assert done.stdout == "config.json model.safetensors\n", done.stderr


def test_a_file_without_a_checksum_does_not_stay(hub: Hub, tmp_path: Path) -> None:
    hub.named["config.json"] = "0123456789"
    done = python(hub, tmp_path, "-c", DOWNLOAD, NAME)
    assert done.returncode == 1
    assert f"the hub gives no checksum for config.json of {NAME}" in done.stderr
    assert not list(tmp_path.rglob("config.json"))


def _holds(file: Path, data: bytes) -> bool:
    return hashlib.sha256(file.read_bytes()).digest() == hashlib.sha256(data).digest()


def test_a_transfer_that_breaks_off_is_no_download(hub: Hub, tmp_path: Path) -> None:
    hub.cut["model.safetensors"] = 1000
    done = python(hub, tmp_path, "-c", DOWNLOAD, NAME)
    assert done.returncode == 1
    assert f"{NAME} cannot be downloaded" in done.stderr
    assert "check the connection, and run the same command again" in done.stderr
    assert not list(tmp_path.rglob("model.safetensors"))


@pytest.mark.parametrize(
    ("name", "variables", "said"),
    [
        ("some/other", {}, "check the name; a private or gated model needs a login"),
        ("no name at all", {}, "check the name: hf:NAME"),
        (NAME, {"HF_ENDPOINT": "http://127.0.0.1:9"}, "Connection refused\n  check the connection"),
        (NAME, {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
    ],
)
def test_what_cannot_be_downloaded_says_why(
    hub: Hub, tmp_path: Path, name: str, variables: dict[str, str], said: str
) -> None:
    done = python(hub, tmp_path, "-c", DOWNLOAD, name, **variables)
    assert done.returncode == 1
    assert f"{name} cannot be downloaded" in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_is_downloaded_by_the_command_and_then_used_without_a_network(
    hub: Hub, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=9, n_embd=8, n_layer=1, n_head=2, n_positions=16, bos_token_id=1, eos_token_id=2,
        architectures=["GPT2LMHeadModel"], tie_word_embeddings=True,
    )  # fmt: skip
    module = transformers.GPT2LMHeadModel(config)
    state = {name: tensor for name, tensor in module.state_dict().items() if "lm_head" not in name}
    hub.models[NAME] = {
        "config.json": config.to_json_string().encode(),
        "model.safetensors": save(state, metadata={"format": "pt"}),
    }
    options = json.dumps({"sequence": 4})

    done = python(hub, tmp_path, "-c", PREPARE, f"hf:{NAME}", options)
    assert "is not on this machine" in done.stderr
    assert not hub.asked

    record = tmp_path / "record"
    done = python(
        hub, tmp_path, "-m", "golow", "compare", f"hf:{NAME}", "--download", "--sequence", "4",
        "--batch", "1", "--levels", "eager", "--time-limit", "0.1", "--out", str(record),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert asked_files(hub) == ["config.json", "model.safetensors"]

    hub.asked.clear()
    done = python(hub, tmp_path, "-c", PREPARE, f"hf:{NAME}", options)
    expected = sum(tensor.double().sum().item() for tensor in module.state_dict().values())
    torch.testing.assert_close(float(done.stdout), expected)
    assert not hub.asked


def test_weights_that_are_not_here_are_not_asked_for(hub: Hub, tmp_path: Path) -> None:
    """Where only the configuration was downloaded."""
    pytest.importorskip("transformers")
    only = DOWNLOAD.replace('("config.json", *WEIGHTS)', '("config.json",)')
    assert python(hub, tmp_path, "-c", only, NAME).stdout == "config.json\n"
    hub.asked.clear()
    done = python(hub, tmp_path, "-c", PREPARE, f"hf:{NAME}", "{}")
    assert f"the weights of {NAME} are not on this machine" in done.stderr
    assert not hub.asked


def test_weights_of_timm_are_downloaded_and_checked(hub: Hub, tmp_path: Path) -> None:
    timm = _timm()
    module = timm.create_model("test_vit")
    hub.models["timm/test_vit.r160_in1k"] = {"model.safetensors": save(module.state_dict())}
    pretrained = json.dumps({"pretrained": True})

    done = python(hub, tmp_path, "-c", PREPARE, "timm:test_vit", pretrained)
    assert "the weights of test_vit are not on this machine" in done.stderr
    assert not hub.asked

    hub.sent["model.safetensors"] = save({name: tensor + 1 for name, tensor in
                                          module.state_dict().items()})  # fmt: skip
    download = json.dumps({"pretrained": True, "download": True})
    done = python(hub, tmp_path, "-c", PREPARE, "timm:test_vit", download)
    assert "checksum mismatch after download: model.safetensors" in done.stderr

    hub.sent.clear()
    done = python(hub, tmp_path, "-c", PREPARE, "timm:test_vit", download)
    expected = sum(tensor.double().sum().item() for tensor in module.state_dict().values())
    torch.testing.assert_close(float(done.stdout), expected)


def _timm() -> object:
    """Skips where it is missing, or its torchvision was built for another torch."""
    try:
        return importlib.import_module("timm")
    except Exception as error:
        pytest.skip(f"timm cannot be imported: {error}")
