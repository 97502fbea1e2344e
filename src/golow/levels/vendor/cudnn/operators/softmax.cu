// Rows of x, with m the maximum of a row and s = sum exp(x - m):
//
//   softmax       y = exp(x - m) / s
//   log softmax   y = x - m - log s

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
