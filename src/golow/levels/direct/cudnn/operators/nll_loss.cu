// The loss of a row is -y[t], for y a row of log softmax and t its target; summed in float64. A
// mean divides by the number of rows whose target is not the ignored one (NaN if there are none). A
// target outside the columns is never used as an index: its loss is NaN.

__device__ inline double row_loss(const float* y, long long target, int columns) {
  if (target < 0 || target >= columns) return __int_as_float(0x7fc00000);  // NaN
  return -static_cast<double>(y[target]);
}

// Runs in one block.
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
