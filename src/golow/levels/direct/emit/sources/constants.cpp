// The constants of the network, as one safetensors file in the library: they are no weights.

__asm__(
    ".section .rodata\n"
    ".global golow_constants_begin\n"
    ".hidden golow_constants_begin\n"
    ".balign 64\n"
    "golow_constants_begin:\n"
    ".incbin \"" CONSTANTS "\"\n"
    ".global golow_constants_end\n"
    ".hidden golow_constants_end\n"
    "golow_constants_end:\n"
    ".byte 0\n"
    ".previous\n");
