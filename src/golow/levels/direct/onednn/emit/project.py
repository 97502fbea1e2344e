"""The plans of a network as a CMake project that needs neither golow nor Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from golow.levels.direct.onednn.bindings.library import version
from golow.levels.direct.onednn.emit.constants import Constants
from golow.levels.direct.onednn.emit.kernels import KERNEL_FLAGS, Kernels
from golow.levels.direct.onednn.emit.network import FORMAT, End, Network, identifier
from golow.levels.direct.onednn.emit.plan_source import Keys, plan_source, require_emitted
from golow.levels.direct.onednn.emit.spelling import listed, text
from golow.storage.project_folder import MARKER, take_folder

SOURCES = Path(__file__).parent / "sources"
SUPPORT = (
    "failure.h",
    "network.cpp",
    "network.h",
    "plan.cpp",
    "plan.h",
    "tensor_file.cpp",
    "tensor_file.h",
    "weight_arithmetic.cpp",
    "weight_arithmetic.h",
)


def write_project(network: Network, folder: Path) -> list[Path]:
    """Write the project and return its files. Raises `GolowError`, before anything is written, for
    a plan with a step that has no form in C++, and for a folder that holds something else."""
    texts, constants = _texts(network)
    take_folder(folder)
    for pattern in ("plan_*.cpp", "kernels_*.cpp"):  # of an earlier project
        for file in folder.glob(pattern):
            file.unlink()
    (folder / "support").mkdir(exist_ok=True)
    for name, content in texts.items():
        (folder / name).write_text(content, encoding="utf-8")
    tensors: dict[str, Mapping[str, np.ndarray]] = {
        "weights.safetensors": network.weights,
        "constants.safetensors": constants,
        "example.safetensors": network.example,
        "expected.safetensors": network.expected,
    }
    for name, arrays in tensors.items():
        save_file(dict(arrays), folder / name)
    return [folder / name for name in (*texts, *tensors)]


def project_texts(network: Network) -> dict[str, str]:
    """The texts of the project by their files. Raises `GolowError` as `write_project`."""
    return _texts(network)[0]


def _texts(network: Network) -> tuple[dict[str, str], Mapping[str, np.ndarray]]:
    """The texts of the project by their files, and its constants."""
    for sized in network.plans.values():
        require_emitted(network.title, sized)
    kernels = Kernels(code for sized in network.plans.values() for code in sized.plan.built.codes)
    constants, keys = Constants(), Keys()
    plans = {
        f"plan_{batch}.cpp": plan_source(
            network.shown, batch, sized, len(network.outputs), (kernels, constants, keys)
        )
        for batch, sized in network.plans.items()
    }
    generated = kernels.files()
    words = _words(network, sorted(plans), [n for n in generated if n.endswith(".cpp")])
    words["@files@"] = "\n".join(f"| `{name}` | {what} |" for name, what in _files(network, plans))
    filled = {
        "README.md": "README.md.in",
        f"{network.name}.h": "network.h.in",
        "CMakeLists.txt": "CMakeLists.txt.in",
        "main.cpp": "main.cpp.in",
        "network.cpp": "network.cpp.in",
    }
    texts = {name: _filled(_source(template), words) for name, template in filled.items()}
    texts |= plans
    texts |= {"kernels.h" if n == "kernels.h" else n: content for n, content in generated.items()}
    texts["constants.cpp"] = _source("constants.cpp")
    texts |= {f"support/{name}": _source(name) for name in SUPPORT}
    return texts, constants.arrays


def _words(network: Network, plans: list[str], kernels: list[str]) -> dict[str, str]:
    """What takes the place of the words in templates."""
    batches = list(network.plans)
    about = ", ".join(f"{end.name} {_shape(end.shape)} {end.dtype}" for end in network.inputs)
    read = {
        target: None
        for sized in network.plans.values()
        for kind, target in sized.plan.built.inputs
        if kind in ("parameter", "buffer")
    }
    weights = [_weight(network, name) for name in read]
    arena = max(sized.plan.plan.sizes["arena"] for sized in network.plans.values())
    return {
        "@marker@": MARKER,
        "@name@": network.name,
        "@NAME@": network.name.upper(),
        "@title@": network.shown,
        "@about@": about,
        "@about_sentence@": f"Inference for {about}.",
        "@threads@": str(network.threads),
        "@threads_note@": "",
        "@pads@": "true" if network.pads else "false",
        "@batches@": _batches(network),
        "@plans@": "\n".join(f"void plan_{batch}(Plan& plan);" for batch in batches),
        "@plan_list@": ", ".join(f"{{{batch}, plan_{batch}}}" for batch in batches),
        "@weights@": "\n".join(map(_form, weights)),
        "@inputs@": "\n".join(map(_form, network.inputs)),
        "@outputs@": "\n".join(map(_form, network.outputs)),
        "@ends@": "\n".join(_rows(network)),
        "@plan_files@": " ".join(plans),
        "@kernel_files@": " ".join(kernels),
        "@kernel_flags@": ";".join(KERNEL_FLAGS),
        "@onednn@": version(),
        "@indent@": " " * (len(network.name.upper()) + len(network.name) + 12),
        "@example_inputs@": ", ".join(identifier(end.name) for end in network.inputs),
        "@example_outputs@": ", ".join(end.name for end in network.outputs),
        "@largest@": str(batches[-1]),
        "@arena@": f"{arena / 2**20:.1f} MiB",
    }


def _batches(network: Network) -> str:
    batches = list(network.plans)
    if not network.pads:
        return f"It runs a batch of {batches[-1]} and no other."
    sizes = ", ".join(map(str, batches))
    return (
        f"Any batch from 1 to {batches[-1]}: there is a plan for {sizes}, and a batch between them "
        "runs in the next larger one, padded."
    )


def _rows(network: Network) -> Iterator[str]:
    for ends in (network.inputs, network.outputs):
        for end in ends:
            yield f"| `{end.name}` | {end.dtype} | {_shape(end.shape)} |"


def _shape(shape: tuple[int, ...]) -> str:
    def side(number: int) -> str:
        if number >= 0:
            return str(number)
        return "N" if number == -1 else f"{-number}N"

    return "x".join(map(side, shape)) or "one number"


def _files(network: Network, plans: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield f"{network.name}.h", "the interface, in C"
    yield "network.cpp", "its functions, and the names and shapes of inputs, outputs and weights"
    for name in plans:
        yield name, "where each value lies, and every step with the layer that it came from"
    yield "kernels.cpp", "generated kernels, for what oneDNN has no primitive for"
    yield "support/", "memory, layouts, primitives, contexts and files; the same for every network"
    yield "main.cpp", "the program"
    yield "weights.safetensors", "the state dict, under its own names"
    yield "constants.safetensors", "what is no weight; it becomes a part of the library"
    yield "example.safetensors, expected.safetensors", "inputs, and what golow's plan makes of them"


def _weight(network: Network, name: str) -> End:
    array = network.weights[name]
    return End(name, FORMAT[str(array.dtype)], array.shape, network.tied.get(name, ()))


def _form(end: End) -> str:
    fields = [text(end.name), text(end.dtype), listed(end.shape)]
    fields += [listed(map(text, end.also))] if end.also else []
    return f"        {listed(fields)},"


def _source(name: str) -> str:
    return (SOURCES / name).read_text(encoding="utf-8")


def _filled(template: str, words: Mapping[str, str]) -> str:
    for word, content in words.items():
        template = template.replace(word, content)
    return template
