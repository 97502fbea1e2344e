// nll of log softmax, and its gradient (softmax - [column = t]) * g / weight, in one kernel. Sums
// over rows are float64. A target outside the columns is never used as an index: its loss is NaN.

// The sums of the blocks of one launch, and how many blocks are done. The last block adds the sums
// in the order of the blocks and resets the count to 0. Only one launch may run at a time.
constexpr int MOST_BLOCKS = 1024;
__device__ double block_loss[MOST_BLOCKS];
__device__ unsigned blocks_done;

// Whether this block is the last one to deliver its sum.
__device__ inline bool is_last(double sum) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    block_loss[blockIdx.x] = sum;
    __threadfence();
    last = atomicAdd(&blocks_done, 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

// Computes dlogits and the loss; each block counts the targets itself.
template <typename T, int THREADS>
__global__ void cross_entropy(
    const T* logits, const long long* target, const float* gradient, float* loss, T* dlogits,
    int rows, int columns, int mean, long long ignored) {
  int kept = 0;
  for (int row = threadIdx.x; row < rows; row += THREADS) kept += target[row] != ignored;
  kept = reduce<THREADS>(kept, Sum());
  const float share = mean ? *gradient / kept : *gradient;
  double total = 0;
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const long long chosen = target[row];
    const T* x = logits + static_cast<size_t>(row) * columns;
    T* dx = dlogits + static_cast<size_t>(row) * columns;
    if (chosen == ignored) {
      for (int i = threadIdx.x; i < columns; i += THREADS) dx[i] = static_cast<T>(0.0f);
      continue;
    }
    float largest, sum;
    normalise<THREADS>(x, columns, largest, sum);
    for (int i = threadIdx.x; i < columns; i += THREADS) {
      const float centred = static_cast<float>(x[i]) - largest;
      if (i == chosen) total += logf(sum) - centred;
      dx[i] = static_cast<T>((expf(centred) / sum - (i == chosen)) * share);
    }
    if (threadIdx.x == 0 && (chosen < 0 || chosen >= columns)) total = __int_as_float(0x7fc00000);
  }
  total = reduce<THREADS>(total, Sum());
  if (!is_last(total)) return;
  const volatile double* sums = block_loss;
  total = 0;
  for (int block = threadIdx.x; block < gridDim.x; block += THREADS) total += sums[block];
  total = reduce<THREADS>(total, Sum());
  if (threadIdx.x != 0) return;
  *loss = static_cast<float>(mean ? total / kept : total);
  blocks_done = 0;
}
