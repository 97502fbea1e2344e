// What kernels over rows [rows, columns] share: a block takes one row, or all of them. The order of
// every sum depends only on the shape.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct Sum {
  template <typename Value>
  __device__ Value operator()(Value a, Value b) const { return a + b; }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Combines the values of all threads; every thread gets the result.
template <int THREADS, typename Combine, typename Value>
__device__ Value reduce(Value value, Combine combine) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffff, value, offset));
  }
  if constexpr (THREADS > 32) {
    __shared__ Value of_warp[THREADS / 32];
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) value = combine(value, of_warp[warp]);
    __syncthreads();
  }
  return value;
}

// The maximum of a row and the sum of exp(x - maximum).
template <int THREADS, typename T>
__device__ void normalise(const T* x, int columns, float& largest, float& sum) {
  largest = __int_as_float(0xff800000);  // minus infinity
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    largest = fmaxf(largest, static_cast<float>(x[i]));
  }
  largest = reduce<THREADS>(largest, Larger());
  sum = 0;
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    sum += expf(static_cast<float>(x[i]) - largest);
  }
  sum = reduce<THREADS>(sum, Sum());
}

