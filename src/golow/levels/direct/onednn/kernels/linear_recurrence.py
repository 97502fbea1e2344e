"""Linear recurrences and their gradients, over float32 [outer, steps, columns]."""

from __future__ import annotations

from golow.levels.direct.onednn.kernels import Kernel, parts

BLOCK = 64  # columns that are computed side by side: four cache lines of each step

CODE = """static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long steps = n[2], columns = n[3], blocks = n[4];
  for (long part = begin; part < end; part++) {{
    const long outer = part / blocks, begun = part % blocks * {block}, left = columns - begun;
    const long width = left < {block} ? left : {block}, first = outer * steps * columns + begun;
    float carried[{block}] = {{}};
{body}
  }}
}}"""
FORWARD = """    const float* const decay = static_cast<float*>(pointers[0]) + first;
    const float* const x = static_cast<float*>(pointers[1]) + first;
    float* const y = static_cast<float*>(pointers[2]) + first;
    for (long t = 0; t < steps; t++) {{
      const long at = t * columns;
      #pragma omp simd
      for (long k = 0; k < width; k++) {{
        carried[k] = t == 0 ? x[at + k] : decay[at + k] * carried[k] + x[at + k];
        y[at + k] = carried[k];
      }}
    }}"""
BACKWARD = """    const float* const gradient = static_cast<float*>(pointers[0]) + first;
    const float* const decay = static_cast<float*>(pointers[1]) + first;
    const float* const y = static_cast<float*>(pointers[2]) + first;
    float* const of_decay = static_cast<float*>(pointers[3]) + first;
    float* const of_x = static_cast<float*>(pointers[4]) + first;
    for (long t = steps - 1; t >= 0; t--) {{
      const long at = t * columns, before = t > 0 ? at - columns : at;
      #pragma omp simd
      for (long k = 0; k < width; k++) {{
        const float here = gradient[at + k] + carried[k];
        of_x[at + k] = here;
        of_decay[at + k] = t > 0 ? here * y[before + k] : 0.0f;
        carried[k] = here * decay[at + k];
      }}
    }}"""


def forward(outer: int, steps: int, columns: int) -> Kernel:
    """Pointers: decay, x -> states, all [outer, steps, columns]."""
    return _kernel(FORWARD, outer, steps, columns)


def backward(outer: int, steps: int, columns: int) -> Kernel:
    """Pointers: gradient, decay, states -> gradients of decay and of x."""
    return _kernel(BACKWARD, outer, steps, columns)


def _kernel(body: str, outer: int, steps: int, columns: int) -> Kernel:
    blocks = -(-columns // BLOCK)
    shared = parts(outer * blocks, outer * steps * columns)
    code = CODE.format(block=BLOCK, body=body.format())
    return Kernel(code, (*shared, steps, columns, blocks))
