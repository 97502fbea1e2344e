"""Reads an exported program, a ``.pt2`` file, as data: nothing in it runs.

`torch.export.load` unpickles parts of the file, where a pickle can be any call, and loads compiled
libraries. So the entries are checked first: what `torch.export.save` writes for tensors and a graph
passes, everything else is refused.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from golow.records.errors import GolowError

PLAIN = re.compile(
    r"data/weights/(weight_\d+|model_weights_config\.json)|models/model\.json"
    r"|data/constants/(tensor_\d+|model_constants_config\.json)|data/sample_inputs/model\.pt"
    r"|archive_format|archive_version|byteorder|\.data/(version|serialization_id)|extra/.+"
)
"""The entries of tensors, graph and versions, below the archive's one folder."""
CONFIGURATIONS = (
    "data/weights/model_weights_config.json",
    "data/constants/model_constants_config.json",
)
SAMPLE_INPUTS = "data/sample_inputs/model.pt"
GRAPH = "models/model.json"


def load_program(path: Path) -> nn.Module:
    """The program as a module in evaluation mode; raises `GolowError` if torch cannot read it, or
    it holds more than tensors and a graph."""
    _require_plain(path)
    # torch 2.13 deprecates what its own programs hold; each copy of one would print a warning.
    warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
    try:
        with _log_as_error():
            module = torch.export.load(path).module()
    except Exception as error:
        last = " ".join(str(error).strip().splitlines()[:1])
        raise _unreadable(path, f"{type(error).__name__}: {last}") from error
    accept_modes(module)
    return module.eval()


def accept_modes(module: nn.Module) -> None:
    """Let an exported program accept the calls train() and eval(), which then change nothing: it
    keeps the mode of its export, and its own raise."""
    for name in ("train", "eval"):
        vars(module).pop(name, None)


def program_inputs(path: Path) -> list[tuple[tuple[int | None, ...], torch.dtype]]:
    """The shape and type of each input of a program; None for a side that is free. Raises
    `GolowError` as `load_program`, and if an input is not a tensor."""
    _require_plain(path)
    # torch 2.13 deprecates what its own programs hold; each copy of one would print a warning.
    warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
    try:
        with _log_as_error():
            program = torch.export.load(path)
    except Exception as error:
        raise _unreadable(path, f"{type(error).__name__}: {error}") from error
    wanted = program.graph_signature.user_inputs
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    found = [values.get(name) for name in wanted if isinstance(name, str)]
    if len(found) != len(wanted) or not all(isinstance(item, torch.Tensor) for item in found):
        raise GolowError(
            f"{path} takes inputs that are not tensors", "export it with only tensors as inputs."
        )

    def shape(tensor: torch.Tensor) -> tuple[int | None, ...]:
        return tuple(side if type(side) is int else None for side in tensor.shape)

    return [(shape(item), item.dtype) for item in found if isinstance(item, torch.Tensor)]


def program_samples(path: Path) -> tuple[torch.Tensor, ...]:
    """The inputs that a program was exported with, which its file holds; none if they are not
    there, or not all tensors in order. Raises `GolowError` as `load_program`."""
    _require_plain(path)
    # torch 2.13 deprecates what its own programs hold; each copy of one would print a warning.
    warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
    try:
        with _log_as_error():
            stored = torch.export.load(path).example_inputs
    except Exception as error:
        raise _unreadable(path, f"{type(error).__name__}: {error}") from error
    arguments, keywords = stored or ((), {})
    whole = not keywords and all(isinstance(item, torch.Tensor) for item in arguments)
    return tuple(arguments) if whole else ()


def register_calls_of_pt2e() -> None:
    """Register the calls that quantised graphs of PT2E have, which takes a tenth of a second."""
    from torch.ao.quantization.fx import _decomposed  # noqa: F401


def _require_plain(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            top = entries[0].filename.partition("/")[0] if entries else ""
            _require_plain_entries(path, entries, top)
            for name in CONFIGURATIONS:
                config = msgspec.json.decode(archive.read(f"{top}/{name}"), type=dict[str, Any])
                if any(payload["use_pickle"] for payload in config["config"].values()):
                    raise _refused(path, f"{name} names pickled objects")
            inputs = archive.read(f"{top}/{SAMPLE_INPUTS}")
            if b"quantized_decomposed" in archive.read(f"{top}/{GRAPH}"):
                register_calls_of_pt2e()
    except GolowError:
        raise
    except Exception as error:  # a damaged archive or configuration raises a dozen types
        raise _unreadable(path, f"{type(error).__name__}: {error}") from error
    try:
        with warnings.catch_warnings(action="ignore"):
            torch.load(io.BytesIO(inputs), weights_only=True)
    except Exception as error:
        raise _refused(path, "its sample inputs are more than tensors, or damaged") from error


def _require_plain_entries(path: Path, entries: list[zipfile.ZipInfo], top: str) -> None:
    names = [entry.filename for entry in entries]
    for entry in entries:
        if not PLAIN.fullmatch(entry.filename.removeprefix(f"{top}/")):
            raise _refused(path, f"it has the entry {entry.filename!r}")
        if entry.compress_type != zipfile.ZIP_STORED:
            raise _refused(path, f"its entry {entry.filename!r} is compressed")
    if len({name.lower() for name in names}) < len(names):  # torch ignores the case of names
        raise _refused(path, "it has two entries of one name")


def _refused(path: Path, reason: str) -> GolowError:
    return GolowError(
        f"{path} is not read, because it may hold code: {reason}",
        "write it with torch.export.save, for example inputs that are tensors.",
    )


def _unreadable(path: Path, reason: str) -> GolowError:
    return GolowError(
        f"{path} is not an exported program that torch {torch.__version__} can read: {reason}",
        "write it with torch.export.save.",
    )


@contextmanager
def _log_as_error() -> Iterator[None]:
    """torch logs the traceback of what goes wrong and then raises an error that refers to the log;
    here nothing is logged, and the first error is raised."""
    logged: list[BaseException] = []

    def keep(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1]:
            logged.append(record.exc_info[1])
        return False

    log = logging.getLogger("torch.export")
    log.addFilter(keep)
    try:
        yield
    except Exception as error:
        raise (logged[0] if logged else error) from error
    finally:
        log.removeFilter(keep)
