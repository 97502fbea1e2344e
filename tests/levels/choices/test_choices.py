"""Choices: names, the ladder's variants, the page, and the values in effect in real workers."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

import golow
from golow.levels import ladder
from golow.levels.called.emitted_level import EMITTED
from golow.levels.called.level import CALLED as PLAN_CALLED
from golow.levels.choices import Alternative, Choice, all_choices
from golow.levels.choices.listing import named
from golow.levels.level import Launch, python_worker
from golow.levels.named_level import ChosenLevel, Setting
from golow.levels.starter import Starter
from golow.records.errors import GolowError, Unsupported
from golow.records.workload import Device, Mode
from golow.worker.client import Worker
from golow.workload.bundle import Bundle
from support.places import ROOT, WORKERS
from support.workers.bundles import network_bundle

pytestmark = pytest.mark.slow

EAGER = "golow.levels.torch.eager"
TORCHSCRIPT = "golow.levels.torch.torchscript"

# Set by a call, of different choices: one worker takes all of one row.
CALLED: list[tuple[str, Mode, tuple[str, ...]]] = [
    (EAGER, "infer", ("no_grad", "gradients_not_required", "gc_on", "onednn_off", "threads_one")),
    (EAGER, "infer", ("recorded", "gc_frozen", "flush_denormals", "onednn_bf16", "interop_one")),
    (EAGER, "train", ("zero_gradients", "fused_sgd")),
    (TORCHSCRIPT, "infer", ("script_frozen",)),
    (TORCHSCRIPT, "infer", ("script_traced",)),
]
# Set by the environment.
STARTED = [
    ("malloc_keep", "bind_close", "wait_active", "onednn_cache_off"),
    ("malloc_huge_pages", "bind_spread", "wait_passive"),
    ("torch_huge_pages",),
    ("jemalloc",),
    ("tcmalloc",),
    ("mimalloc",),
    ("openmp_intel",),
]

Bundles = dict[tuple[str, Mode], Bundle]  # by level and mode


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Bundles:
    """Eager's has two threads in inference: such a worker is never forked, so that its garbage
    collector and its environment are those of a new interpreter."""
    folder = tmp_path_factory.mktemp("choices")
    return {
        (EAGER, "infer"): network_bundle(folder / "two", "infer", threads=2),
        (EAGER, "train"): network_bundle(folder / "train", "train", threads=1),
        (TORCHSCRIPT, "infer"): network_bundle(folder / "one", "infer", threads=1),
    }


@pytest.fixture(scope="module")
def usual(forked: None, bundles: Bundles) -> dict[tuple[str, Mode], dict[str, str]]:
    """The values in effect without any alternative."""
    found = {}
    for module, mode in {(module, mode) for module, mode, _ in CALLED}:
        level = module.rpartition(".")[2]
        bundle = bundles[module, mode]
        with Starter().worker(level, Launch(python_worker(module, "")), bundle) as worker:
            worker.load(bundle.folder)
            chosen = ladder.choose(level, mode)
            found[module, mode] = worker.choices(chosen.readable(bundle.workload))
    return found


def in_force(chosen: ChosenLevel, module: str, bundle: Bundle) -> dict[str, str]:
    """The values in a real worker of that level, which has also run."""
    launch = chosen.chosen(Launch(python_worker(module, chosen.variant)))
    with Starter().worker(chosen.name, launch, bundle) as worker:
        worker.load(bundle.folder)
        assert worker.time(2, 1).host_ns
        return worker.choices(chosen.readable(bundle.workload))


def assert_promised(
    names: tuple[str, ...],
    module: str,
    bundle: Bundle,
    usual: dict[tuple[str, Mode], dict[str, str]],
) -> None:
    mode = bundle.workload.mode
    chosen = ladder.choose("+".join((module.rpartition(".")[2], *names)), mode)
    for _, alternative in chosen.settings:
        if not alternative.probe().available:
            pytest.skip(alternative.probe().missing)
    found = in_force(chosen, module, bundle)
    for choice, alternative in chosen.settings:
        assert found[choice] == alternative.value
        assert usual[module, mode][choice] != alternative.value


@pytest.mark.parametrize(("module", "mode", "names"), CALLED)
def test_an_alternative_that_is_called_is_in_force(
    module: str,
    mode: Mode,
    names: tuple[str, ...],
    bundles: Bundles,
    usual: dict[tuple[str, Mode], dict[str, str]],
) -> None:
    assert_promised(names, module, bundles[module, mode], usual)


@pytest.mark.parametrize("names", STARTED)
def test_an_alternative_of_the_environment_is_in_force(
    names: tuple[str, ...],
    bundles: Bundles,
    usual: dict[tuple[str, Mode], dict[str, str]],
) -> None:
    usually = usual[EAGER, "infer"]
    if "malloc_huge_pages" in names and usually["huge_pages"] != "no program requests them":
        pytest.skip("the kernel does not let programs ask for huge pages")
    if "torch_huge_pages" in names and usually["huge_pages"] != "no program requests them":
        pytest.skip("the kernel does not let programs ask for huge pages")
    assert_promised(names, EAGER, bundles[EAGER, "infer"], usual)


def test_an_alternative_without_effect_is_refused(bundles: Bundles) -> None:
    planted = Alternative(name="no_grad", summary="", value="something else")
    chosen = ChosenLevel(ladder.choose("eager", "infer").level, "")
    chosen = chosen._replace(settings=(Setting("gradient_mode", planted),))
    with pytest.raises(Unsupported, match=r"should be 'something else', and it is 'no_grad'"):
        in_force(chosen, EAGER, bundles[EAGER, "infer"])


def test_a_worker_that_does_not_know_choices_is_refused(bundles: Bundles) -> None:
    """A level of the user's own: it loads, and cannot say what is in effect."""
    command = (sys.executable, str(WORKERS / "silent.py"))
    with Worker("mine", command, threads=1, choices={"gc_on": ("garbage_collector", "on")}) as own:
        assert own.choices(["garbage_collector"]) == {}
        with pytest.raises(Unsupported, match="it cannot be read there"):
            own.load(bundles[EAGER, "infer"].folder)


