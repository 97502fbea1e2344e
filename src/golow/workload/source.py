"""Finds a model's source and builds the module, which every worker does again.

A model is a name of the zoo, ``file.py:Name``, ``package.module:name``, a ``.pt2`` program or a
live module that golow carries in the bundle; or ``hf:NAME`` and ``timm:NAME``, which
`huggingface` and `timm_models` find.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from golow import models
from golow.records.errors import GolowError
from golow.records.workload import Mode, ModelSource
from golow.storage.files import read_text, read_whole, require_file
from golow.workload.dropout_calls import dropout_calls_off
from golow.workload.hub import huggingface, timm_models
from golow.workload.import_path import searched_first
from golow.workload.keywords import accept_keywords
from golow.workload.names_in_code import files_meant, no_name, no_such_name
from golow.workload.pickled_module import OF_FILES, read_pickled
from golow.workload.program import load_program
from golow.workload.quantization.foreign.adopted import adopted
from golow.workload.quantization.replacing import as_quantized

GOLOW = Path(__file__).parent.parent
TORCH = Path(torch.__file__).parent
STANDARD = Path(sysconfig.get_path("stdlib"))
STORED = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".onnx", ".golow")
"""Names of files that hold weights, or a model in a form that golow does not start from."""


def locate(
    model: str | nn.Module,
    *,
    channels: int | None = None,
    classes: int | None = None,
    resolution: int | None = None,
    mode: Mode = "infer",
    pretrained: bool | None = None,
    download: bool = False,
) -> ModelSource:
    """Where the model comes from; raises `GolowError` if it does not exist."""
    given = {"in_channels": channels, "classes": classes, "resolution": resolution}
    arguments = {name: value for name, value in given.items() if value is not None}
    if isinstance(model, nn.Module):
        return ModelSource(kind="pickle", name=type(model).__name__)
    if not isinstance(model, str):
        raise _no_model(model)
    if model.startswith(huggingface.PREFIX):
        return huggingface.locate_huggingface(
            model, pretrained=pretrained, download=download, mode=mode
        )
    if model.startswith(timm_models.PREFIX):
        return timm_models.locate_timm(model, pretrained=pretrained, download=download)
    if pretrained is not None or download:
        raise GolowError(
            f"--random-weights, --pretrained and --download are for hf: and timm:; {model} is not "
            f"such a model",
            "leave them out; --weights reads a file.",
        )
    if model in models.ZOO:
        return ModelSource(kind="zoo", name=model, arguments=arguments)
    if channels is not None or classes is not None:
        raise GolowError(
            f"--channels and --classes are for models of the zoo; {model} sets them itself",
            "give the input with --input CxHxW.",
        )
    path, _, attribute = model.rpartition(":")
    if path.endswith(".py"):
        return _file_source(Path(path), attribute)
    if model.endswith(".pt2"):
        return _program_source(Path(model))
    if path and "/" not in model:
        return ModelSource(kind="import", name=path, attribute=attribute)
    if model.endswith(".py"):
        raise no_name(model)
    raise _unknown(model)


def _no_model(given: object) -> GolowError:
    hint = ""
    if isinstance(given, type) and issubclass(given, nn.Module):
        hint = f"that is a class; construct it: {given.__name__}()."
    return GolowError(f"a model is a name or a torch.nn.Module, not {given!r}", hint)


def _unknown(model: str) -> GolowError:
    """Explain a name that is neither in the zoo nor of one of the other forms."""
    if Path(model).suffix in STORED:
        return GolowError(
            f"{model} is not code, and golow builds a model from its code",
            "give the code as file.py:Name, and its weights with --weights FILE.safetensors.",
            python_hint="give the torch.nn.Module itself.",
        )
    near = models.nearest(model)
    package, dot, name = model.rpartition(".")
    dotted = dot and all(part.isidentifier() for part in (*package.split("."), name))
    guesses = [*near, *([f"{package}:{name}"] if dotted else []), *files_meant(model)]
    return GolowError(
        f"there is no model {model!r} in the zoo",
        (f"did you mean {' or '.join(guesses)}? " if guesses else "")
        + "`golow models` lists them; for another model give file.py:Name, package.module:name or "
        "file.pt2.",
    )


def require_not_exported(source: ModelSource) -> None:
    """Raise `GolowError` for a model that cannot be trained: an exported program."""
    if source.kind == "program":
        raise GolowError(
            f"{source.name} is an exported program, which cannot be trained",
            "name the model's own source: file.py:Name.",
        )


def build_module(source: ModelSource, folder: Path | None = None) -> nn.Module:
    """The module, with the weights that its own code gives it; it takes a tuple of inputs, also
    where its code takes them by name.

    folder: the bundle, which holds a live module. Raises `GolowError` with a shortened traceback of
    the user's own code if that fails.
    """
    module = as_quantized(adopted(_own_module(source, folder)), source.quantized)
    if source.keywords:
        accept_keywords(module, source.keywords, source.settings)
    return module


def _own_module(source: ModelSource, folder: Path | None) -> nn.Module:
    if source.kind == "huggingface":
        return huggingface.build_huggingface(source)
    if source.kind == "timm":
        return timm_models.build_timm(source)
    if source.kind == "zoo":
        try:
            return models.build(source.name, **source.arguments)
        except ValueError as error:
            raise GolowError(str(error)) from error
        except (RuntimeError, TypeError, MemoryError, OverflowError) as error:  # sizes too large
            reason = str(error).partition("\n")[0]
            raise GolowError(
                f"{source.name} cannot be built with {source.arguments}: {reason}",
                "use smaller --channels, --classes or --resolution.",
            ) from error
    if source.kind == "program":
        return load_program(Path(source.name))
    if source.kind == "pickle":
        return _unpickle(source, folder)
    # A command-line tool does not have the current folder on its path, but users expect it.
    beside = Path(source.name).parent if source.kind == "file" else Path.cwd()
    with searched_first(beside):
        module = _import_file(source) if source.kind == "file" else _import_dotted(source)
        return _construct(module, source)


def _file_source(path: Path, attribute: str) -> ModelSource:
    require_file(path, "check the path before the colon.")
    digest = hashlib.sha256(read_whole(path)).hexdigest()
    return ModelSource(kind="file", name=str(path.resolve()), attribute=attribute, sha256=digest)


def _program_source(path: Path) -> ModelSource:
    require_file(path)
    return ModelSource(kind="program", name=str(path.resolve()), sha256=_sha256(path))


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise GolowError(f"{path} cannot be read: {error.strerror}") from error


def _import_file(source: ModelSource) -> ModuleType:
    path = Path(source.name)
    spec = importlib.util.spec_from_file_location(f"{OF_FILES}{path.stem}", path)
    if spec is None or spec.loader is None:
        raise GolowError(f"{path} cannot be imported as a Python file")
    module = importlib.util.module_from_spec(spec)
    _require_text(path)
    sys.modules[spec.name] = module
    with users_code(f"{path} cannot be imported"), _import_explained(path):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _import_explained(path: Path) -> Iterator[None]:
    """Add a hint to what goes wrong only because golow imports the file."""
    try:
        yield
    except SystemExit as error:
        hint = "golow imports the file: move what it does as a script into a function."
        raise _not_imported(path, error, hint) from error
    except ImportError as error:
        if "relative import" not in str(error):
            raise
        package = path.parent.name
        hint = f"name it by its package, from the folder above: {package}.{path.stem}:Name."
        raise _not_imported(path, error, hint) from error


def _not_imported(path: Path, error: BaseException, hint: str) -> GolowError:
    return GolowError(f"{path} cannot be imported:\n{short_traceback(error)}", hint)


def _require_text(path: Path) -> None:
    """Raise `GolowError` unless it is UTF-8, or its first two lines name another encoding."""
    with path.open("rb") as file:
        if b"coding" in file.readline(1000) + file.readline(1000):
            return
    read_text(path)


def _import_dotted(source: ModelSource) -> ModuleType:
    hint = "run golow from the folder that holds the package, or install it."
    with users_code(f"the module {source.name} cannot be imported", hint):
        return importlib.import_module(source.name)


def _construct(module: ModuleType, source: ModelSource) -> nn.Module:
    with users_code(f"{source.name} does not give {source.attribute!r}"):
        found = getattr(module, source.attribute, None)
    if found is None:
        raise no_such_name(module, source)
    if not isinstance(found, nn.Module):
        hint = "golow calls it without arguments; write a function that passes them."
        with users_code(f"{source.attribute}() failed", hint):
            found = found()
    if not isinstance(found, nn.Module):
        raise GolowError(
            f"{source.attribute} returns a {type(found).__name__}, not a torch.nn.Module"
        )
    hint = "its constructor must call super().__init__()."
    with users_code(f"{source.attribute} is not a whole torch.nn.Module", hint):
        found.train(found.training)
        found.state_dict()
        list(found.parameters())
        list(found.buffers())
    return found


def _unpickle(source: ModelSource, folder: Path | None) -> nn.Module:
    if folder is None:
        raise GolowError("a live module can only be built from its bundle")
    module = read_pickled(folder / "module.pkl", source.sha256, "the bundle's module")
    if not isinstance(module, nn.Module):
        raise GolowError(f"the bundle carries a {type(module).__name__}, not a torch.nn.Module")
    return module


@contextmanager
def users_code(
    what: str,
    hint: str = "",
    lines: int = 12,
    *,
    python_hint: str = "",
    kind: type[GolowError] = GolowError,
) -> Iterator[None]:
    """Turn whatever ends the user's code in the block, also ``sys.exit``, into a `GolowError`: what
    failed, and the end of its traceback. A process that the code forked ends with the block."""
    process = os.getpid()
    try:
        yield
    except (GolowError, KeyboardInterrupt, torch.OutOfMemoryError):
        raise
    except BaseException as error:
        message = f"{what}:\n{short_traceback(error, lines)}"
        raise kind(message, hint, python_hint=python_hint) from error
    finally:
        if os.getpid() != process:
            os._exit(1)


def short_traceback(error: BaseException, lines: int = 12) -> str:
    """The end of the user's own traceback, without golow's frames, and without those of torch and
    of the standard library unless no others are left."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and not _is_within(frame.filename, GOLOW)
    ]
    own = [frame for frame in frames if not _is_library(frame.filename)] or frames
    text = traceback.format_list(own[-4:]) + traceback.format_exception_only(error)
    return "".join(text[-lines:]).rstrip()


