"""How PyTorch's compilers treat the module: modes of Inductor, and what TorchScript freezes."""

from __future__ import annotations

from typing import Any

from golow.levels.choices.choice import Alternative, Choice

WRAPPER = "TORCHINDUCTOR_CPP_WRAPPER"


def wrapper(program: Any) -> str:
    """The language in which Inductor writes what calls its kernels."""
    from torch._inductor import config

    return "C++" if config.cpp_wrapper else "Python"


def script(program: Any) -> str:
    """How far the trace that is called was prepared."""
    prepared: str = program.prepared
    return prepared


def _script(name: str, value: str, summary: str, python: str) -> Alternative:
    def call(program: Any) -> None:
        program.habits.script = value

    return Alternative(name=name, summary=summary, value=value, call=call, python=python)


def _mode(name: str, summary: str, python: str) -> Alternative:
    return Alternative(name=name, summary=summary, value=name, variant=name, python=python)


COMPILE = "torch.compile(model, mode={!r})"
FREEZE = "torch._inductor.config.freezing = True"

CHOICES = (
    Choice(
        name="inductor_mode",
        summary="how torch.compile treats weights, chooses kernels and launches them",
        made_by="PyTorch",
        where="torch.compile, mode; torch/_inductor/config.py, freezing",
        levels=("compile",),
        read=None,
        likely=True,
        costs="max-autotune: minutes to build; graphs: memory; freezing: weights cannot change",
        alternatives=(
            Alternative(
                name="freezing",
                summary="weights are constants, packed for the kernels",
                value="freezing",
                variant="freezing",
                modes=("infer",),
                shell="TORCHINDUCTOR_FREEZING=1",
                python=FREEZE,
            ),
            Alternative(
                name="cudagraphs",
                summary="kernels are replayed as CUDA graphs",
                value="cudagraphs",
                variant="cudagraphs",
                devices=("cuda",),
                python=COMPILE.format("reduce-overhead"),
            ),
            Alternative(
                name="freezing-cudagraphs",
                summary="both",
                value="freezing-cudagraphs",
                variant="freezing-cudagraphs",
                modes=("infer",),
                devices=("cuda",),
                python=f"{FREEZE}; {COMPILE.format('reduce-overhead')}",
            ),
            _mode("max-autotune", "kernels are timed", COMPILE.format("max-autotune")),
        ),
    ),
    Choice(
        name="inductor_wrapper",
        summary="whether Python or C++ calls the compiled kernels",
        made_by="PyTorch",
        where=f"torch/_inductor/config.py, cpp_wrapper: {WRAPPER}",
        levels=("compile",),
        devices=("cpu",),
        read=wrapper,
        likely=True,
        costs="a longer build",
        alternatives=(
            Alternative(
                name="cpp_wrapper",
                summary="C++",
                value="C++",
                environment={WRAPPER: "1"},
                rebuilds=True,
                shell=f"{WRAPPER}=1",
                python="torch._inductor.config.cpp_wrapper = True",
            ),
        ),
    ),
    Choice(
        name="package_launches",
        summary="how the kernels of an AOTInductor package are launched",
        made_by="golow's level",
        where="at::cuda::CUDAGraph around a call of the package",
        levels=("aotinductor",),
        modes=("infer",),
        devices=("cuda",),
        read=None,
        likely=True,
        costs="separate memory for the graph",
        alternatives=(
            Alternative(
                name="cudagraph",
                summary="replayed as one CUDA graph",
                value="cudagraph",
                variant="cudagraph",
            ),
        ),
    ),
    Choice(
        name="tensorflow_compiler",
        summary="whether XLA compiles TensorFlow's function",
        made_by="golow's level; TensorFlow's default is not to compile",
        where="tf.function, jit_compile",
        levels=("tensorflow",),
        devices=("cpu",),
        read=None,
        likely=True,
        alternatives=(
            Alternative(
                name="graph",
                summary="TensorFlow's kernels without XLA",
                value="graph",
                variant="graph",
                python="tf.function(function, jit_compile=False)",
            ),
        ),
    ),
    Choice(
        name="paddle_graph",
        summary="whether PaddlePaddle runs the forward pass as a static graph",
        made_by="PaddlePaddle: a dynamic graph",
        where="paddle.jit.to_static",
        levels=("paddle",),
        devices=("cpu",),
        read=None,
        likely=True,
        alternatives=(
            Alternative(
                name="static",
                summary="a static graph",
                value="static",
                variant="static",
                python="paddle.jit.to_static(function, full_graph=True)",
            ),
        ),
    ),
    Choice(
        name="jax_weights",
        summary="whether a JAX program takes its weights as arguments or holds them as constants",
        made_by="golow's level; JAX leaves it to its users",
        where="jax.jit: values that a function uses but does not take as arguments",
        levels=("jax",),
        modes=("infer",),
        read=None,
        likely=True,
        costs="a longer build, with weights in the cache; weights cannot change",
        alternatives=(
            Alternative(
                name="freezing",
                summary="constants, which XLA folds and arranges",
                value="freezing",
                variant="freezing",
                python="jax.jit(lambda batch: forward(weights, batch))",
            ),
        ),
    ),
    Choice(
        name="script_freezing",
        summary="whether TorchScript turns weights into constants and converts them for oneDNN",
        made_by="golow's level; PyTorch only traces",
        where="torch.jit.freeze, torch.jit.optimize_for_inference",
        levels=("torchscript",),
        modes=("infer",),
        read=script,
        likely=True,
        alternatives=(
            _script("script_frozen", "frozen", "frozen only", "torch.jit.freeze(traced)"),
            _script("script_traced", "traced", "traced only", "torch.jit.trace(model, inputs)"),
        ),
    ),
    Choice(
        name="engines",
        summary="which of cuDNN's engines computes an operation",
        made_by="cuDNN's heuristics",
        where="cuDNN's developer guide, Heuristics",
        levels=("cudnn",),
        devices=("cuda",),
        read=None,
        likely=True,
        costs="minutes to build",
        alternatives=(_mode("autotune", "the fastest one timed", ""),),
    ),
)
