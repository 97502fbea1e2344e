"""The files of a project that are the same whatever library it calls, and the words in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save_file

from golow.levels.direct.emit.network import FORMAT, End, Network, identifier
from golow.levels.direct.emit.spelling import listed, single, text
from golow.levels.direct.emit.training import Held, TrainingNetwork
from golow.storage.project_folder import MARKER, project_folder

SOURCES = Path(__file__).parent / "sources"
SUPPORT = (
    "failure.h",
    "forms.cpp",
    "forms.h",
    "status.h",
    "tensor_file.cpp",
    "tensor_file.h",
    "weight_arithmetic.cpp",
    "weight_arithmetic.h",
)
PLAN, EVALUATION = "plan", "evaluation"  # prefixes of the functions and files of plans
TENSORS = ("example.safetensors", "expected.safetensors", "weights.safetensors")


def write_files(
    network: Network[Any] | TrainingNetwork[Any],
    folder: Path,
    texts: Mapping[str, str],
    tensors: Mapping[str, Mapping[str, np.ndarray]],
    stale: Sequence[str],
) -> list[Path]:
    """Write texts, files of tensors and those of the network; return the files. stale: patterns of
    what an earlier project left. Raises `GolowError` for a folder that holds something else."""
    with project_folder(folder):
        for pattern in stale:
            for file in folder.glob(pattern):
                file.unlink()
        # README.md first: by it, a project that was left unfinished may be written again.
        for name in sorted(texts, key="README.md".__ne__):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(texts[name], encoding="utf-8")
        own = {
            "weights.safetensors": network.weights,
            "example.safetensors": network.example,
            "expected.safetensors": network.expected,
        }
        for name, arrays in (*tensors.items(), *own.items()):
            save_file(dict(arrays), folder / name)
    return [folder / name for name in (*texts, *tensors, *own)]


def shared_texts(network: Network[Any], words: Mapping[str, str]) -> dict[str, str]:
    """The texts of every project, by their files. words: in its templates."""
    filled_in = {"network.h": "network.h.in", "network.cpp": "network.cpp.in"}
    return _texts(network.name, filled_in | {"main.cpp": "main.cpp.in"}, words)


def training_texts(network: TrainingNetwork[Any], words: Mapping[str, str]) -> dict[str, str]:
    """Texts of every project that trains."""
    filled_in = {"network.h": "training.h.in", "network.cpp": "training.cpp.in"}
    return _texts(network.name, filled_in | {"main.cpp": "train.cpp.in"}, words)


def _texts(name: str, filled_in: dict[str, str], words: Mapping[str, str]) -> dict[str, str]:
    filled_in = {f"{name}.h": filled_in.pop("network.h"), **filled_in}
    texts = {name: filled(SOURCES / source, words) for name, source in filled_in.items()}
    return texts | supporting(SOURCES, SUPPORT)


def supporting(sources: Path, names: Sequence[str]) -> dict[str, str]:
    """The sources of a level that are the same for every network, by their files."""
    return {f"support/{name}": (sources / name).read_text(encoding="utf-8") for name in names}


def filled(template: Path, words: Mapping[str, str]) -> str:
    """A template with its words in place."""
    content = template.read_text(encoding="utf-8")
    for word, instead in words.items():
        content = content.replace(word, instead)
    return content


def shared_words(
    network: Network[Any], plans: Sequence[str], read: Iterable[str], arena: int
) -> dict[str, str]:
    """The words of every project. plans: sources. read: the weights that plans read. arena: bytes
    of an iteration."""
    batches = list(network.plans)
    about = ", ".join(f"{end.name} {_shape(end.shape)} {end.dtype}" for end in network.inputs)
    return _words(network, plans) | {
        "@made@": "outputs.safetensors",
        "@about@": about,
        "@about_sentence@": f"Inference for {about}.",
        **_inference_words(network, read),
        "@batches@": _batches(network),
        "@inputs@": "\n".join(map(_form, network.inputs)),
        "@ends@": "\n".join(_rows(network.inputs, network.outputs)),
        "@example_inputs@": ", ".join(identifier(end.name) for end in network.inputs),
        "@example_outputs@": ", ".join(end.name for end in network.outputs),
        "@largest@": str(batches[-1]),
        "@arena@": f"{arena / 2**20:.1f} MiB",
    }


def training_words(
    network: TrainingNetwork[Any], plans: Sequence[str], read: Iterable[str], memory: int
) -> dict[str, str]:
    """Words of every project that trains. plans: sources, of steps and of evaluation. read: the
    weights that evaluation reads. memory: bytes of state and step."""
    about = ", ".join(f"{end.name} {_shape(end.shape)} {end.dtype}" for end in network.inputs)
    sizes, evaluation = list(network.plans), network.evaluation
    batches = list(evaluation.plans)
    return _words(network, plans) | {
        "@made@": "trained.safetensors\n"
        '  --evaluate "${CMAKE_CURRENT_SOURCE_DIR}/example.safetensors" outputs.safetensors',
        "@evaluations@": declarations(EVALUATION, batches),
        "@evaluation_list@": plan_list(EVALUATION, batches),
        "@evaluation_inputs@": "\n".join(map(_form, evaluation.inputs)),
        "@evaluation_batches@": _batches(evaluation),
        "@example_outputs@": ", ".join(end.name for end in evaluation.outputs),
        **_inference_words(evaluation, read),
        "@about@": about,
        "@about_sentence@": f"A training step for {about}, by {network.optimizer}.",
        "@optimizer@": network.optimizer,
        "@batches@": f"There is a plan for a batch of {' and of '.join(map(str, sizes))}, and for "
        "no other.",
        "@state@": "\n".join(map(_held, network.state)),
        "@beside@": "\n".join(map(_form, network.beside)),
        "@inputs@": "\n".join(map(_form, network.inputs)),
        "@targets@": "\n".join(map(_form, network.targets)),
        "@ends@": "\n".join(_rows(network.inputs, network.targets)),
        "@output_ends@": "\n".join(_rows(evaluation.outputs)),
        "@example_inputs@": ", ".join(identifier(end.name) for end in network.inputs),
        "@example_targets@": ", ".join(identifier(end.name) for end in network.targets),
        "@largest@": str(sizes[-1]),
        "@rate@": f"{network.rate:g}",
        "@rate_literal@": single(network.rate),
        "@memory_bytes@": f"{memory / 2**20:.1f} MiB",
    }


def _inference_words(network: Network[Any], read: Iterable[str]) -> dict[str, str]:
    return {
        "@pads@": "true" if network.pads else "false",
        "@weights@": "\n".join(_form(_weight(network, name)) for name in read),
        "@outputs@": "\n".join(map(_form, network.outputs)),
        "@changed@": ", ".join(map(str, network.changed)),
        "@changes@": _changes(network),
    }


def _words(network: Network[Any] | TrainingNetwork[Any], plans: Sequence[str]) -> dict[str, str]:
    batches = list(network.plans)
    return {
        "@marker@": MARKER,
        "@name@": network.name,
        "@NAME@": network.name.upper(),
        "@title@": network.shown,
        "@plans@": declarations(PLAN, batches),
        "@plan_list@": plan_list(PLAN, batches),
        "@plan_files@": " ".join(plans),
        "@indent@": " " * (len(network.name.upper()) + len(network.name) + 12),
    }


def declarations(prefix: str, batches: Iterable[int]) -> str:
    """The functions of plans, for C++. prefix: of their names."""
    return "\n".join(f"void {prefix}_{batch}(Plan& plan);" for batch in batches)


def plan_list(prefix: str, batches: Iterable[int]) -> str:
    """Batches and the functions of their plans, for C++."""
    return ", ".join(f"{{{batch}, {prefix}_{batch}}}" for batch in batches)


class OwnFiles(NamedTuple):
    """Files that only one level's projects have. generated: its sources besides plans, and further:
    others, each with its content in words. support and constants: what these hold besides what
    every project has there."""

    generated: tuple[tuple[str, str], ...]
    support: str
    constants: str = ""
    further: tuple[tuple[str, str], ...] = ()


def files_table(
    network: Network[Any] | TrainingNetwork[Any], plans: Sequence[str], own: OwnFiles
) -> str:
    """The project's files and what they are, as rows of a table."""
    return "\n".join(f"| `{name}` | {what} |" for name, what in _files(network, plans, own))


