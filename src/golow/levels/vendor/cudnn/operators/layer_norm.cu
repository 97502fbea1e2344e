// Rows of x, with m the mean of a row and d = 1 / sqrt(variance + epsilon):
//
//   y = (x - m) d w + b
//
// and, with g the gradient of y, n = (x - m) d and c = g w:
//
//   dx = d (c - mean c - n mean(c n)),   dw = sum over rows of g n,   db = sum over rows of g
//
// w and b are absent if their pointers are zero, and the results m and d are not wanted then. The variance is that of the centred row.

template <typename T, typename Y, int THREADS>
__global__ void layer_norm(const T* x, const float* weight, const float* bias, Y* y, float* means,
                           float* deviations, int columns, float epsilon) {
  const size_t start = static_cast<size_t>(blockIdx.x) * columns;
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += THREADS) sum += static_cast<float>(x[start + i]);
  const float mean = reduce<THREADS>(sum, Sum()) / columns;
  float squares = 0;
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    const float centred = static_cast<float>(x[start + i]) - mean;
    squares += centred * centred;
  }
  const float deviation = rsqrtf(reduce<THREADS>(squares, Sum()) / columns + epsilon);
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    float value = (static_cast<float>(x[start + i]) - mean) * deviation;
    if (weight) value *= weight[i];
    if (bias) value += bias[i];
    y[start + i] = static_cast<Y>(value);
  }
  if (threadIdx.x == 0) {
    if (means) means[blockIdx.x] = mean;
    if (deviations) deviations[blockIdx.x] = deviation;
  }
}

template <typename T, typename Y, int V, int LANES, int ITEMS>
__global__ void layer_norm_held(const T* x, const float* weight, const float* bias, Y* y,
                                float* means, float* deviations, int rows, int columns,
                                float epsilon) {
  Held<V, LANES, ITEMS> held;
  const int row = held.row(rows);
  held.read(x + static_cast<size_t>(row) * columns, columns);
  const auto plain = [](float value, int, int) { return value; };
  const float mean = held.combined(columns, 0.0f, Sum(), plain) / columns;
  const auto squared = [=](float value, int, int) { return (value - mean) * (value - mean); };
  const float variance = held.combined(columns, 0.0f, Sum(), squared) / columns;
  const float deviation = rsqrtf(variance + epsilon);
  held.apply(columns, [=](float value, int, int, int) { return (value - mean) * deviation; });
  if (weight) {
    Held<V, LANES, ITEMS> factor;
    factor.read(weight, columns);
    held.apply(columns, [&](float value, int k, int v, int) { return value * factor.item[k][v]; });
  }
  if (bias) {
    Held<V, LANES, ITEMS> added;
    added.read(bias, columns);
    held.apply(columns, [&](float value, int k, int v, int) { return value + added.item[k][v]; });
  }
  held.write(y + static_cast<size_t>(row) * columns, columns);
  if (threadIdx.x % LANES == 0) {
    if (means) means[row] = mean;
    if (deviations) deviations[row] = deviation;
  }
}

template <typename G, typename T, typename Y, int V, int LANES, int ITEMS>
__global__ void layer_norm_backward_held(const G* gradient, const T* x, const float* means,
                                         const float* deviations, const float* weight, Y* dx,
                                         int rows, int columns) {
  Held<V, LANES, ITEMS> c, n;
  const int row = c.row(rows);
  const size_t start = static_cast<size_t>(row) * columns;
  const float mean = means[row], deviation = deviations[row];
  c.read(gradient + start, columns);
  n.read(x + start, columns);
  n.apply(columns, [=](float value, int, int, int) { return (value - mean) * deviation; });
  if (weight) {
    Held<V, LANES, ITEMS> factor;
    factor.read(weight, columns);
    c.apply(columns, [&](float value, int k, int v, int) { return value * factor.item[k][v]; });
  }
  const auto plain = [](float value, int, int) { return value; };
  const auto times = [&](float value, int k, int v) { return value * n.item[k][v]; };
  const float sum = c.combined(columns, 0.0f, Sum(), plain) / columns;
  const float product = c.combined(columns, 0.0f, Sum(), times) / columns;
  c.apply(columns, [&](float value, int k, int v, int) {
    return deviation * (value - sum - n.item[k][v] * product);
  });
  c.write(dx + start, columns);
}

template <typename G, typename T, typename Y, int THREADS>
__global__ void layer_norm_backward(const G* gradient, const T* x, const float* means,
                                    const float* deviations, const float* weight, Y* dx,
                                    int columns) {
  const size_t start = static_cast<size_t>(blockIdx.x) * columns;
  const float mean = means[blockIdx.x], deviation = deviations[blockIdx.x];
  float sum = 0, product = 0;
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    const float c = static_cast<float>(gradient[start + i]) * (weight ? weight[i] : 1.0f);
    sum += c;
    product += c * (static_cast<float>(x[start + i]) - mean) * deviation;
  }
  sum = reduce<THREADS>(sum, Sum()) / columns;
  product = reduce<THREADS>(product, Sum()) / columns;
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    const float c = static_cast<float>(gradient[start + i]) * (weight ? weight[i] : 1.0f);
    const float n = (static_cast<float>(x[start + i]) - mean) * deviation;
    dx[start + i] = static_cast<Y>(deviation * (c - sum - n * product));
  }
}

// grid: (columns / 32, parts); block: (32, 8). Sums of a part of the rows, [parts, columns].
template <typename G, typename T>
__global__ void layer_norm_weights(const G* gradient, const T* x, const float* means,
                                   const float* deviations, float* dw, float* db, int rows,
                                   int columns, int parts) {
  __shared__ float of_weight[8][32], of_bias[8][32];
  const int i = blockIdx.x * 32 + threadIdx.x;
  const long long first = static_cast<long long>(rows) * blockIdx.y / parts;
  const long long last = static_cast<long long>(rows) * (blockIdx.y + 1) / parts;
  float w = 0, b = 0;
  if (i < columns) {
    for (long long row = first + threadIdx.y; row < last; row += 8) {
      const float g = static_cast<float>(gradient[row * columns + i]);
      w += g * (static_cast<float>(x[row * columns + i]) - means[row]) * deviations[row];
      b += g;
    }
  }
  of_weight[threadIdx.y][threadIdx.x] = w;
  of_bias[threadIdx.y][threadIdx.x] = b;
  __syncthreads();
  if (threadIdx.y == 0 && i < columns) {
    for (int k = 1; k < 8; ++k) {
      w += of_weight[k][threadIdx.x];
      b += of_bias[k][threadIdx.x];
    }
    dw[static_cast<long long>(blockIdx.y) * columns + i] = w;
    db[static_cast<long long>(blockIdx.y) * columns + i] = b;
  }
}
