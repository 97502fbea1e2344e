// Sums over the middle axis of a tensor [outer, reduced, inner]:
//
//     y[o, i] = factor * sum_r x[o, r, i]
//
// in float32, every sum in a fixed order; columns.cuh says how. Rows of x may have gaps between
// them: they lie `pitch` elements apart. What is in the gaps is read and added up, but not stored.

template <typename X, typename Y, int V, int THREADS>
__global__ void __launch_bounds__(THREADS)
    sum_columns(const X* x, Y* y, float* partial, unsigned* arrivals, long long reduced,
                long long inner, long long pitch, int tiles, float factor) {
  const Share share = share_of<V>(reduced, tiles);
  const X* column = x + share.outer * reduced * pitch + share.column;
  Y* result = y + share.outer * inner;
  sum_over_rows<1, V, THREADS>(
      share, pitch, partial, arrivals,
      [=](long long row) { return load<V>(column + row * pitch); },
      [](const Vector<X, V>& values, float (&sums)[1][V]) {
#pragma unroll
        for (int v = 0; v < V; ++v) sums[0][v] += static_cast<float>(values.item[v]);
      },
      [=](int, long long i, float sum) {
        if (i < inner) result[i] = static_cast<Y>(factor * sum);
      });
}

// If inner is 1, two kernels; reduced: vectors of V adjacent elements. The blocks of this one share a
// row.
template <typename X, typename Y, int V, int THREADS>
__global__ void __launch_bounds__(THREADS)
    sum_rows(const X* x, Y* y, float* partial, unsigned* arrivals, long long reduced,
             float factor) {
  const Share share = share_of<1>(reduced, 1);
  const X* row = x + share.outer * reduced * V;
  sum_over_rows<1, 1, THREADS>(
      share, 1, partial, arrivals, [=](long long vector) { return load<V>(row + vector * V); },
      [](const Vector<X, V>& values, float (&sums)[1][1]) {
#pragma unroll
        for (int v = 0; v < V; ++v) sums[0][0] += static_cast<float>(values.item[v]);
      },
      [=](int, long long, float sum) { y[share.outer] = static_cast<Y>(factor * sum); });
}

// LANES threads of a warp add a row, without further memory; a block has 256 threads.
template <typename X, typename Y, int V, int LANES>
__global__ void sum_short_rows(const X* x, Y* y, float*, unsigned*, long long rows,
                               long long reduced, float factor) {
  const int lane = threadIdx.x % LANES;
  const long long mine = blockIdx.x * (256LL / LANES) + threadIdx.x / LANES;
  const X* row = x + (mine < rows ? mine : rows - 1) * reduced * V;  // the warp stays together
  float sum = 0.0f;
  add_each(lane, reduced, LANES, [=](long long vector) { return load<V>(row + vector * V); },
           [&](const Vector<X, V>& values) {
#pragma unroll
             for (int v = 0; v < V; ++v) sum += static_cast<float>(values.item[v]);
           });
#pragma unroll
  for (int offset = LANES / 2; offset > 0; offset /= 2)
    sum += __shfl_xor_sync(0xffffffff, sum, offset);
  if (lane == 0 && mine < rows) y[mine] = static_cast<Y>(factor * sum);
}
