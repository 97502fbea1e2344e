// Rows of x, with m the mean of a row and d = 1 / sqrt(variance + epsilon):
//
//   y = (x - m) d w + b
//
// and, with g the gradient of y, n = (x - m) d and c = g w:
//
//   dx = d (c - mean c - n mean(c n)) + a,   dw = sum over rows of g n,   db = sum over rows of g
//
// w, b and what is added (a) are absent if their pointers are zero, and results whose pointers are
// zero are not wanted. The variance is that of the centred row. Results of a forward norm may be
// rounded to numbers of 8 bits, too, after they are multiplied by a scale.

template <typename T, typename Y, typename Q, int THREADS>
__global__ void layer_norm(const T* x, const float* weight, const float* bias, const float* scale,
                           Y* y, float* means, float* deviations, Q* rounded, int columns,
                           float epsilon) {
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
    if (y) y[start + i] = static_cast<Y>(value);
    if (rounded) rounded[start + i] = static_cast<Q>(value * *scale);
  }
  if (threadIdx.x == 0) {
    if (means) means[blockIdx.x] = mean;
    if (deviations) deviations[blockIdx.x] = deviation;
  }
}

template <typename T, typename Y, typename Q, int V, int LANES, int ITEMS>
__global__ void layer_norm_held(const T* x, const float* weight, const float* bias,
                                const float* scale, Y* y, float* means, float* deviations,
                                Q* rounded, int rows, int columns, float epsilon) {
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
  const size_t start = static_cast<size_t>(row) * columns;
  if (y) held.write(y + start, columns);
  if (rounded) {
    const float factor = *scale;
    held.apply(columns, [=](float value, int, int, int) { return value * factor; });
    held.write(rounded + start, columns);
  }
  if (threadIdx.x % LANES == 0) {
    if (means) means[row] = mean;
    if (deviations) deviations[row] = deviation;
  }
}

// Turns g of a row, which is held, into dx. n: the row's normalised values; added: a row, or absent.
template <typename A, int V, int LANES, int ITEMS>
__device__ void turn_back(Held<V, LANES, ITEMS>& g, const Held<V, LANES, ITEMS>& n,
                          const float* weight, const A* added, float deviation, int columns) {
  if (weight) {
    Held<V, LANES, ITEMS> factor;
    factor.read(weight, columns);
    g.apply(columns, [&](float value, int k, int v, int) { return value * factor.item[k][v]; });
  }
  const auto plain = [](float value, int, int) { return value; };
  const auto times = [&](float value, int k, int v) { return value * n.item[k][v]; };
  const float sum = g.combined(columns, 0.0f, Sum(), plain) / columns;
  const float product = g.combined(columns, 0.0f, Sum(), times) / columns;
  g.apply(columns, [&](float value, int k, int v, int) {
    return deviation * (value - sum - n.item[k][v] * product);
  });
  if (added) {
    Held<V, LANES, ITEMS> other;
    other.read(added, columns);
    g.apply(columns, [&](float value, int k, int v, int) { return value + other.item[k][v]; });
  }
}

template <typename G, typename T, typename A, typename Y, int V, int LANES, int ITEMS>
__global__ void layer_norm_backward_held(const G* gradient, const T* x, const float* means,
                                         const float* deviations, const float* weight,
                                         const A* added, Y* dx, int rows, int columns) {
  Held<V, LANES, ITEMS> g, n;
  const int row = g.row(rows);
  const size_t start = static_cast<size_t>(row) * columns;
  const float mean = means[row], deviation = deviations[row];
  g.read(gradient + start, columns);
  n.read(x + start, columns);
  n.apply(columns, [=](float value, int, int, int) { return (value - mean) * deviation; });
  turn_back(g, n, weight, added ? added + start : nullptr, deviation, columns);
  g.write(dx + start, columns);
}

