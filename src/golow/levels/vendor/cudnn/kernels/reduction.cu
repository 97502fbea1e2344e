// Sums over the middle axis of a tensor [outer, reduced, inner]:
//
//     y[o, i] = factor * sum_r x[o, r, i]
//
// in float32, every sum in a fixed order. A thread takes V adjacent i (16 bytes, if inner allows)
// and has four loads under way; adjacent threads take adjacent vectors, then the next r, so that a
// block reads whole rows, without gaps if it has all of inner. Long sums are split over blocks: the
// first launch writes `parts` partial sums for each [o, i], the second adds them. If inner is 1, the
// threads of a block share one sum. Rows of x may have gaps between them: they lie `pitch` elements
// apart, a multiple of V. The last vector of a row then reads into the gap, and stores no sum of it.

constexpr int ROW_THREADS = 256, AT_ONCE = 4;

template <typename X, typename Y, int V>
__global__ void sum_columns(const X* x, Y* y, long long reduced, long long inner, long long pitch,
                            int tiles, int parts, float factor) {
  // grid: (outer * tiles of inner, parts), block: (vectors of a tile, rows); y: [outer, parts, inner]
  __shared__ float sums[ROW_THREADS * V];
  const long long outer = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const long long i = (tile * blockDim.x + threadIdx.x) * V;
  const long long first = reduced * blockIdx.y / parts, last = reduced * (blockIdx.y + 1) / parts;
  const X* column = x + outer * reduced * pitch + i;
  const long long step = blockDim.y;
  float sum[V] = {};
  const auto add = [&](const Vector<X, V>& values) {
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] += static_cast<float>(values.item[v]);
  };
  if (i < inner) {
    long long r = first + threadIdx.y;
    for (; r + (AT_ONCE - 1) * step < last; r += AT_ONCE * step) {
      Vector<X, V> values[AT_ONCE];
#pragma unroll
      for (int k = 0; k < AT_ONCE; ++k) values[k] = load<V>(column + (r + k * step) * pitch);
#pragma unroll
      for (int k = 0; k < AT_ONCE; ++k) add(values[k]);
    }
    for (; r < last; r += step) add(load<V>(column + r * pitch));
  }
  // Sums of the same i, by halves; the element is the slower index, so that no banks collide.
  const int threads = blockDim.x * blockDim.y, self = threadIdx.y * blockDim.x + threadIdx.x;
  for (int v = 0; v < V; ++v) sums[v * threads + self] = sum[v];
  for (int rows = blockDim.y; rows > 1; rows = (rows + 1) / 2) {
    __syncthreads();
    const int half = (rows + 1) / 2;
    if (threadIdx.y + half >= rows) continue;
    for (int v = 0; v < V; ++v) {
      sums[v * threads + self] += sums[v * threads + self + half * blockDim.x];
    }
  }
  if (threadIdx.y != 0 || i >= inner) return;
  Vector<Y, V> result;
  for (int v = 0; v < V; ++v) result.item[v] = static_cast<Y>(factor * sums[v * threads + self]);
  Y* to = y + (outer * parts + blockIdx.y) * inner;
  if (inner % V == 0) return store(to + i, result);
  for (int v = 0; v < V && i + v < inner; ++v) to[i + v] = result.item[v];
}

template <typename X, typename Y>
__global__ void sum_rows(const X* x, Y* y, long long reduced, float factor) {
  // grid: outer; one block for each sum, inner is 1
  __shared__ float sums[ROW_THREADS];
  const X* row = x + blockIdx.x * reduced;
  float sum = 0.0f;
  for (long long r = threadIdx.x; r < reduced; r += ROW_THREADS) sum += static_cast<float>(row[r]);
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = ROW_THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = static_cast<Y>(factor * sums[0]);
}
