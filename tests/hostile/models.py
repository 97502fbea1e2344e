"""Hostile models: Python files that misbehave, and exported programs that carry something else."""

from __future__ import annotations

import io
import pickle
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

from hostile.case import CODE_RAN, Case
from hostile.damage import PLACES, damaged_bytes, flipped

HEAD = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)
        {construct}

    def forward(self, x):
        y = self.layer(x)
        {forward}


{rest}
"""

FINE = HEAD.format(construct="pass", forward="return y", rest="")

# At the file's top, in the constructor, or in the forward pass.
ANYWHERE = (
    "raise RuntimeError('no')",
    "raise KeyError",
    "raise SystemExit",
    "raise SystemExit(0)",
    "raise SystemExit('bye')",
    "raise GeneratorExit",
    "raise MemoryError",
    "raise StopIteration",
    "raise RecursionError",
    "raise BaseException('all')",
    "import sys; sys.exit(0)",
    "import sys; sys.exit(7)",
    "import sys; sys.setrecursionlimit(60)",
    "exit()",
    "1 / 0",
    "raise RuntimeError('x' * 1_000_000)",
    "raise RuntimeError('line\\n' * 100_000)",
    "raise RuntimeError('\\x1b[31mred\\x1b[0m \\ud800')",
    "raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})()",
    "f = lambda n: f(n + 1); f(0)",
    "import nowhere_to_be_found",
    "torch.zeros(10**13)",
    "bytearray(10**13)",
    "import sys; sys.stdout.close()",
)

AT_IMPORT = (
    "import os; os.fork()",
    "import os; os.chdir('/')",
    "import sys; sys.path.clear()",
    "__builtins__ = None",
    "Net = None",
    "Net = 7",
    "Net = type",
    "Net = nn.Module",
    "Net = lambda: nn.Module",
    "Net = lambda: None",
    "Net = lambda x: x",
    "del Net",
    "def __getattr__(name): raise RuntimeError(name)",
    "class Net(nn.Module):\n    def forward(self): pass",
    "class Net(nn.Module): pass",
    "class Net(nn.Module):\n    def __init__(self): pass\n    def forward(self, x): return x",
    "class Net(nn.Linear):\n    def __init__(self): super().__init__(8, 4, device='meta')",
    "Net.train = lambda self, mode: 1 / 0",
    "Net.parameters = lambda self: 1 / 0",
    "Net.named_buffers = lambda self: 1 / 0",
    "Net.named_modules = lambda self: 1 / 0",
    "Net.state_dict = lambda self: 1 / 0",
    "Net.__call__ = None",
    "Net.__name__ = '\\x1b[31m'",
)

OUTPUTS = (
    "return None",
    "return 'text'",
    "return 7",
    "return []",
    "return {}",
    "return x.shape",
    "return self",
    "return [[[y]]]",
    "return {'a': y, 'b': (y, [y])}",
    "return {1: y, 'a': y}",
    "return y, None",
    "return torch.complex(y, y)",
    "return y.to_sparse()",
    "return y.to('meta')",
    "return y * float('nan')",
    "return y / 0",
    "return y.bool()",
    "return y.long()",
    "return y.double()",
    "return y.half()",
    "return y.to(torch.float8_e4m3fn)",
    "return y[:0]",
    "return y.sum()",
    "return torch.empty(0)",
    "return y.detach().numpy()",
    "return torch.quantize_per_tensor(y, 0.1, 0, torch.qint8)",
    "return torch.nested.nested_tensor([y[0], y[1]])",
    "return torch.rand_like(y)",
    "return y.expand(10**6, 10**3, *y.shape)",
    "z = y\n        for _ in range(3000): z = [z]\n        return z",
    "z = []\n        z.append(z)\n        return z",
    "return y if y.sum() > 0 else -y",
    "x.add_(1)\n        return y",
    "self.layer = nn.Linear(8, 4)\n        return y",
    "self.count = getattr(self, 'count', 0) + 1\n        return y * self.count",
    "return nn.Parameter(y)",
    "return y.requires_grad_()",
    "return (y for _ in range(2))",
)

FILES = (
    b"",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf" + FINE.encode(),
    b"# coding: nowhere\n" + FINE.encode(),
    b"# coding: utf-16\n" + FINE.encode(),
    FINE.encode("utf-16"),
    b"(" * 10_000,
    b"x = " + b"-" * 100_000 + b"1",
    b"x = " + b"1" * 100_000,
    b"x = '" + b"\\N{" * 100 + b"'",
    b"if True:\n" + b"  if True:\n" * 200,
    b"from mynet import Net",
    b"import mynet; mynet.Net",
    b"from torch.nn import *\nNet = Linear",
    b"return 7",
    b"\x1b[31m",
    b"def f(\x1b[31m): pass",
    b"raise SyntaxError('\x1b[31m')",
)

ATTRIBUTES = ("Net", "Net", "", "No", "Net.x", "__doc__", "__builtins__", "\x1b[31mNet", "a" * 9999)
INPUTS = ("8", "8", "8", "3x8", "1", "1x1x1x1x1x1", "0", "8x-1", "", "x", "8x8x8x8", "9" * 30)


def model_file(random: Random, folder: Path) -> Case:
    """A file that golow is told to find a model in."""
    file = folder / "mynet.py"
    title, data = _model_file(random)
    powerless = False
    file.write_bytes(data)
    attribute = random.choice(ATTRIBUTES) if random.random() < 0.2 else "Net"
    shape = random.choice(INPUTS) if random.random() < 0.2 else "8"
    if random.random() < 0.1:
        place = random.choice(PLACES[:-2])
        place(file)
        title, powerless = place.__name__, "permission" in place.__name__
    mode = random.choice(("infer", "infer", "train"))
    command = random.choice(("lower", "lower", "lower", "emit --out project"))
    return Case(
        title=f"model file: {title}",
        folder=str(folder),
        arguments=(
            *command.split(),
            f"./mynet.py:{attribute}",
            *("--mode", mode, "--input", shape, "--batch", "2"),
        ),
        statuses=(0, 2),
        without_power=powerless,
    )


def _model_file(random: Random) -> tuple[str, bytes]:
    kind = random.choice(("anywhere", "import", "output", "output", "bytes"))
    if kind == "bytes":
        if random.random() < 0.3:
            return damaged_bytes(FINE.encode(), random)
        data = random.choice(FILES)
        return repr(data[:60]), data
    parts = {"construct": "pass", "forward": "return y", "rest": ""}
    if kind == "anywhere":
        place, code = random.choice(list(parts)), random.choice(ANYWHERE)
        parts[place] = code if place != "forward" else f"{code}\n        return y"
    elif kind == "import":
        place, code = "rest", random.choice(AT_IMPORT)
        parts[place] = code
    else:
        place, code = "forward", random.choice(OUTPUTS)
        parts[place] = code
    return f"{place}: {code}", HEAD.format(**parts).encode()


# ---------------------------------------------------------------- exported programs


class Evil:
    """Pickled, it is a call that writes a file where golow runs."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return open, (CODE_RAN, "w")


