"""The types in which elements are stored: torch's names, the kernels' names, and sizes in bytes."""

from __future__ import annotations

from golow.lower.operators.quantize import E4M3

C_TYPES = {
    "float32": "float",
    "bfloat16": "__nv_bfloat16",
    "float16": "__half",
    "int64": "long long",
    "int32": "int",
    "bool": "bool",
    "uint8": "unsigned char",
    "int8": "signed char",
    E4M3: "E4m3",
}
ITEM_BYTES = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int64": 8,
    "int32": 4,
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    E4M3: 1,
}
OF_8_BITS = frozenset(("int8", E4M3))
"""Types of numbers that only quantised layers compute with."""
