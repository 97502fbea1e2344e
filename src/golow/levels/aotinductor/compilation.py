"""Compiles a module to a package, inside the exporting process of `golow.levels.peers`.

What `torch._inductor.aoti_compile_and_package` writes is a zip file that PyTorch's loader unpacks
into /tmp at each start, from where nothing removes it if the process is killed. Here it is unpacked
once, into golow's cache, and the worker loads the library from there.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import msgspec
import torch
from torch import Tensor, nn

from golow.levels.peers.captured_module import captured
from golow.levels.torch.device import arithmetic
from golow.levels.torch.loop_defaults import Habits
from golow.levels.torch.placing import place
from golow.records.errors import GolowError, Unsupported
from golow.records.workload import Workload

DESCRIPTION = "package.json"


def export(module: nn.Module, inputs: tuple[Tensor, ...], workload: Workload, folder: Path) -> None:
    """Write the library, the GPU's kernels and a description for the worker into the folder.

    Raises `Unsupported` if `torch.export` cannot capture the module.
    """
    # A separate cache makes every build a cold one, as the build of `compile` is.
    scratch = folder / "inductor"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(scratch)
    dtype = arithmetic(workload, torch.float32, Habits()).storage
    device = torch.device(workload.device)
    place(module, device, dtype)
    given = tuple(_placed(tensor, device, dtype) for tensor in inputs)
    updated = _updated(module, given)
    program = captured("aotinductor", module, given)
    _require_updates(program, updated)
    package = folder / "model.pt2"
    torch._inductor.aoti_compile_and_package(
        program,
        package_path=str(package),
        inductor_configs={
            "compile_threads": workload.threads,
            # Compiling the headers first pays off only for programs that compile many packages.
            "aot_inductor.precompile_headers": False,
        },
    )
    library = _unpack(package, folder)
    package.unlink()
    shutil.rmtree(scratch)
    description = {
        "digest": workload.digest,
        "torch": torch.__version__.partition("+")[0],
        "library": library.name,
        "bytes": library.stat().st_size,
        "updated": updated,
    }
    (folder / DESCRIPTION).write_bytes(msgspec.json.encode(description))


def _placed(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)


def _updated(module: nn.Module, inputs: tuple[Tensor, ...]) -> list[str]:
    """The buffers that a pass changes, in place or by another tensor; they keep their values."""
    before = {name: (b, b.clone(), b._version) for name, b in module.named_buffers()}
    module(*inputs)
    after = dict(module.named_buffers())
    found = [
        n for n, (b, _, version) in before.items() if after[n] is not b or b._version != version
    ]
    for name in found:
        layer, _, attribute = name.rpartition(".")
        buffer, value, _ = before[name]
        setattr(module.get_submodule(layer), attribute, buffer.copy_(value))
    return found


def _require_updates(program: torch.export.ExportedProgram, updated: list[str]) -> None:
    """Refuse a program that lost an update: torch.export forgets tensors that a layer below the
    module itself assigns to its buffers (seen with PyTorch 2.13)."""
    if not updated:
        return
    kept = program.run_decompositions({}).graph_signature.buffers_to_mutate.values()
    for name in sorted({*updated} - {*kept}):
        buffer = name.removeprefix("module.")  # of FlatOutputs
        hint = f"write {buffer.rpartition('.')[2]}.copy_(...) instead of assigning it"
        reason = f"torch.export loses the new value of the buffer {buffer}; {hint}"
        raise Unsupported("aotinductor", reason)


def _unpack(package: Path, folder: Path) -> Path:
    """Put the package's files into the folder, without its sources; returns the library."""
    with zipfile.ZipFile(package) as archive:
        for name in archive.namelist():
            if "/data/aotinductor/model/" in name and not name.endswith((".cpp", "/")):
                target = folder / Path(name).name
                with archive.open(name) as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
    libraries = list(folder.glob("*.so"))
    if len(libraries) != 1:
        raise GolowError(f"Inductor's package holds {len(libraries)} libraries instead of one")
    return libraries[0]
