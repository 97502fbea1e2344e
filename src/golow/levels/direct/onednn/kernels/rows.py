"""Functions of rows: softmax, its logarithm and their gradients, and reductions.

Rows follow one another. Sums are in float64, since a loss adds up what rows are off by.
"""

from __future__ import annotations

from golow.levels.direct.onednn.kernels import C_TYPES, Kernel, parts

FIRST = 2  # the number of columns

SOFTMAX = """
    float most = -__builtin_inff();
    #pragma omp simd reduction(max : most)
    for (long k = 0; k < columns; k++) most = x[k] > most ? x[k] : most;
    double sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (long k = 0; k < columns; k++) {
      const float term = exp_of_term(x[k] - most);
      y[k] = term;
      sum += term;
    }
    const float total = static_cast<float>(sum);
    #pragma omp simd
    for (long k = 0; k < columns; k++) y[k] /= total;
"""
LOG_SOFTMAX = """
    float most = -__builtin_inff();
    #pragma omp simd reduction(max : most)
    for (long k = 0; k < columns; k++) most = x[k] > most ? x[k] : most;
    double sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (long k = 0; k < columns; k++) sum += exp_of_term(x[k] - most);
    const double log = __builtin_log(sum);
    #pragma omp simd
    for (long k = 0; k < columns; k++) y[k] = static_cast<float>((x[k] - most) - log);
"""
SOFTMAX_BACKWARD = """
    double sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (long k = 0; k < columns; k++) sum += x[k] * result[k];
    const float total = static_cast<float>(sum);
    #pragma omp simd
    for (long k = 0; k < columns; k++) y[k] = (x[k] - total) * result[k];
"""
LOG_SOFTMAX_BACKWARD = """
    double sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (long k = 0; k < columns; k++) sum += x[k];
    const float total = static_cast<float>(sum);
    #pragma omp simd
    for (long k = 0; k < columns; k++) y[k] = x[k] - exp_of_term(result[k]) * total;
"""


def softmax(rows: int, columns: int, log: bool) -> Kernel:
    """Pointers: x -> y, which may be x."""
    return _of_rows(LOG_SOFTMAX if log else SOFTMAX, ("x", "y"), rows, columns)


def softmax_backward(rows: int, columns: int, log: bool) -> Kernel:
    """Pointers: the gradient of the result, the result -> the gradient of x."""
    code = LOG_SOFTMAX_BACKWARD if log else SOFTMAX_BACKWARD
    return _of_rows(code, ("x", "result", "y"), rows, columns)


def _of_rows(code: str, names: tuple[str, ...], rows: int, columns: int) -> Kernel:
    lines = [
        f"    float* const {name} = static_cast<float*>(pointers[{index}]) + row * columns;"
        for index, name in enumerate(names)
    ]
    return Kernel(_body([*lines, code.strip("\n")]), (*parts(rows, rows * columns), columns))


def _body(lines: list[str]) -> str:
    return "\n".join(
        [
            "static void body(void* const* pointers, const long* n, long begin, long end) {",
            f"  const long columns = n[{FIRST}];",
            "  for (long row = begin; row < end; row++) {",
            *lines,
            "  }",
            "}",
        ]
    )


# ---------------------------------------------------------------- reductions

SUMS = {"sum": "sum", "mean": "sum / columns"}
REDUCED = ("sum", "mean", "maximum", "minimum")
EXTREMES = {"maximum": (">", "max"), "minimum": ("<", "min")}


def reduction(function: str, dtype: str, result: str, rows: int, columns: int) -> Kernel:
    """Pointers: x -> one number for each row. function: sum, mean, maximum or minimum, which is NaN
    where a row has one. Raises KeyError for another one."""
    # Truth values are compared as bytes: OpenMP does not reduce them.
    kind = C_TYPES["uint8" if dtype == "bool" else dtype]
    target = C_TYPES[result]
    lines = [
        f"    const {kind}* const x = static_cast<{kind}*>(pointers[0]) + row * columns;",
        f"    {target}* const y = static_cast<{target}*>(pointers[1]) + row;",
    ]
    if function in EXTREMES:
        lines += _extreme(function, kind)
    else:
        lines += _sum(SUMS[function], "double" if dtype == "float32" else "long long", target)
    return Kernel(_body(lines), (*parts(rows, rows * columns), columns))


def _sum(value: str, kind: str, target: str) -> list[str]:
    return [
        f"    {kind} sum = 0;",
        "    #pragma omp simd reduction(+ : sum)",
        "    for (long k = 0; k < columns; k++) sum += x[k];",
        f"    y[0] = static_cast<{target}>({value});",
    ]


def _extreme(function: str, kind: str) -> list[str]:
    sign, clause = EXTREMES[function]
    nothing = 'unordered ? __builtin_nanf("")' if kind == "float" else "unordered ? most"
    return [
        f"    {kind} most = x[0];",
        "    int unordered = 0;",
        f"    #pragma omp simd reduction({clause} : most) reduction(| : unordered)",
        "    for (long k = 0; k < columns; k++) {",
        f"      most = x[k] {sign} most ? x[k] : most;",
        "      unordered |= x[k] != x[k];",
        "    }",
        f"    y[0] = {nothing} : most;",
    ]
