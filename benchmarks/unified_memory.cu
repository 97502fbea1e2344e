// Reads data that the host wrote, once or several times, and adds it up.
//
// Sums of 32-bit words wrap around, so they do not depend on the order of the threads. Pass p counts
// 2p + 1 times, so that n passes give n * n times the sum of the data: a pass that were left out
// would show.

__global__ void read(const uint4* data, unsigned* result, unsigned long long count,
                     unsigned passes) {
    const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
    const unsigned long long first =
        static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    unsigned sum = 0;
    for (unsigned pass = 0; pass < passes; ++pass) {
        unsigned part = 0;
        for (unsigned long long i = first; i < count; i += step) {
            const uint4 words = data[i];
            part += words.x + words.y + words.z + words.w;
        }
        sum += part * (2 * pass + 1);
        asm volatile("" ::: "memory");  // what one pass has read is read again in the next
    }
    sum = __reduce_add_sync(0xffffffffu, sum);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(result, sum);
    }
}
