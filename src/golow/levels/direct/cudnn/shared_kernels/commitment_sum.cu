// The weighted sum of a tensor's elements: the number to which a worker commits while it is timed
// (golow/worker/results.py). LOCATE gives the place of element i in the memory's order, `place`, and
// which element of PyTorch's order it is, `element`. Each block writes one sum, in float64.

// From -1 to 1. The hash is the finalizer of MurmurHash3 (Austin Appleby, public domain).
__device__ inline float weight_of(unsigned element) {
  unsigned hashed = element * 0x9E3779B1u;
  hashed = (hashed ^ hashed >> 16) * 0x85EBCA6Bu;
  hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35u;
  hashed ^= hashed >> 16;
  return static_cast<float>(hashed / 2147483648.0 - 1.0);
}

template <typename X, int THREADS>
__global__ void weigh(const X* x, double* sums, Index count) {
  // grid: the number of sums
  double sum = 0.0;
  const Index step = gridDim.x * THREADS;
#pragma unroll 4
  for (Index i = blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
    LOCATE
    sum += static_cast<float>(plain(x[place])) * weight_of(element);
  }
  sum = reduce<THREADS>(sum, Sum());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
