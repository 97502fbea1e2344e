// Losses of a classification, rows [rows, columns] of logits x and a target t for each row.
//
//   softmax       y = exp(x - m) / s,      with m the row's largest and s = sum exp(x - m)
//   log softmax   y = x - m - log s
//   nll           loss of a row = -y[t], for y a log softmax; summed, or over the number of rows
//                 whose target is not the ignored one (their mean; NaN where there is none)
//   cross entropy = nll of log softmax; its gradient is (softmax - [column = t]) * g / weight
//
// A block takes a row. Sums over rows are of float64 and in an order that depends on the shape
// alone. A target outside the columns is never read: its loss is NaN.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct Sum {
  template <typename Value>
  __device__ Value operator()(Value a, Value b) const { return a + b; }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Of the values of all threads, to every thread.
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

// The largest of a row and the sum of exp(x - largest).
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

template <typename T, int THREADS, bool LOGARITHM>
__global__ void softmax(const T* x, float* y, int columns) {
  const size_t start = static_cast<size_t>(blockIdx.x) * columns;
  float largest, sum;
  normalise<THREADS>(x + start, columns, largest, sum);
  const float logarithm = logf(sum);
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    const float centred = static_cast<float>(x[start + i]) - largest;
    y[start + i] = LOGARITHM ? centred - logarithm : expf(centred) / sum;
  }
}

// softmax: dx = y * (g - sum g y);  log softmax: dx = g - exp(y) * sum g
template <typename T, int THREADS, bool LOGARITHM>
__global__ void softmax_backward(const float* gradient, const float* result, T* dx, int columns) {
  const size_t start = static_cast<size_t>(blockIdx.x) * columns;
  const float *g = gradient + start, *y = result + start;
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += THREADS) sum += LOGARITHM ? g[i] : g[i] * y[i];
  sum = reduce<THREADS>(sum, Sum());
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    dx[start + i] = static_cast<T>(LOGARITHM ? g[i] - expf(y[i]) * sum : y[i] * (g[i] - sum));
  }
}

__device__ inline double row_loss(const float* y, long long target, int columns) {
  if (target < 0 || target >= columns) return __int_as_float(0x7fc00000);  // NaN
  return -static_cast<double>(y[target]);
}

// In one block.
template <int THREADS>
__global__ void nll_loss(
    const float* y, const long long* target, float* loss, float* weight, int rows, int columns,
    int mean, long long ignored) {
  double sum = 0;
  int kept = 0;
  for (int row = threadIdx.x; row < rows; row += THREADS) {
    if (target[row] == ignored) continue;
    sum += row_loss(y + static_cast<size_t>(row) * columns, target[row], columns);
    ++kept;
  }
  sum = reduce<THREADS>(sum, Sum());
  kept = reduce<THREADS>(kept, Sum());
  if (threadIdx.x != 0) return;
  *loss = static_cast<float>(mean ? sum / kept : sum);
  *weight = static_cast<float>(kept);
}

template <int THREADS>
__global__ void nll_loss_backward(
    const float* gradient, const long long* target, const float* weight, float* dy, int columns,
    int mean, long long ignored) {
  const long long chosen = target[blockIdx.x];
  const float share = mean ? *gradient / *weight : *gradient;
  float* row = dy + static_cast<size_t>(blockIdx.x) * columns;
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    row[i] = i == chosen && chosen != ignored ? -share : 0.0f;
  }
}

// What the blocks of one launch have summed, and how many are done. The last one adds up in the
// order of the blocks and leaves the count at 0 for the next launch: one launch at a time.
constexpr int MOST_BLOCKS = 1024;
__device__ double block_loss[MOST_BLOCKS];
__device__ unsigned blocks_done;

// Whether this block is the last one to come here with its sum.
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

// dlogits and the loss together; each block counts the targets for itself.
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
