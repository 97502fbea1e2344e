// For each row that the indices name, the sum of its gradients, in their order:
//
//   y[o, r, i] = sum over k with index[k] = r of g[o, k, i]
//
// A block looks at one k. If an earlier one has the same index, that one's block adds them all.
// The order of every sum is that of k, whatever the blocks' order. Other rows stay as they are.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename T, typename Place>
__global__ void add_rows(const T* gradient, const Place* index, float* y, long long count,
                         long long inner, long long size, long long skipped) {
  const long long k = blockIdx.x;
  const Place row = index[k];
  __shared__ int earlier;
  if (threadIdx.x == 0) earlier = row == skipped;
  __syncthreads();
  for (long long j = threadIdx.x; j < k; j += blockDim.x) {
    if (index[j] == row) earlier = 1;
  }
  __syncthreads();
  if (earlier) return;
  const T* from = gradient + blockIdx.y * count * inner;
  float* to = y + (blockIdx.y * size + row) * inner;
  for (long long i = threadIdx.x; i < inner; i += blockDim.x) {
    float sum = 0;
    for (long long j = k; j < count; ++j) {
      if (index[j] == row) sum += static_cast<float>(from[j * inner + i]);
    }
    to[i] = sum;
  }
}
