// Rows of x, with m the maximum of a row and s = sum exp(x - m):
//
//   softmax       y = exp(x - m) / s
//   log softmax   y = x - m - log s

template <typename T, typename Y, int THREADS, bool LOGARITHM>
__global__ void softmax(const T* x, Y* y, int columns) {
  const size_t start = static_cast<size_t>(blockIdx.x) * columns;
  float largest, sum;
  normalise<THREADS>(x + start, columns, largest, sum);
  const float logarithm = logf(sum);
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    const float centred = static_cast<float>(x[start + i]) - largest;
    y[start + i] = static_cast<Y>(LOGARITHM ? centred - logarithm : expf(centred) / sum);
  }
}

template <typename T, typename Y, int V, int LANES, int ITEMS, bool LOGARITHM>
__global__ void softmax_held(const T* x, Y* y, int rows, int columns) {
  Held<V, LANES, ITEMS> held;
  const int row = held.row(rows);
  held.read(x + static_cast<size_t>(row) * columns, columns);
  const auto plain = [](float value, int, int) { return value; };
  const float largest = held.combined(columns, __int_as_float(0xff800000), Larger(), plain);
  const auto raised = [=](float value, int, int) { return expf(value - largest); };
  const float sum = held.combined(columns, 0.0f, Sum(), raised), logarithm = logf(sum);
  held.apply(columns, [=](float value, int, int, int) {
    const float centred = value - largest;
    return LOGARITHM ? centred - logarithm : expf(centred) / sum;
  });
  held.write(y + static_cast<size_t>(row) * columns, columns);
}

// softmax: dx = y * (g - sum g y);  log softmax: dx = g - exp(y) * sum g
template <bool LOGARITHM>
__device__ float of_argument(float g, float y, float sum) {
  return LOGARITHM ? g - expf(y) * sum : y * (g - sum);
}

template <typename G, typename Y, typename T, int THREADS, bool LOGARITHM>
__global__ void softmax_backward(const G* gradient, const Y* result, T* dx, int columns) {
  const size_t start = static_cast<size_t>(blockIdx.x) * columns;
  const auto g = [=](int i) { return static_cast<float>(gradient[start + i]); };
  const auto y = [=](int i) { return static_cast<float>(result[start + i]); };
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += THREADS) sum += LOGARITHM ? g(i) : g(i) * y(i);
  sum = reduce<THREADS>(sum, Sum());
  for (int i = threadIdx.x; i < columns; i += THREADS)
    dx[start + i] = static_cast<T>(of_argument<LOGARITHM>(g(i), y(i), sum));
}

template <typename G, typename Y, typename T, int V, int LANES, int ITEMS, bool LOGARITHM>
__global__ void softmax_backward_held(const G* gradient, const Y* result, T* dx, int rows,
                                      int columns) {
  Held<V, LANES, ITEMS> g, y;
  const size_t start = static_cast<size_t>(g.row(rows)) * columns;
  g.read(gradient + start, columns);
  y.read(result + start, columns);
  const float sum = g.combined(columns, 0.0f, Sum(), [&](float value, int k, int v) {
    return LOGARITHM ? value : value * y.item[k][v];
  });
  g.apply(columns, [&](float value, int k, int v, int) {
    return of_argument<LOGARITHM>(value, y.item[k][v], sum);
  });
  g.write(dx + start, columns);
}
