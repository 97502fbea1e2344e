// Rows of s, the sum of x and a residual or x alone, with d = 1 / sqrt(mean(s^2) + epsilon):
//
//   y = s d w
//
// and, with g the gradient of y, n = s d and c = g w:
//
//   ds = d (c - n mean(c n)) + a,   dw = sum over rows of g n
//
// Residual, w, what is added (a), and results are absent if their pointers are zero. Results of a
// forward norm may be rounded to numbers of 8 bits, too, after they are multiplied by a scale.

template <typename T, typename R>
__device__ float summed(const T* x, const R* residual, size_t place) {
  const float value = static_cast<float>(x[place]);
  return residual ? value + static_cast<float>(residual[place]) : value;
}

template <typename T, typename R, typename Y, typename Q, int THREADS>
__global__ void rms_norm(const T* x, const R* residual, const float* weight, const float* scale,
                         Y* y, float* deviations, Y* total, Q* rounded, int columns,
                         float epsilon) {
  const size_t start = static_cast<size_t>(blockIdx.x) * columns;
  float squares = 0;
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    const float value = summed(x, residual, start + i);
    squares += value * value;
    if (total) total[start + i] = static_cast<Y>(value);
  }
  const float deviation = rsqrtf(reduce<THREADS>(squares, Sum()) / columns + epsilon);
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    float value = summed(x, residual, start + i) * deviation;
    if (weight) value *= weight[i];
    if (y) y[start + i] = static_cast<Y>(value);
    if (rounded) rounded[start + i] = static_cast<Q>(value * *scale);
  }
  if (threadIdx.x == 0 && deviations) deviations[blockIdx.x] = deviation;
}

template <typename T, typename R, typename Y, typename Q, int V, int LANES, int ITEMS>
__global__ void rms_norm_held(const T* x, const R* residual, const float* weight,
                              const float* scale, Y* y, float* deviations, Y* total, Q* rounded,
                              int rows, int columns, float epsilon) {
  Held<V, LANES, ITEMS> held;
  const int row = held.row(rows);
  const size_t start = static_cast<size_t>(row) * columns;
  held.read(x + start, columns);
  if (residual) {
    Held<V, LANES, ITEMS> added;
    added.read(residual + start, columns);
    held.apply(columns, [&](float value, int k, int v, int) { return value + added.item[k][v]; });
    if (total) held.write(total + start, columns);
  }
  const auto squared = [](float value, int, int) { return value * value; };
  const float mean = held.combined(columns, 0.0f, Sum(), squared) / columns;
  const float deviation = rsqrtf(mean + epsilon);
  held.apply(columns, [=](float value, int, int, int) { return value * deviation; });
  if (weight) {
    Held<V, LANES, ITEMS> factor;
    factor.read(weight, columns);
    held.apply(columns, [&](float value, int k, int v, int) { return value * factor.item[k][v]; });
  }
  if (y) held.write(y + start, columns);
  if (rounded) {
    const float factor = *scale;
    held.apply(columns, [=](float value, int, int, int) { return value * factor; });
    held.write(rounded + start, columns);
  }
  if (threadIdx.x % LANES == 0 && deviations) deviations[row] = deviation;
}

// Turns g of a row, which is held, into ds. n: the row's normalised values; added: a row, or absent.
template <typename A, int V, int LANES, int ITEMS>
__device__ void turn_back(Held<V, LANES, ITEMS>& g, const Held<V, LANES, ITEMS>& n,
                          const float* weight, const A* added, float deviation, int columns) {
  if (weight) {
    Held<V, LANES, ITEMS> factor;
    factor.read(weight, columns);
    g.apply(columns, [&](float value, int k, int v, int) { return value * factor.item[k][v]; });
  }
  const auto times = [&](float value, int k, int v) { return value * n.item[k][v]; };
  const float product = g.combined(columns, 0.0f, Sum(), times) / columns;
  g.apply(columns, [&](float value, int k, int v, int) {
    return deviation * (value - n.item[k][v] * product);
  });
  if (added) {
    Held<V, LANES, ITEMS> other;
    other.read(added, columns);
    g.apply(columns, [&](float value, int k, int v, int) { return value + other.item[k][v]; });
  }
}

