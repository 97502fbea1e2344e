"""What to do about it: each rule with the facts that it needs, and with the nearest that it must
not take for them."""

from __future__ import annotations

import io
import shlex

import msgspec
import pytest
from rich.console import Console

from golow.programs.profiling import advice
from golow.programs.profiling.copies import CopyTime, copy_times
from golow.programs.profiling.idle import CAUSES
from golow.programs.profiling.kernels import KernelTime
from golow.programs.profiling.memory import Block, memory_profile
from golow.programs.profiling.operators import OperatorTime
from golow.programs.profiling.profile_record import Finding, LevelProfile, Profile
from golow.programs.profiling.summary import Part
from golow.programs.profiling.trace import COPY, Event, Trace
from golow.records.comparison import Quantity
from golow.records.workload import Precision
from golow.report.profiling import advice as texts
from support.places import DOCS
from support.records.profiles import level, profile

PAGE = DOCS / "use" / "profile.md"
GEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>"
CONVOLUTION = "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>"
ON_TENSOR_CORES = "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc"


def on_gpu(name: str = "eager", *, seconds: float = 0.01, **fields: object) -> LevelProfile:
    """A level of which no rule finds anything: the profiled step takes as long as the other."""
    made = level(name, seconds=seconds, roles={"kernel": 0.9 * seconds, "other": 0.1 * seconds})
    return msgspec.structs.replace(made, **{"kernels": (kernel("elementwise", 0.009),), **fields})


def kernel(name: str, seconds: float, **fields: object) -> KernelTime:
    plain = KernelTime(name=name, calls=3, seconds=seconds, lowest=seconds / 3, highest=seconds / 3)
    return msgspec.structs.replace(plain, **fields)


def found(*levels: LevelProfile, precision: Precision = "default", batch: int = 8) -> Profile:
    """The profile of a GPU with its findings."""
    made = profile(
        levels, model="resnet18", device="cuda", precision=precision, batch=batch
    )  # training
    return msgspec.structs.replace(made, findings=advice.findings(made))


def on_host(*levels: LevelProfile) -> Profile:
    made = profile(levels, model="lenet5")
    return msgspec.structs.replace(made, findings=advice.findings(made))


def names(found: Profile) -> list[str]:
    return [finding.name for finding in found.findings]


def shown(found: Profile, width: int = 100) -> str:
    text = io.StringIO()
    texts.render_advice(found.findings, found.workload, Console(file=text, width=width))
    return text.getvalue()


def waiting(share: float) -> tuple[Part, ...]:
    shares = (share, 0.01, 0.01)
    return tuple(
        Part(role=cause, seconds=share * 0.01, share=share)
        for cause, share in zip(CAUSES, shares, strict=True)
    )


# ---------------------------------------------------------------- the host


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert names(found(on_gpu(), on_gpu("compile"))) == []
    assert shown(found(on_gpu())) == ""


def test_a_gpu_that_waits_names_the_graph_that_was_measured() -> None:
    made = found(on_gpu(idle=waiting(0.6)), on_gpu("cudagraph", seconds=0.004))
    [finding] = made.findings
    assert (finding.name, finding.level, finding.faster) == ("host", "eager", "cudagraph")
    assert finding.figure("waiting") == 0.6
    assert finding.figure("ratio") == pytest.approx(0.4)
    assert finding.gain == pytest.approx(0.006)
    assert "(cudagraph) it takes 4.00 ms, 40% of eager's 10.0 ms" in " ".join(shown(made).split())


def test_the_faster_level_comes_with_the_line_that_gives_it() -> None:
    made = found(on_gpu(), on_gpu("cudnn", seconds=0.004))
    [finding] = made.findings
    assert finding.faster == "cudnn"
    assert "\n   step = golow.compile_step(model, loss, optimizer=optimizer" in shown(made)
    forward = msgspec.structs.replace(made.workload, mode="infer")
    inferring = shown(msgspec.structs.replace(made, workload=forward))
    assert '\n   f = golow.compile(model, x, level="cudnn"' in inferring
    jax = found(on_gpu(), on_gpu("jax", seconds=0.004))
    assert "golow.compile" not in shown(jax)  # not handed over