def _files(
    network: Network[Any] | TrainingNetwork[Any], plans: Sequence[str], own: OwnFiles
) -> Iterator[tuple[str, str]]:
    trains = isinstance(network, TrainingNetwork)
    ends = "inputs, targets and state" if trains else "inputs, outputs and weights"
    yield f"{network.name}.h", "the interface, in C"
    yield "network.cpp", f"its functions, and the names and shapes of {ends}"
    for plan in plans:
        yield plan, "the place of each value, and every step with its layer"
    yield from own.generated
    kept = "state" if trains else "contexts"
    yield "support/", f"{own.support}, {kept} and files; the same for every network"
    yield "main.cpp", "the program"
    yield from own.further
    begins = " that the training begins with" if trains else ""
    yield "weights.safetensors", f"the state dict{begins}"
    constants = f"constants that are not weights{own.constants}; compiled into the library"
    yield "constants.safetensors", constants
    trained = (
        "batches; the losses and the state that golow's plans make of them, and the outputs then"
    )
    given = "inputs, and the outputs of golow's plan"
    yield "example.safetensors, expected.safetensors", trained if trains else given


def _batches(network: Network[Any]) -> str:
    batches = list(network.plans)
    if not network.pads:
        return f"It runs a batch of {batches[-1]} and no other."
    sizes = ", ".join(map(str, batches))
    return (
        f"Any batch from 1 to {batches[-1]}: there is a plan for {sizes}, and a batch between them "
        "runs in the next larger one, padded."
    )


def _changes(network: Network[Any]) -> str:
    if not network.changed:
        return ""
    names = ", ".join(network.inputs[place].name for place in network.changed)
    return f" The network changes inputs in place: {names}."


def _rows(*both: Sequence[End]) -> Iterator[str]:
    for ends in both:
        for end in ends:
            yield f"| `{end.name}` | {end.dtype} | {_shape(end.shape)} |"


def _shape(shape: tuple[int, ...]) -> str:
    def side(number: int) -> str:
        if number >= 0:
            return str(number)
        return "N" if number == -1 else f"{-number}N"

    return "x".join(map(side, shape)) or "one number"


def _weight(network: Network[Any], name: str) -> End:
    array = network.weights[name]
    return End(name, FORMAT[str(array.dtype)], array.shape, network.tied.get(name, ()))


def _form(end: End) -> str:
    return f"        {_fields(end)},"


def _held(held: Held) -> str:
    return f"        {listed((text(held.kind), _fields(held.end), held.place))},"


def _fields(end: End) -> str:
    found = [text(end.name), text(end.dtype), listed(end.shape)]
    return listed([*found, *([listed(map(text, end.also))] if end.also else [])])
