// Sums over the middle axis of a tensor [outer, reduced, inner]:
//
//     y[o, i] = factor * sum_r x[o, r, i]
//
// in float32, every sum in a fixed order. Adjacent threads of a warp take adjacent i, so that reads
// are coalesced if inner is long; each warp of a block takes every eighth r, and their sums meet in
// shared memory. Long sums are split over blocks: the first launch writes `parts` partial sums for
// each [o, i], the second adds them. If inner is 1, the threads of a block share one sum.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int LANES = 32, WARPS = 8;

template <typename X, typename Y>
__global__ void sum_columns(const X* x, Y* y, long long reduced, long long inner, int parts,
                            float factor) {
    // grid: (inner / 32, parts, outer); y is [outer, parts, inner]
    __shared__ float sums[WARPS][LANES];
    const long long i = (long long)blockIdx.x * LANES + threadIdx.x;
    const int part = blockIdx.y;
    const long long first = reduced * part / parts, last = reduced * (part + 1) / parts;
    const X* row = x + (long long)blockIdx.z * reduced * inner;
    float sum = 0.0f;
    if (i < inner) {
        for (long long r = first + threadIdx.y; r < last; r += WARPS) {
            sum += (float)row[r * inner + i];
        }
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && i < inner) {
        for (int w = 1; w < WARPS; ++w) sum += sums[w][threadIdx.x];
        y[((long long)blockIdx.z * parts + part) * inner + i] = (Y)(factor * sum);
    }
}

template <typename X, typename Y>
__global__ void sum_rows(const X* x, Y* y, long long reduced, float factor) {
    // grid: (1, 1, outer); one block for each sum, inner is 1
    __shared__ float sums[LANES * WARPS];
    const X* row = x + (long long)blockIdx.z * reduced;
    float sum = 0.0f;
    for (long long r = threadIdx.x; r < reduced; r += LANES * WARPS) sum += (float)row[r];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = LANES * WARPS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.z] = (Y)(factor * sums[0]);
}