def test_a_graph_that_was_not_measured_gets_a_command_and_no_figure() -> None:
    made = found(on_gpu(idle=waiting(0.6)), on_gpu("libtorch"))
    [finding] = made.findings
    assert (finding.faster, finding.reason) == ("", "cudagraph")
    assert finding.figure("faster step") is None
    assert finding.command.endswith("--levels eager,cudagraph")
    assert "cudagraph was not measured here" in " ".join(shown(made).split())


@pytest.mark.parametrize(
    "levels",
    [
        (on_gpu(idle=waiting(0.19)),),
        (on_gpu(idle=waiting(0.6)), on_gpu("cudagraph", seconds=0.0099)),  # the intervals overlap
        (on_gpu(idle=waiting(0.6)), on_gpu("cudnn", seconds=0.02)),
        (on_gpu(idle=waiting(0.6)), on_gpu("cudagraph", time=None, verdict="failed")),
        (on_gpu(idle=waiting(0.6)), on_gpu("cudagraph", seconds=0.004, verdict="differs")),
        (on_gpu("compile:cudagraphs", idle=waiting(0.6)),),
        # Only the profiler makes it wait: the kernels take as long as a step without it.
        (on_gpu(idle=waiting(0.6), profiled=0.025),),
    ],
)
def test_a_gpu_waits_only_where_that_was_measured(levels: tuple[LevelProfile, ...]) -> None:
    assert "host" not in names(found(*levels))


def test_pythons_share_of_eager_on_a_processor() -> None:
    eager = level(seconds=0.03, roles={"operator on the host": 0.02, "other": 0.01})
    [finding] = on_host(eager).findings
    assert (finding.name, finding.reason, finding.faster) == ("python", "libtorch", "")
    made = on_host(eager, level("libtorch", seconds=0.01, roles={"operator on the host": 0.01}))
    [finding] = made.findings  # and not another one with the same level
    assert (finding.name, finding.faster) == ("python", "libtorch")
    assert finding.command.startswith("golow emit lenet5 --mode train ")
    slower = level("libtorch", seconds=0.03, roles={"operator on the host": 0.03})
    assert names(on_host(eager, slower)) == []
    less = level(seconds=0.03, roles={"operator on the host": 0.025, "other": 0.005})
    assert names(on_host(less)) == []
    assert "python" not in names(found(eager))


def test_short_kernels_and_a_compiler() -> None:
    many = (kernel("elementwise", 101 * 4e-6, calls=101),)
    [finding] = found(on_gpu(kernels=many), on_gpu("compile", seconds=0.005)).findings
    assert (finding.name, finding.faster) == ("short kernels", "compile")
    assert names(found(on_gpu(kernels=many), on_gpu("compile", seconds=0.02))) == []
    few = (kernel("elementwise", 100 * 4e-6, calls=100),)
    long = (kernel("elementwise", 101 * 6e-6, calls=101),)
    for kernels in (few, long):
        assert names(found(on_gpu(kernels=kernels), on_gpu("compile", seconds=0.005))) == []


@pytest.mark.parametrize(
    ("name", "seconds", "fires"),
    [("onednn", 0.015, True), ("onednn", 0.0185, False), ("compile", 0.015, False)],
)
def test_the_fastest_level_below_eager(name: str, seconds: float, fires: bool) -> None:
    roles = {"operator on the host": 0.02}
    made = on_host(level(roles=roles), level(name, seconds=seconds, roles={"kernel": seconds}))
    assert names(made) == (["lower level"] if fires else [])
    if fires:
        assert made.findings[0].command.endswith("--level onednn --show")
        fastest = level("compile", seconds=0.005, roles={"kernel": 0.005})
        assert names(on_host(*made.levels, fastest)) == []


@pytest.mark.parametrize(("seconds", "fires"), [(0.0178, True), (0.0182, False)])
def test_a_level_that_is_hardly_faster_is_not_worth_a_word(seconds: float, fires: bool) -> None:
    roles = {"operator on the host": 0.02}
    exact = Quantity(name="time", unit="s", value=0.02, low=0.02, high=0.02)
    eager = msgspec.structs.replace(level(roles=roles), time=exact)
    quicker = Quantity(name="time", unit="s", value=seconds, low=seconds, high=seconds)
    onednn = msgspec.structs.replace(level("onednn", roles=roles), time=quicker)
    assert names(on_host(eager, onednn)) == ["lower level"] * fires


# ---------------------------------------------------------------- kernels


