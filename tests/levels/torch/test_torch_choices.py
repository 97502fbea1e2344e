"""PyTorch's flags for a GPU, and the environment of its driver: they are set and read in real
workers, as far as a build for CPUs has them. test_choices_gpu.py does it all on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from golow.levels.choices import find
from golow.levels.choices.choice import Alternative, Choice
from golow.levels.ladder import choose
from golow.levels.level import python_worker
from golow.levels.libtorch.build import build
from golow.records.errors import Unsupported
from golow.records.record import encode
from golow.worker.client import Worker
from golow.workload.bundle import Bundle
from support.one_run import program_cache
from support.workers.bundles import network_bundle
from support.workers.protocol_driver import RawWorker
from support.workers.torch_choices import CHOICES, FLAGS, VARIABLES

pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return network_bundle(tmp_path_factory.mktemp("bundle") / "infer", "infer")


@pytest.fixture(scope="module")
def in_python() -> Iterator[RawWorker]:
    with RawWorker(python_worker("golow.levels.torch.eager", "")) as worker:
        yield worker


@pytest.fixture(scope="module")
def in_cpp(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawWorker]:
    assert bundle.graph is not None
    cache = program_cache(tmp_path_factory.getbasetemp())
    with RawWorker([build(bundle.graph, cache).program]) as worker:
        yield worker


def in_force(worker: RawWorker, bundle: Bundle, choice: str, *names: str) -> str:
    """The value of a choice after a load with these alternatives."""
    loaded = worker.request(do="load", bundle=str(bundle.folder), choices=names)
    assert loaded["ok"], loaded
    found: dict[str, Any] = worker.request(do="choices", names=[choice])["choices"]
    return str(found[choice])


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("level", ["eager", "libtorch"])
def test_every_flag_takes_the_promised_value(
    level: str, name: str, bundle: Bundle, request: pytest.FixtureRequest
) -> None:
    choice = CHOICES[name]
    if level not in choice.levels:
        pytest.skip(f"{level} runs the calls of the captured graph")
    worker = request.getfixturevalue("in_cpp" if level == "libtorch" else "in_python")
    default = in_force(worker, bundle, name)
    alternatives = [one for one in choice.alternatives if level in (one.levels or choice.levels)]
    values = [one.value for one in alternatives]
    assert values and values != [default]
    for alternative in alternatives:
        assert in_force(worker, bundle, name, alternative.name) == alternative.value


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIABLES)
def test_every_variable_reaches_its_worker(name: str, bundle: Bundle) -> None:
    choice = CHOICES[name]
    for alternative in choice.alternatives:
        with Worker(
            alternative.name,
            python_worker("golow.levels.torch.eager", ""),
            threads=1,
            environment=alternative.environment,
            choices={alternative.name: (name, alternative.value)},
        ) as worker:
            worker.load(bundle.folder)  # which requires the value


@pytest.mark.slow
def test_a_variable_that_does_not_arrive_is_refused(bundle: Bundle) -> None:
    """Planted: the alternative is asked for, and the worker has nothing of it."""
    with (
        Worker(
            "eager",
            python_worker("golow.levels.torch.eager", ""),
            threads=1,
            environment={"CUDA_DEVICE_MAX_CONNECTIONS": "8"},
            choices={"cuda_connections_1": ("cuda_connections", "1")},
        ) as worker,
        pytest.raises(Unsupported, match="cuda_connections should be '1', and it is '8'"),
    ):
        worker.load(bundle.folder)


def test_a_flag_that_does_nothing_is_refused(bundle: Bundle) -> None:
    """Planted: the name of one alternative with the value of another."""
    with (
        Worker(
            "eager",
            python_worker("golow.levels.torch.eager", ""),
            threads=1,
            choices={"no_cudnn": ("cudnn_benchmark", "on, all algorithms")},
        ) as worker,
        pytest.raises(Unsupported, match="no_cudnn is not in effect"),
    ):
        worker.load(bundle.folder)


def test_a_choice_of_tf32_wins_over_the_precision(
    in_python: RawWorker, bundle: Bundle, tmp_path: Path
) -> None:
    """golow sets the flags from the workload's precision, the alternative after that; without one
    the precision rules again."""
    described = msgspec.structs.replace(bundle.workload, precision="ieee")
    for file in bundle.folder.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "workload.json").write_bytes(encode(described))
    precise = Bundle(tmp_path)
    for name in ("tf32_products", "tf32_convolutions"):
        assert in_force(in_python, precise, name) == "float32"
        assert in_force(in_python, precise, name, name) == "TF32"


def test_without_autocast_its_cache_is_no_choice(in_python: RawWorker, bundle: Bundle) -> None:
    found = in_force(in_python, bundle, "autocast_cache", "no_autocast_cache")
    assert found == "there is no autocast"


@pytest.mark.slow
def test_autocast_casts_again_when_it_is_told_to(tmp_path: Path) -> None:
    bundle = network_bundle(tmp_path / "bundle", "train")
    described = msgspec.structs.replace(bundle.workload, precision="bf16")
    bundle.file("workload.json").write_bytes(encode(described))
    choices = {"no_autocast_cache": ("autocast_cache", "casts are repeated")}
    command = python_worker("golow.levels.torch.eager", "")
    with Worker("eager", command, threads=1, choices=choices) as worker:
        worker.load(bundle.folder)
    with Worker("eager", command, threads=1) as worker:
        worker.load(bundle.folder)
        assert worker.choices(["autocast_cache"]) == {"autocast_cache": "casts are kept"}


def test_both_workers_know_every_name(bundle: Bundle, in_cpp: RawWorker) -> None:
    """LibTorch's worker has its own tables: no alternative and no reader is missing in them."""
    of_libtorch = [choice for choice in CHOICES.values() if "libtorch" in choice.levels]
    source = (Path(build.__code__.co_filename).parent / "sources" / "gpu_choices.h").read_text()
    readers, setters = source.split("gpu_setters()", 1)
    for choice in of_libtorch:
        for alternative in choice.offered("libtorch", "infer", "cuda"):
            assert f'{{"{alternative.name}", ' in setters, alternative.name
        if choice.alternatives:
            assert f'{{"{choice.name}",' in readers, choice.name


def test_only_the_level_that_builds_differently_builds_again(
    bundle: Bundle, tmp_path: Path
) -> None:
    """Inductor's code depends on TF32; LibTorch's program does not, and takes a minute."""
    plain = choose("compile", "infer", "cuda").prepare(bundle, tmp_path)
    own = choose("compile+tf32_products", "infer", "cuda").prepare(bundle, tmp_path)
    assert plain.built_by_loading is not None and own.built_by_loading is not None
    assert tmp_path / "choices" in own.built_by_loading.parents
    assert tmp_path / "choices" not in plain.built_by_loading.parents
    [found] = find("tf32_products")
    assert not found.alternative.rebuilt_by("libtorch")


@pytest.mark.parametrize("choice", CHOICES.values(), ids=lambda choice: choice.name)
def test_an_alternative_can_be_found_and_pasted(choice: Choice) -> None:
    for alternative in choice.alternatives:
        assert any(found.alternative is alternative for found in find(alternative.name))
        assert is_set(alternative), "nothing would set it"
        by_golow = choice.name == "cuda_stack" and alternative.levels == ("cudnn",)
        assert by_golow or alternative.shell or alternative.python
        for name, value in alternative.environment.items():
            assert alternative.shell == f"{name}={value}"


def is_set(alternative: Alternative) -> bool:
    return bool(alternative.environment or alternative.variant or alternative.call)