def program(random: Random, folder: Path) -> Case:
    """A ``.pt2`` file."""
    file = folder / "mine.pt2"
    change = random.choice(PROGRAMS)
    file.write_bytes(change(exported(), random))
    return Case(
        title=f"program: {change.__name__}",
        folder=str(folder),
        arguments=("lower", "mine.pt2", "--input", "8", "--batch", "2"),
        statuses=(0, 2) if change in HARMLESS else (2,),
    )


@cache
def exported() -> bytes:
    """A program as `torch.export.save` writes it."""
    import torch
    from torch import nn

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.pt2"
        torch.export.save(torch.export.export(nn.Linear(8, 4).eval(), (torch.ones(2, 8),)), file)
        return file.read_bytes()


def evil_sample_inputs(whole: bytes, _: Random) -> bytes:
    """torch unpickles these, and where it may not, tries again without restrictions."""
    return _with(whole, "data/sample_inputs/model.pt", _evil_tensors())


def evil_bare_pickle(whole: bytes, _: Random) -> bytes:
    return _with(whole, "data/sample_inputs/model.pt", pickle.dumps(Evil()))


def evil_weight(whole: bytes, _: Random) -> bytes:
    """The archive says that a weight is a pickle."""
    changed = _with(whole, "data/weights/weight_0", _evil_tensors())
    config = _member(changed, "data/weights/model_weights_config.json")
    allowed = config.replace(b'"use_pickle": false', b'"use_pickle": true')
    return _with(changed, "data/weights/model_weights_config.json", allowed)