def _is_library(file: str) -> bool:
    standard = _is_within(file, STANDARD) and "site-packages" not in file
    return standard or _is_within(file, TORCH)


def _is_within(file: str, folder: Path) -> bool:
    return Path(file).is_relative_to(folder)


# Layers of other packages that draw random numbers, and the attribute with the probability. At 0
# they return their input.
RANDOM_LAYERS = {
    "torchvision.ops.stochastic_depth.StochasticDepth": "p",
    "timm.layers.drop.DropPath": "drop_prob",
}


def random_layers(module: nn.Module) -> list[str]:
    """Paths of the layers that drop something with a probability above 0."""
    return [
        path
        for path, layer in module.named_modules()
        if (name := _probability(layer)) and getattr(layer, name) > 0
    ]


@contextmanager
def random_layers_off(module: nn.Module) -> Iterator[None]:
    """Set the probability of all layers that drop something to 0 within the block, and switch off
    dropout that is called as a function, where it can be (`dropout_calls`)."""
    layers = [(layer, name) for layer in module.modules() if (name := _probability(layer))]
    before = [getattr(layer, name) for layer, name in layers]
    for layer, name in layers:
        setattr(layer, name, 0.0)
    try:
        with dropout_calls_off():
            yield
    finally:
        for (layer, name), probability in zip(layers, before, strict=True):
            setattr(layer, name, probability)


def _probability(layer: nn.Module) -> str:
    """The attribute with the probability that the layer drops something; empty if it has none."""
    match layer:
        case nn.modules.dropout._DropoutNd():
            return "p"
        case nn.MultiheadAttention() | nn.RNNBase():
            return "dropout"
    return RANDOM_LAYERS.get(f"{type(layer).__module__}.{type(layer).__qualname__}", "")
