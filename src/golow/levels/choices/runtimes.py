"""Choices of ONNX Runtime and OpenVINO, and the settings that golow's levels give them."""

from __future__ import annotations

from typing import Any

from golow.levels.choices.choice import Alternative, Choice

SPINNING = "session.intra_op.allow_spinning"
OPTIMISATIONS = {
    "ORT_ENABLE_ALL": "all",
    "ORT_ENABLE_BASIC": "basic",
    "ORT_DISABLE_ALL": "none",
    "ORT_ENABLE_EXTENDED": "extended",
    "ORT_ENABLE_LAYOUT": "layout",
}


def spinning(program: Any) -> str:
    """Report whether idle threads spin, by the session's options."""
    try:
        entry = program.session.get_session_options().get_session_config_entry(SPINNING)
    except Exception:  # the runtime raises if it is not set
        return "on"
    return "off" if entry == "0" else "on"


def optimisation(program: Any) -> str:
    """How far the session rewrote the graph."""
    level = program.session.get_session_options().graph_optimization_level.name
    return OPTIMISATIONS.get(level, str(level))


def arena(program: Any) -> str:
    """Report whether the session keeps a memory arena."""
    return "on" if program.session.get_session_options().enable_cpu_mem_arena else "off"


def hint(program: Any) -> str:
    """Report the goal for which the compiled model is optimised."""
    found = program.compiled.get_property("PERFORMANCE_HINT")
    return str(getattr(found, "name", found)).lower()


def pinning(program: Any) -> str:
    """Report whether threads stay on their cores."""
    return "on" if program.compiled.get_property("ENABLE_CPU_PINNING") else "off"


def _setting(
    name: str, summary: str, value: str, settings: dict[str, Any], python: str
) -> Alternative:
    def call(program: Any) -> None:
        program.settings |= settings

    return Alternative(name=name, summary=summary, value=value, call=call, python=python)


def _of_onnxruntime(name: str, **fields: Any) -> Choice:
    return Choice(name=name, levels=("onnxruntime",), modes=("infer",), devices=("cpu",), **fields)


def _of_openvino(name: str, **fields: Any) -> Choice:
    return Choice(name=name, levels=("openvino",), modes=("infer",), devices=("cpu",), **fields)


OPTIONS = "onnxruntime.SessionOptions"

CHOICES = (
    _of_onnxruntime(
        "runtime_spinning",
        summary="whether ONNX Runtime's threads spin while they wait",
        made_by="ONNX Runtime",
        where=f"ONNX Runtime's documentation, Thread management: {SPINNING}",
        read=spinning,
        likely=True,
        alternatives=(
            _setting(
                "spinning_off",
                "they sleep",
                "off",
                {SPINNING: "0"},
                f'options.add_session_config_entry("{SPINNING}", "0")',
            ),
        ),
    ),
    _of_onnxruntime(
        "graph_optimisation",
        summary="how far ONNX Runtime rewrites the graph when it loads",
        made_by="ONNX Runtime",
        where=f"{OPTIONS}.graph_optimization_level, ORT_ENABLE_ALL",
        read=optimisation,
        changes_results=True,
        alternatives=tuple(
            _setting(
                f"graph_{word}",
                f"{word}{' of the rewrites' if word == 'none' else ' rewrites only'}",
                word,
                {"graph_optimization_level": level},
                f"options.graph_optimization_level = GraphOptimizationLevel.{level}",
            )
            for word, level in (("basic", "ORT_ENABLE_BASIC"), ("none", "ORT_DISABLE_ALL"))
        ),
    ),
    _of_onnxruntime(
        "runtime_arena",
        summary="whether ONNX Runtime keeps freed memory for the next iteration",
        made_by="ONNX Runtime",
        where=f"{OPTIONS}.enable_cpu_mem_arena",
        read=arena,
        costs="memory: the arena does not shrink",
        alternatives=(
            _setting(
                "arena_off",
                "it returns memory to the C library",
                "off",
                {"enable_cpu_mem_arena": False},
                "options.enable_cpu_mem_arena = False",
            ),
        ),
    ),
    _of_openvino(
        "performance_hint",
        summary="whether OpenVINO optimises for one request or for many at a time",
        made_by="golow's level, like OpenVINO itself",
        where="OpenVINO's documentation, High-level Performance Hints: LATENCY, one stream",
        read=hint,
        alternatives=(
            _setting(
                "throughput",
                "for many requests",
                "throughput",
                {"PERFORMANCE_HINT": "THROUGHPUT", "NUM_STREAMS": None},
                'core.compile_model(model, "CPU", {"PERFORMANCE_HINT": "THROUGHPUT"})',
            ),
        ),
    ),
    _of_openvino(
        "runtime_pinning",
        summary="whether OpenVINO's threads stay on their cores",
        made_by="OpenVINO",
        where="OpenVINO's documentation, CPU device: ov::hint::enable_cpu_pinning",
        read=pinning,
        alternatives=tuple(
            _setting(
                f"pinning_{word}",
                summary,
                word,
                {"ENABLE_CPU_PINNING": on},
                f'core.compile_model(model, "CPU", {{"ENABLE_CPU_PINNING": {on}}})',
            )
            for word, on, summary in (("off", False, "they do not"),)
        ),
    ),
)
