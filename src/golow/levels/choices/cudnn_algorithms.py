"""How PyTorch uses cuDNN: which algorithm a convolution gets, and whether cuDNN runs at all."""

from __future__ import annotations

from typing import Any

from golow.levels.choices.choice import WITH_TORCH, Alternative, Choice

UP_TO, ALL, OFF, ON = "on, up to {} algorithms", "on, all algorithms", "off", "on"
LIMIT = 10  # PyTorch's own


def benchmark(program: Any) -> str:
    """Report whether PyTorch times cuDNN's algorithms, and how many of them."""
    from torch.backends import cudnn

    if not cudnn.benchmark:
        return OFF
    return UP_TO.format(cudnn.benchmark_limit) if cudnn.benchmark_limit else ALL


def deterministic(program: Any) -> str:
    """Report whether PyTorch uses only deterministic algorithms of cuDNN."""
    from torch.backends import cudnn

    return ON if cudnn.deterministic else OFF


def enabled(program: Any) -> str:
    """Report whether PyTorch may call cuDNN."""
    from torch.backends import cudnn

    return ON if cudnn.enabled else OFF


def _benchmark(limit: int) -> Any:
    def call(program: Any) -> None:
        from torch.backends import cudnn

        cudnn.benchmark = True
        cudnn.benchmark_limit = limit

    return call


def _deterministic(program: Any) -> None:
    from torch.backends import cudnn

    cudnn.deterministic = True


def _disable(program: Any) -> None:
    from torch.backends import cudnn

    cudnn.enabled = False


CHOICES = (
    Choice(
        name="cudnn_benchmark",
        summary="whether PyTorch times cuDNN's algorithms for each shape or takes its suggestion",
        made_by="PyTorch",
        where="torch.backends.cudnn.benchmark, off; aten/src/ATen/Context.h",
        levels=WITH_TORCH,
        devices=("cuda",),
        read=benchmark,
        likely=True,
        changes_results=True,
        costs="start: the first iterations time every algorithm, each with a separate workspace",
        alternatives=(
            Alternative(
                name="cudnn_benchmark",
                summary=f"up to {LIMIT} algorithms are timed, and the fastest is used",
                value=UP_TO.format(LIMIT),
                call=_benchmark(LIMIT),
                python="torch.backends.cudnn.benchmark = True",
                cpp="at::globalContext().setBenchmarkCuDNN(true);",
            ),
            Alternative(
                name="cudnn_benchmark_all",
                summary="all algorithms are timed, and the fastest is used",
                value=ALL,
                call=_benchmark(0),
                python="torch.backends.cudnn.benchmark = True; "
                "torch.backends.cudnn.benchmark_limit = 0",
                cpp="at::globalContext().setBenchmarkCuDNN(true); "
                "at::globalContext().setBenchmarkLimitCuDNN(0);",
            ),
        ),
    ),
    Choice(
        name="cudnn_deterministic",
        summary="whether cuDNN's algorithms must give the same bits each time",
        made_by="PyTorch",
        where="torch.backends.cudnn.deterministic, off; aten/src/ATen/Context.h",
        levels=WITH_TORCH,
        devices=("cuda",),
        read=deterministic,
        changes_results=True,
        alternatives=(
            Alternative(
                name="cudnn_deterministic",
                summary="only deterministic algorithms",
                value=ON,
                call=_deterministic,
                python="torch.backends.cudnn.deterministic = True",
                cpp="at::globalContext().setDeterministicCuDNN(true);",
            ),
        ),
    ),
    Choice(
        name="cudnn_enabled",
        summary="whether PyTorch calls cuDNN or native kernels",
        made_by="PyTorch",
        where="torch.backends.cudnn.enabled, on; aten/src/ATen/Context.h",
        levels=WITH_TORCH,
        devices=("cuda",),
        read=enabled,
        changes_results=True,
        alternatives=(
            Alternative(
                name="no_cudnn",
                summary="PyTorch's native kernels for convolutions and batch norms",
                value=OFF,
                call=_disable,
                python="torch.backends.cudnn.enabled = False",
                cpp="at::globalContext().setUserEnabledCuDNN(false);",
            ),
        ),
    ),
)
