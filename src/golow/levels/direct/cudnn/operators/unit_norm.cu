// Rows of x, divided by their length:
//
//   y = x / max(sqrt(sum(x^2)), epsilon) f
//
// Row r of x begins at the place that three steps give; its factor f is the one at r / each % count,
// and is absent if its pointer is zero.

__device__ inline size_t place_of(int row, int second_size, int third_size, long long first_step,
                                  long long second_step, long long third_step) {
  const int third = row % third_size, rest = row / third_size;
  return rest / second_size * first_step + rest % second_size * second_step + third * third_step;
}

__device__ inline float scale_of(float squares, float epsilon, const float* factor, int row,
                                 int each, int count) {
  const float length = sqrtf(squares);  // NaN stays NaN, which fmaxf would not leave
  const float scale = 1.0f / (length < epsilon ? epsilon : length);
  return factor ? scale * factor[row / each % count] : scale;
}

#define ARGUMENTS                                                                                  \
  const T *x, const float *factor, Y *y, int rows, int columns, int second_size, int third_size,   \
      long long first_step, long long second_step, long long third_step, int each, int count,      \
      float epsilon

template <typename T, typename Y, int THREADS>
__global__ void unit_norm(ARGUMENTS) {
  const int row = blockIdx.x;
  x += place_of(row, second_size, third_size, first_step, second_step, third_step);
  float squares = 0;
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    const float value = static_cast<float>(x[i]);
    squares += value * value;
  }
  const float scale =
      scale_of(reduce<THREADS>(squares, Sum()), epsilon, factor, row, each, count);
  for (int i = threadIdx.x; i < columns; i += THREADS)
    y[static_cast<size_t>(row) * columns + i] = static_cast<Y>(static_cast<float>(x[i]) * scale);
}

template <typename T, typename Y, int V, int LANES, int ITEMS>
__global__ void unit_norm_held(ARGUMENTS) {
  Held<V, LANES, ITEMS> held;
  const int row = held.row(rows);
  x += place_of(row, second_size, third_size, first_step, second_step, third_step);
  held.read(x, columns);
  const auto squared = [](float value, int, int) { return value * value; };
  const float squares = held.combined(columns, 0.0f, Sum(), squared);
  const float scale = scale_of(squares, epsilon, factor, row, each, count);
  held.apply(columns, [=](float value, int, int, int) { return value * scale; });
  held.write(y + static_cast<size_t>(row) * columns, columns);
}
