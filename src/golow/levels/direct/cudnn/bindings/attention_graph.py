"""Flash attention in cuDNN's graph API: Dao et al. 2022 ("FlashAttention"), forward and backward.
https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/operations/Attention.html"""

from __future__ import annotations

from typing import Any

import cudnn

from golow.levels.direct.cudnn.problems.products import AttentionProblem, Placed

# Identifiers of the operands in an operation graph.
QUERY, KEY, VALUE, OUTPUT, GRADIENT, ROWS, OF_QUERY, OF_KEY, OF_VALUE, ADDED = range(1, 11)
FLOAT = cudnn.data_type.FLOAT


def attention_operands(problem: AttentionProblem) -> tuple[int, ...]:
    """The operands' identifiers, in the order of `AttentionProblem`."""
    inputs = (QUERY, KEY, VALUE, *((ADDED,) if problem.added else ()))
    if problem.gradient is not None:
        return (*inputs, OUTPUT, GRADIENT, ROWS, OF_QUERY, OF_KEY, OF_VALUE)
    return (*inputs, OUTPUT, *((ROWS,) if problem.keeps else ()))


def describe_attention(graph: Any, problem: AttentionProblem) -> None:
    """Add the operation to the graph, whose types are those of the problem."""

    def read(placed: Placed, identifier: int, **settings: Any) -> Any:
        return graph.tensor(
            dim=list(placed.shape), stride=list(placed.strides), uid=identifier, **settings
        )

    inputs = {
        "q": read(problem.query, QUERY),
        "k": read(problem.key, KEY),
        "v": read(problem.value, VALUE),
        "attn_scale": problem.scale,
        "bias": read(problem.added, ADDED) if problem.added else None,
        "diagonal_band_right_bound": 0 if problem.causal else None,
    }
    if problem.gradient is None:
        output, rows = graph.sdpa(**inputs, generate_stats=problem.keeps)
        _write(output, problem.output, OUTPUT)
        if problem.keeps:
            _write(rows, problem.rows, ROWS).set_data_type(FLOAT)
        return
    made = graph.sdpa_backward(
        **inputs,
        o=read(problem.output, OUTPUT),
        dO=read(problem.gradient, GRADIENT),
        stats=read(problem.rows, ROWS, data_type=FLOAT),
    )
    places = (problem.of_query, problem.of_key, problem.of_value)
    for tensor, placed, identifier in zip(made, places, (OF_QUERY, OF_KEY, OF_VALUE), strict=True):
        if placed is not None:
            _write(tensor, placed, identifier)


def _write(tensor: Any, placed: Placed, identifier: int) -> Any:
    tensor.set_output(True).set_uid(identifier)
    return tensor.set_dim(list(placed.shape)).set_stride(list(placed.strides))