# ---------------------------------------------------------------- names


def test_names_are_parsed() -> None:
    both = ladder.choose("eager:channels_last+fused_sgd", "train")
    assert (both.variant, both.name) == ("channels_last", "eager:channels_last+fused_sgd")
    assert ladder.choose("eager+channels_last", "infer").name == "eager:channels_last"
    assert ladder.choose("compile+freezing", "infer").name == "compile:freezing"


def test_the_order_does_not_matter() -> None:
    names = ("malloc_keep", "fused_sgd", "bind_close")
    found = {
        ladder.choose("+".join(("eager", *order)), "train").name
        for order in itertools.permutations(names)
    }
    assert found == {"eager+bind_close+fused_sgd+malloc_keep"}


@pytest.mark.parametrize(
    ("name", "mode", "message", "hint"),
    [
        ("eager+fused_sdg", "train", "has no choice 'fused_sdg'", "did you mean fused_sgd"),
        ("eager+fused_sgd", "infer", "(infer on cpu)", "golow choices --level eager"),
        ("onnxruntime+no_grad", "infer", "onnxruntime has no choice", ""),
        ("eager+malloc_keep+jemalloc", "infer", "alternatives of one choice, allocator", "use one"),
        ("compile:freezing+max-autotune", "infer", "freezing or max-autotune, not both", ""),
        ("eager+", "infer", "has no choice ''", "golow choices"),
    ],
)
def test_what_cannot_be_chosen_is_refused(name: str, mode: Mode, message: str, hint: str) -> None:
    with pytest.raises(GolowError) as raised:
        ladder.choose(name, mode)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_inference_leaves_out_what_is_for_training() -> None:
    trained = ladder.choose("eager:channels_last+fused_sgd+malloc_keep", "train")
    assert trained.inferring("cpu").name == "eager:channels_last+malloc_keep"


def test_lists_in_the_environment_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=0")
    chosen = ladder.choose("eager+malloc_huge_pages", "infer").chosen(Launch(("x",)))
    assert chosen.environment["GLIBC_TUNABLES"] == "glibc.malloc.check=0:glibc.malloc.hugetlb=1"


def test_every_variant_but_the_reference_is_an_alternative() -> None:
    modes: tuple[Mode, ...] = ("infer", "train")
    devices: tuple[Device, ...] = ("cpu", "cuda")
    offered = {
        f"{level.name}:{alternative.variant}"
        for level in ladder.LADDER
        for choice in all_choices()
        for mode in modes
        for device in devices
        for alternative in choice.offered(level.name, mode, device)
        if alternative.variant
    }
    # A plan that is called, or written as C++, is what the user's program does, not a choice in it.
    variants = {
        f"{level.name}:{name}"
        for level in ladder.LADDER
        for name in level.variants
        if level.ranked != "only"  # they have no choices so far
        if not name.startswith((PLAN_CALLED, EMITTED))
    }
    assert variants - offered == {"tvm:tuned", "tvm:tuned-brief", ladder.REFERENCE}
    assert offered <= variants


def test_each_alternative_has_its_own_name_at_a_level() -> None:
    for level in ladder.LADDER:
        names = [
            a.name
            for c in all_choices()
            for a in c.alternatives
            if level.name in (a.levels or c.levels)
        ]
        assert len(names) == len(set(names)), level.name


# ---------------------------------------------------------------- what users read


def test_the_page_is_current() -> None:
    command = [sys.executable, str(ROOT / "docs" / "generate_choices.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert (ROOT / "docs" / "use" / "choices.md").read_text() == printed, (
        "python docs/generate_choices.py > docs/use/choices.md"
    )


def test_the_table_and_the_page_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    from golow.commands.choices import choices

    choices(None, None, None, None)
    printed = capsys.readouterr().out
    assert all(choice.name in printed for choice in all_choices())
    assert max(map(len, printed.splitlines())) <= 100
    choices("malloc_keep", None, None, None)
    page = capsys.readouterr().out
    assert "MALLOC_TRIM_THRESHOLD_=1073741824" in page and "mallopt(M_TRIM_THRESHOLD" in page


def test_the_api_lists_choices() -> None:
    found: tuple[Choice, ...] = golow.choices(level="eager:channels_last", mode="train")
    names = {choice.name for choice in found}
    assert "optimizer_kernels" in names and "gradient_mode" not in names
    with pytest.raises(GolowError, match="there are no choices for the level 'eagre'"):
        golow.choices(level="eagre")
    with pytest.raises(GolowError, match="there is no choice"):
        named("nothing")
