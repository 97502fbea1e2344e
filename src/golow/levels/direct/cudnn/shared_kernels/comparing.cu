// Whether two pieces of memory hold the same bytes: sets a word to one if they do not. Both begin at
// multiples of 16 bytes.

__global__ void compare(const char* one, const char* other, unsigned* differ, size_t bytes) {
    const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
    const size_t first = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const size_t vectors = bytes / sizeof(uint4);
    bool same = true;
    for (size_t i = first; i < vectors; i += step) {
        const uint4 x = reinterpret_cast<const uint4*>(one)[i];
        const uint4 y = reinterpret_cast<const uint4*>(other)[i];
        same &= x.x == y.x && x.y == y.y && x.z == y.z && x.w == y.w;
    }
    for (size_t i = vectors * sizeof(uint4) + first; i < bytes; i += step) same &= one[i] == other[i];
    if (!same) *differ = 1;
}