// The same, and each block's part of dw and db: partial is [2, blocks, columns].
template <typename G, typename T, typename A, typename Y, int V, int LANES, int ITEMS>
__global__ void __launch_bounds__(GROUPED_THREADS)
    layer_norm_backward_summed(const G* gradient, const T* x, const float* means,
                               const float* deviations, const float* weight, const A* added, Y* dx,
                               float* partial, int rows, int columns) {
  Held<V, LANES, ITEMS> of_weight = {}, of_bias = {};
  each_row<LANES>(rows, [&](int row, bool is_new) {
    Held<V, LANES, ITEMS> g, n;
    const size_t start = static_cast<size_t>(row) * columns;
    const float mean = means[row], deviation = deviations[row];
    g.read(gradient + start, columns);
    n.read(x + start, columns);
    n.apply(columns, [=](float value, int, int, int) { return (value - mean) * deviation; });
    if (is_new) {
      of_weight.apply(columns, [&](float sum, int k, int v, int) {
        return sum + g.item[k][v] * n.item[k][v];
      });
      of_bias.apply(columns, [&](float sum, int k, int v, int) { return sum + g.item[k][v]; });
    }
    turn_back(g, n, weight, added ? added + start : nullptr, deviation, columns);
    g.write(dx + start, columns);
  });
  float* sums = partial + static_cast<size_t>(blockIdx.x) * columns;
  write_sums(of_weight, sums, columns);
  write_sums(of_bias, sums + static_cast<size_t>(gridDim.x) * columns, columns);
}

template <typename G, typename T, typename A, typename Y, int THREADS>
__global__ void layer_norm_backward(const G* gradient, const T* x, const float* means,
                                    const float* deviations, const float* weight, const A* added,
                                    Y* dx, int columns) {
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
    const float other = added ? static_cast<float>(added[start + i]) : 0.0f;
    dx[start + i] = static_cast<Y>(deviation * (c - sum - n * product) + other);
  }
}

template <typename G, typename T, int V>
struct GradientAndInput {
  Vector<G, V> gradient;
  Vector<T, V> x;
  float mean, deviation;
};

// dw and db, of which one may be absent.
template <typename G, typename T, int V, int THREADS>
__global__ void __launch_bounds__(THREADS)
    layer_norm_weights(const G* gradient, const T* x, const float* means, const float* deviations,
                       float* dw, float* db, float* partial, unsigned* arrivals, int rows,
                       int columns, int tiles) {
  using Row = GradientAndInput<G, T, V>;
  const Share share = share_of<V>(rows, tiles);
  sum_over_rows<2, V, THREADS>(
      share, columns, partial, arrivals,
      [=](long long row) -> Row {
        const size_t place = row * columns + share.column;
        return {load<V>(gradient + place), load<V>(x + place), means[row], deviations[row]};
      },
      [](const Row& row, float (&sums)[2][V]) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const float g = static_cast<float>(row.gradient.item[v]);
          sums[0][v] += g * (static_cast<float>(row.x.item[v]) - row.mean) * row.deviation;
          sums[1][v] += g;
        }
      },
      [=](int which, long long column, float sum) {
        float* result = which == 0 ? dw : db;
        if (result) result[column] = sum;
      });
}

// The sums of those parts; grid: (2 * tiles, parts).
template <int V, int THREADS>
__global__ void __launch_bounds__(THREADS)
    layer_norm_parts(const float* of_blocks, float* dw, float* db, float* partial,
                     unsigned* arrivals, int blocks, int columns, int tiles) {
  const Share share = share_of<V>(blocks, tiles);
  const float* column = of_blocks + share.outer * blocks * columns + share.column;
  float* result = share.outer == 0 ? dw : db;
  sum_over_rows<1, V, THREADS>(
      share, columns, partial, arrivals,
      [=](long long row) { return load<V>(column + row * columns); },
      [](const Vector<float, V>& values, float (&sums)[1][V]) {
#pragma unroll
        for (int v = 0; v < V; ++v) sums[0][v] += values.item[v];
      },
      [=](int, long long i, float sum) {
        if (result) result[i] = sum;
      });
}