template <typename G, typename T, typename A, typename Y, int V, int LANES, int ITEMS>
__global__ void rms_norm_backward_held(const G* gradient, const T* s, const float* deviations,
                                       const float* weight, const A* added, Y* ds, int rows,
                                       int columns) {
  Held<V, LANES, ITEMS> g, n;
  const int row = g.row(rows);
  const size_t start = static_cast<size_t>(row) * columns;
  const float deviation = deviations[row];
  g.read(gradient + start, columns);
  n.read(s + start, columns);
  n.apply(columns, [=](float value, int, int, int) { return value * deviation; });
  turn_back(g, n, weight, added ? added + start : nullptr, deviation, columns);
  g.write(ds + start, columns);
}

// The same, and each block's part of dw: partial is [blocks, columns].
template <typename G, typename T, typename A, typename Y, int V, int LANES, int ITEMS>
__global__ void __launch_bounds__(GROUPED_THREADS)
    rms_norm_backward_summed(const G* gradient, const T* s, const float* deviations,
                             const float* weight, const A* added, Y* ds, float* partial, int rows,
                             int columns) {
  Held<V, LANES, ITEMS> of_weight = {};
  each_row<LANES>(rows, [&](int row, bool is_new) {
    Held<V, LANES, ITEMS> g, n;
    const size_t start = static_cast<size_t>(row) * columns;
    const float deviation = deviations[row];
    g.read(gradient + start, columns);
    n.read(s + start, columns);
    n.apply(columns, [=](float value, int, int, int) { return value * deviation; });
    if (is_new) {
      of_weight.apply(columns, [&](float sum, int k, int v, int) {
        return sum + g.item[k][v] * n.item[k][v];
      });
    }
    turn_back(g, n, weight, added ? added + start : nullptr, deviation, columns);
    g.write(ds + start, columns);
  });
  write_sums(of_weight, partial + static_cast<size_t>(blockIdx.x) * columns, columns);
}

template <typename G, typename T, typename A, typename Y, int THREADS>
__global__ void rms_norm_backward(const G* gradient, const T* s, const float* deviations,
                                  const float* weight, const A* added, Y* ds, int columns) {
  const size_t start = static_cast<size_t>(blockIdx.x) * columns;
  const float deviation = deviations[blockIdx.x];
  float product = 0;
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    const float c = static_cast<float>(gradient[start + i]) * (weight ? weight[i] : 1.0f);
    product += c * static_cast<float>(s[start + i]) * deviation;
  }
  product = reduce<THREADS>(product, Sum()) / columns;
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    const float c = static_cast<float>(gradient[start + i]) * (weight ? weight[i] : 1.0f);
    const float n = static_cast<float>(s[start + i]) * deviation;
    const float value = deviation * (c - n * product);
    const float other = added ? static_cast<float>(added[start + i]) : 0.0f;
    ds[start + i] = static_cast<Y>(value + other);
  }
}

template <typename G, typename T, int V>
struct GradientAndInput {
  Vector<G, V> gradient;
  Vector<T, V> s;
  float deviation;
};

template <typename G, typename T, int V, int THREADS>
__global__ void __launch_bounds__(THREADS)
    rms_norm_weights(const G* gradient, const T* s, const float* deviations, float* dw,
                     float* partial, unsigned* arrivals, int rows, int columns, int tiles) {
  using Row = GradientAndInput<G, T, V>;
  const Share share = share_of<V>(rows, tiles);
  sum_over_rows<1, V, THREADS>(
      share, columns, partial, arrivals,
      [=](long long row) -> Row {
        const size_t place = row * columns + share.column;
        return {load<V>(gradient + place), load<V>(s + place), deviations[row]};
      },
      [](const Row& row, float (&sums)[1][V]) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const float g = static_cast<float>(row.gradient.item[v]);
          sums[0][v] += g * static_cast<float>(row.s.item[v]) * row.deviation;
        }
      },
      [=](int, long long column, float sum) { dw[column] = sum; });
}
