// The cross-entropy of rows of scores x. With m the largest of a row, l = log sum exp(x - m) and t
// its target:
//
//   loss of a row   l - (x[t] - m)
//   gradient        dx = share * (exp(x - m - l) - (1 at t))
//
// share is the gradient of the loss, for a mean divided by the number of rows that count. The
// logarithms of softmax are never stored. Rows lie `pitch` elements apart, a multiple of V.

__device__ inline float minus_infinity() { return __int_as_float(0xff800000); }

// The largest value so far, and the sum of exp(value - largest).
struct Running {
  float largest, sum;

  // What is subtracted. Where all values are minus infinity there is no difference of infinities.
  __device__ static float base(float largest) {
    return largest == minus_infinity() ? 0.0f : largest;
  }

  // Takes the first `valid` of these values.
  template <int V, typename T>
  __device__ void add(const Vector<T, V>& values, int valid) {
    float now = largest;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (v < valid) now = fmaxf(now, static_cast<float>(values.item[v]));
    }
    sum *= expf(largest - base(now));
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (v < valid) sum += expf(static_cast<float>(values.item[v]) - base(now));
    }
    largest = now;
  }
};

// Reads each row once. A block takes a row.
template <typename T, int THREADS, int V>
__global__ void cross_entropy_rows(const T* x, float* largest, float* logarithm, int columns,
                                   long long pitch) {
  const T* row = x + blockIdx.x * pitch;
  Running mine = {minus_infinity(), 0.0f};
  int i = threadIdx.x * V;
#pragma unroll 4
  for (; i + V <= columns; i += THREADS * V) mine.add(load<V>(row + i), V);
  if (i < columns) mine.add(load<V>(row, i, columns), columns - i);
  const float most = reduce<THREADS>(mine.largest, Larger());
  const float scaled = mine.sum * expf(mine.largest - Running::base(most));
  const float sum = reduce<THREADS>(scaled, Sum());
  if (threadIdx.x != 0) return;
  largest[blockIdx.x] = most;
  logarithm[blockIdx.x] = logf(sum);
}

// Adds the losses of the rows in float64, in one block. A mean divides by the number of rows whose
// target is not the ignored one (NaN if there are none). A target outside the columns is never used
// as an index: its loss is NaN.
template <typename T, int THREADS>
__global__ void cross_entropy(const T* x, const long long* target, const float* largest,
                              const float* logarithm, float* loss, float* weight, int rows,
                              int columns, long long pitch, int mean, long long ignored) {
  double sum = 0;
  int kept = 0;
  for (int row = threadIdx.x; row < rows; row += THREADS) {
    const long long chosen = target[row];
    if (chosen == ignored) continue;
    ++kept;
    if (chosen < 0 || chosen >= columns) {
      sum = __int_as_float(0x7fc00000);  // NaN
      continue;
    }
    const double score = static_cast<float>(x[row * pitch + chosen]);
    sum += logarithm[row] - (score - largest[row]);
  }
  sum = reduce<THREADS>(sum, Sum());
  kept = reduce<THREADS>(kept, Sum());
  if (threadIdx.x != 0) return;
  *loss = static_cast<float>(mean ? sum / kept : sum);
  *weight = static_cast<float>(kept);
}

// A block takes a row. dx may be the same memory as x: each thread reads what it overwrites.
template <typename X, typename Y, int THREADS, int V>
__global__ void cross_entropy_backward(const float* gradient, const X* x, const long long* target,
                                       const float* largest, const float* logarithm,
                                       const float* weight, Y* dx, int columns, long long pitch,
                                       long long pitch_dx, int mean, long long ignored) {
  const long long chosen = target[blockIdx.x];
  const bool counts = chosen != ignored && chosen >= 0 && chosen < columns;
  const float share = mean ? *gradient / *weight : *gradient;
  const float most = largest[blockIdx.x], log_sum = logarithm[blockIdx.x];
  const X* row = x + blockIdx.x * pitch;
  Y* to = dx + blockIdx.x * pitch_dx;
  for (int i = threadIdx.x * V; i < columns; i += THREADS * V) {
    Vector<Y, V> values;
#pragma unroll
    for (int v = 0; v < V; ++v) values.item[v] = static_cast<Y>(0.0f);
    if (counts) {
      const Vector<X, V> scores = load<V>(row, i, columns);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float softmax = expf(static_cast<float>(scores.item[v]) - most - log_sum);
        values.item[v] = static_cast<Y>(share * (i + v == chosen ? softmax - 1.0f : softmax));
      }
    }
    store(to, i, columns, values);
  }
}