def evil_constant(whole: bytes, random: Random) -> bytes:
    """An object of a class that only Python's own pickle reads."""
    name = random.choice(("opaque_obj_0", "OPAQUE_OBJ_0"))
    added = _with(whole, f"data/constants/{name}", pickle.dumps(Evil()))
    config = b'{"config": {"c": {"path_name": "opaque_obj_0", "is_param": false, "use_pickle": '
    config += b'true, "tensor_meta": null}}}'
    return _with(added, "data/constants/model_constants_config.json", config)


def compiled_library(whole: bytes, _: Random) -> bytes:
    """A library that would be loaded, and machine code run."""
    return _with(whole, "data/aotinductor/model/evil.so", b"\x7fELF")


def evil_older_format(_: bytes, random: Random) -> bytes:
    """The layout of torch 2.7, which is read where the newer one fails."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("version", "8.0")
        archive.writestr("serialized_exported_program.json", b"{}")
        for name in ("state_dict", "constants", "example_inputs"):
            archive.writestr(f"serialized_{name}.pt", _evil_tensors())
    return data.getvalue()


def evil_module(_: bytes, __: Random) -> bytes:
    """A pickled module under another name."""
    return _evil_tensors()


def other_json(whole: bytes, random: Random) -> bytes:
    """The graph is damaged."""
    _, data = damaged_bytes(_member(whole, "models/model.json"), random)
    return _with(whole, "models/model.json", data)


def huge_weight(whole: bytes, _: Random) -> bytes:
    """A weight that claims more elements than its file has."""
    name = "data/weights/model_weights_config.json"
    return _with(whole, name, _member(whole, name).replace(b'"as_int": 8', b'"as_int": 800000000'))


def any_bytes(whole: bytes, random: Random) -> bytes:
    return damaged_bytes(whole, random)[1]


def flipped_bits(whole: bytes, random: Random) -> bytes:
    return flipped(whole, random)


def bomb(_: bytes, __: Random) -> bytes:
    """An entry that is small and unpacks to 256 MiB."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("version", "8.0")
        with archive.open("serialized_exported_program.json", "w", force_zip64=True) as stream:
            for _number in range(64):
                stream.write(bytes(1 << 22))
    return data.getvalue()


HARMLESS = (other_json, any_bytes, flipped_bits, huge_weight)
PROGRAMS: tuple[Callable[[bytes, Random], bytes], ...] = (
    evil_sample_inputs,
    evil_bare_pickle,
    evil_weight,
    evil_constant,
    compiled_library,
    evil_older_format,
    evil_module,
    bomb,
    *HARMLESS,
)


@cache
def _evil_tensors() -> bytes:
    import torch

    data = io.BytesIO()
    torch.save(Evil(), data)
    return data.getvalue()


def _member(archive: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(archive)) as found:
        return found.read(next(full for full in found.namelist() if full.endswith(name)))


def _with(archive: bytes, name: str, data: bytes) -> bytes:
    """The archive with that entry, as torch stores entries: without compression."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(made, "w") as new:
        top = old.namelist()[0].partition("/")[0]
        for entry in old.namelist():
            if entry != f"{top}/{name}":
                new.writestr(entry, old.read(entry))
        new.writestr(f"{top}/{name}", data)
    return made.getvalue()