@pytest.mark.parametrize(
    ("precision", "operator", "reason", "compared"),
    [
        ("ieee", "aten::cudnn_convolution", "ieee", "ieee,tf32"),
        ("default", "aten::addmm", "products in ieee", "default,tf32"),
        ("default", "aten::cudnn_convolution", "", "default,bf16"),
        ("bf16", "aten::addmm", "", "bf16"),
    ],
)
def test_products_without_tensor_cores(
    precision: Precision, operator: str, reason: str, compared: str
) -> None:
    plain = kernel(CONVOLUTION, 0.002, operator=operator, layer="layer4.1.conv2")
    made = found(on_gpu(kernels=(kernel("elementwise", 0.008), plain)), precision=precision)
    [finding] = made.findings
    assert (finding.name, finding.reason) == ("no tensor cores", reason)
    assert finding.layers == ("layer4.1.conv2",)
    assert finding.figure("share of kernels") == pytest.approx(0.2)
    words = shlex.split(finding.command)
    assert words[words.index("--precision") + 1] == compared
    assert "layer4.1.conv2" in shown(made)


@pytest.mark.parametrize(
    "plain",
    [
        kernel(CONVOLUTION, 0.0019),
        kernel(ON_TENSOR_CORES, 0.005, tensor_cores=True),
        kernel("triton_poi_fused_convolution_relu_3", 0.005),
        kernel("void cudnn::engines_precompiled::convertTensor_kernel<float>", 0.005),
        kernel("void conv_depthwise2d_forward_kernel<3>", 0.005),
        kernel("void cublasLt::splitKreduce_kernel<32>", 0.005),
    ],
)
def test_not_every_kernel_should_use_tensor_cores(plain: KernelTime) -> None:
    rest = kernel("elementwise", 0.01 - plain.seconds)
    assert names(found(on_gpu(kernels=(plain, rest)))) == []


@pytest.mark.parametrize(
    ("shapes", "sizes"),
    [
        (("[[8, 10], [16, 512], [512, 10]]",), (10,)),
        (("[[8, 16], [16, 512], [512, 16]]",), ()),
        (("[[8, 10], [16, 512], [512, 10]]", "[[8, 16], [16, 512], [512, 16]]"), ()),
        (("[]",), ()),
        (("",), ()),
    ],
)
def test_sizes_are_a_reason_if_every_call_has_one(
    shapes: tuple[str, ...], sizes: tuple[int, ...]
) -> None:
    operators = tuple(OperatorTime(name="aten::addmm", shapes=shape) for shape in shapes)
    kernels = (kernel(GEMM, 0.009, operator="aten::addmm"),)
    made = found(on_gpu(kernels=kernels, operators=operators), precision="bf16")
    [finding] = made.findings
    assert finding.reason == ("sizes" if sizes else "")
    assert tuple(int(f.value) for f in finding.figures if f.name == "size") == sizes
    assert all(f"sizes {size} are not multiples" in shown(made) for size in sizes)


def test_layout_conversions() -> None:
    def kernels(seconds: float) -> tuple[KernelTime, ...]:
        converts = "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float>"
        return kernel(converts, seconds), kernel("elementwise", 0.01 - seconds)

    [finding] = found(on_gpu(kernels=kernels(0.0005))).findings
    assert (finding.name, finding.reason) == ("layouts", "eager:channels_last")
    last = on_gpu("eager:channels_last", seconds=0.005)
    assert found(on_gpu(kernels=kernels(0.0005)), last).findings[0].faster == last.level
    assert names(found(on_gpu(kernels=kernels(0.0004)))) == []
    assert names(found(on_gpu("compile", kernels=kernels(0.005)))) == []


def test_layout_conversions_on_a_processor() -> None:
    roles = {"operator on the host": 0.02}

    def made(name: str, seconds: float) -> Profile:
        return on_host(level(roles=roles, operators={name: seconds}))

    [finding] = made("aten::contiguous", 0.001).findings
    assert finding.name == "layouts on the host"
    assert finding.command.endswith("--levels eager,eager:channels_last")
    assert names(made("aten::contiguous", 0.0009)) == []
    assert names(made("aten::copy_", 0.01)) == []


