"""Profiles for tests: one of a GPU with everything in it, and drawn ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from golow.programs.profiling.kernels import GpuSummary, KernelTime
from golow.programs.profiling.operators import OperatorTime
from golow.programs.profiling.profile_record import LevelProfile, Profile
from golow.programs.profiling.summary import ROLES, Part
from golow.records.comparison import Environment, LayerTime, Quantity, TensorError
from golow.records.workload import Device, LayerPhase, ModelSource, Precision, TensorType, Workload

PHASES: tuple[LayerPhase, ...] = ("forward", "backward", "update")


def profile(
    levels: Sequence[LevelProfile],
    *,
    model: str = "net",
    batch: int = 8,
    device: Device = "cpu",
    precision: Precision = "default",
    torch: str = "2.13.0",
) -> Profile:
    workload = Workload(
        model=model,
        source=ModelSource(kind="zoo", name=model),
        mode="train",
        batch=batch,
        inputs=(TensorType(shape=(batch, 3, 64, 64), dtype="float32"),),
        device=device,
        precision=precision,
    )
    return Profile(workload=workload, levels=tuple(levels), environment=machine(torch))


def machine(torch: str = "2.13.0") -> Environment:
    return Environment(
        cpu_model="a processor",
        cpu_flags=("avx2",),
        cores=4,
        affinity=(0, 1, 2, 3),
        memory_bytes=2**34,
        governor="",
        kernel="Linux 6.1",
        container_limits={},
        gpu=("NVIDIA H200",),
        driver="580.95",
        python="3.12.1",
        versions={"torch": torch, "golow": "0.1.0"},
        thread_settings={},
    )


def level(
    name: str = "eager",
    *,
    seconds: float = 0.02,
    roles: Mapping[str, float] | None = None,
    operators: Mapping[str, float] | None = None,
    kernels: Mapping[str, float] | None = None,
    layers: Mapping[str, float] | None = None,
    tensor_cores: float | None = None,
) -> LevelProfile:
    """roles, operators, kernels and layers: seconds of a step by name."""
    roles = roles if roles is not None else {"operator on the host": 0.03, "other": 0.01}
    total = sum(roles.values())
    return LevelProfile(
        level=name,
        verdict="match",
        time=Quantity(name="time", unit="s", value=seconds, low=0.9 * seconds, high=1.1 * seconds),
        profiled=total,
        steps=5,
        summary=tuple(
            Part(role=role, seconds=value, share=value / total if total else 0.0)
            for role, value in roles.items()
        ),
        gpu=None
        if tensor_cores is None
        else GpuSummary(
            utilization=0.8, sm_efficiency=0.7, occupancy=0.4, tensor_cores=tensor_cores
        ),
        operators=tuple(
            OperatorTime(name=item, calls=2, self_host=value, total_host=value)
            for item, value in (operators or {}).items()
        ),
        kernels=tuple(
            KernelTime(name=item, calls=3, seconds=value, lowest=value / 3, highest=value / 3)
            for item, value in (kernels or {}).items()
        ),
        layers=tuple(
            LayerTime(
                modules=(item,), phase="forward", operation="conv", ns=(round(value * 1e9),) * 3
            )
            for item, value in (layers or {}).items()
        ),
        worst=TensorError(
            name="gradient/fc.weight",
            elements=10,
            scale=1.0,
            error=1e-4,
            eager_error=1e-4,
            limit=4e-4,
            passed=True,
        ),
    )


def gpu_profiles() -> tuple[Profile, ...]:
    """Two precisions of a large network at four levels, as a GPU has them; one level failed."""
    found = []
    for precision, speed in (("default", 1.0), ("bf16", 0.4)):
        levels = [
            _gpu_level(name, speed * scale, 0.1 if precision == "default" else 0.9)
            for name, scale in (("eager", 1.0), ("compile:max-autotune", 0.6), ("libtorch", 0.9))
        ]
        lost = LevelProfile(level="cudnn", verdict="failed", reason="it died: signal 11")
        found.append(
            profile(
                [*levels, lost],
                model="resnet50",
                device="cuda",
                precision=precision,  # type: ignore[arg-type]
            )
        )
    return tuple(found)


def _gpu_level(name: str, speed: float, tensor_cores: float) -> LevelProfile:
    shares = dict(zip(ROLES, (50, 3, 2, 1, 1, 8, 12, 4, 2, 12, 5), strict=True))
    made = level(
        name,
        seconds=0.012 * speed,
        roles={role: share * 2e-4 * speed for role, share in shares.items()},
        kernels={f"sm90_xmma_gemm_{place}": speed / (place + 3) * 1e-3 for place in range(14)},
        tensor_cores=tensor_cores,
    )
    operators = tuple(
        OperatorTime(
            name=f"aten::operator_with_a_long_name_{place}",
            calls=53,
            self_host=speed * 1e-3 / (place + 1),
            total_host=speed * 2e-3 / (place + 1),
            self_device=speed * 2e-3 / (place + 2),
        )
        for place in range(12)
    )
    layers = tuple(
        LayerTime(
            modules=(f"layer{1 + place // 5}.{place % 5}.conv",),
            phase=phase,
            operation="convolution",
            ns=(round(speed * 1e6 / (1 + (7 * place) % 11)),) * 5,
        )
        for phase in PHASES
        for place in range(20)
    )
    # msgspec's records are frozen: a new one with the fields that differ.
    return LevelProfile(
        **{
            name: getattr(made, name)
            for name in made.__struct_fields__
            if name not in ("operators", "layers")
        },
        operators=operators,
        layers=layers,
    )


# ---------------------------------------------------------------- drawn ones

NAMES = ("conv", "relu", "linear", "=1+1", "@sum", "pool")
SECONDS = st.integers(0, 1 << 30).map(lambda nanoseconds: nanoseconds / 1e9)


def _figures(names: Sequence[str]) -> st.SearchStrategy[dict[str, float]]:
    return st.dictionaries(st.sampled_from(names), SECONDS, max_size=len(names))


LEVELS = st.builds(
    level,
    st.sampled_from(("eager", "compile:freezing", "libtorch")),
    seconds=SECONDS,
    roles=_figures(ROLES).filter(lambda roles: sum(roles.values()) > 0),
    operators=_figures(NAMES),
    kernels=_figures(NAMES),
    layers=_figures(NAMES),
    tensor_cores=st.none() | st.floats(0, 1),
)
PROFILES = st.lists(
    st.builds(
        profile,
        st.lists(LEVELS, max_size=3, unique_by=lambda found: found.level),
        batch=st.sampled_from((8, 16)),
        precision=st.sampled_from(("default", "bf16")),
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda found: found.workload.precision,
)