@pytest.mark.parametrize(("share", "blocks", "fires"), [(0.5, 0.25, 1), (0.4, 0.25, 0), (1, 1, 0)])
def test_few_blocks(share: float, blocks: float, fires: int) -> None:
    kernels = (
        kernel("one", share * 0.01, blocks_per_sm=blocks),
        kernel("other", (1 - share) * 0.01, blocks_per_sm=4.0),
    )
    made = found(on_gpu(kernels=kernels), batch=16)
    assert names(made) == ["few blocks"] * fires
    for finding in made.findings:
        assert finding.figure("without a block") == pytest.approx(0.75)
        assert "--batch 32" in finding.command


def test_copies_are_counted_by_kind() -> None:
    def event(name: str, category: str, start: int, end: int, **details: int) -> Event:
        return Event(name, category, "0/7", start, end, details)

    kind = "Memcpy HtoD (Pageable -> Device)"
    steps = tuple(event(f"step {n}", "user_annotation", 100 * n, 100 * n + 100) for n in (0, 1))
    copies = (event(kind, COPY, 10, 30, bytes=64), event(kind, COPY, 110, 120, bytes=64))
    [copy] = copy_times(Trace(steps, (*steps, *copies), ()))
    assert copy == CopyTime(name=kind, calls=1, seconds=15e-9, bytes=64)


@pytest.mark.parametrize(
    ("kind", "seconds", "fires"),
    [
        ("Memcpy HtoD (Pageable -> Device)", 1.1e-4, 1),
        ("Memcpy HtoD (Pageable -> Device)", 9e-5, 0),
        ("Memcpy HtoD (Pinned -> Device)", 1e-3, 0),
        ("Memcpy DtoH (Device -> Pageable)", 1e-3, 0),
    ],
)
def test_copies_from_pageable_memory(kind: str, seconds: float, fires: int) -> None:
    copy = CopyTime(name=kind, calls=2, seconds=seconds, bytes=4096)
    made = found(on_gpu(copies=(copy,)))
    assert names(made) == ["pageable copies"] * fires
    assert ("2 copies of 4.00 KiB" in shown(made)) == bool(fires)


# ---------------------------------------------------------------- memory and the profiler


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"activations": 50, "parameters": 40}, ["activations"]),
        ({"activations": 40, "parameters": 50}, []),
        ({"parameters": 80, "workspace": 20}, ["workspace"]),
        ({"parameters": 81, "workspace": 19}, []),
    ],
)
def test_what_the_memory_is_made_of(sizes: dict[str, int], expected: list[str]) -> None:
    blocks = [
        Block(bytes=size << 20, category=category, first=0.0, last=1.0, layer="conv1")
        for category, size in sizes.items()
    ]
    made = found(on_gpu(memory=memory_profile(blocks, 1.0)))
    assert names(made) == expected
    for finding in made.findings:
        assert finding.layers == ("conv1",)
        assert f"{sizes[finding.name]}" in shown(made)
    inferring = msgspec.structs.replace(
        made, workload=msgspec.structs.replace(made.workload, mode="infer")
    )
    assert "activations" not in [finding.name for finding in advice.findings(inferring)]


def test_a_slow_profiler_is_a_caution_that_is_always_shown() -> None:
    [finding] = found(on_gpu(profiled=0.0151)).findings
    assert (finding.name, finding.command) == ("profiler", "")
    assert names(found(on_gpu(profiled=0.0149))) == []
    others = [
        Finding(name=name, level="eager", figures=(), gain=1.0)
        for name in ("host", "python", "short kernels", "layouts", "few blocks", "workspace")
    ]
    text = shown(msgspec.structs.replace(found(on_gpu()), findings=(*others, finding)))
    assert "5. Caution" in text
    assert "6." not in text
    assert "few blocks" not in text


# ---------------------------------------------------------------- all of them


def test_the_largest_gain_comes_first_and_levels_are_joined() -> None:
    few = (kernel("one", 0.002, blocks_per_sm=0.5),)
    waits = on_gpu("torchscript", idle=waiting(0.6), kernels=())
    made = found(on_gpu(kernels=few), on_gpu("libtorch", kernels=few), waits)
    gains = [finding.gain for finding in made.findings]
    assert gains == sorted(gains, reverse=True)
    assert names(made) == ["host", "few blocks", "few blocks"]
    assert "Likewise at libtorch." in " ".join(shown(made).split())


def test_every_rule_has_words_and_a_line_in_the_documentation() -> None:
    for name in texts.TEXTS:
        assert f"| `{name}` |" in PAGE.read_text(), name
