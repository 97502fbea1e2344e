// A few rows of x by a weight that is read once: y = f(n(x) w^T + bias + residual). n is the RMS norm
// with weights `norm` (absent if zero), or nothing; f is ACTIVATED, which the generated code before
// this file defines. GATED: w has 2 `outputs` rows, and y = f(n(x) w_o^T) * (n(x) w_{outputs + o}^T).
//
// Each block takes units of R outputs in turn. SHARES warps have a unit: each lane reads P pieces of
// 16 bytes of every row, and holds the same pieces of all M rows of x, which a block so reads once.
// The pieces travel into shared memory, DEPTH groups of them ahead; a thread reads only what it has
// copied itself. The first groups are on their way before the kernel waits for the one that makes x.
// The root of the mean square is a factor of the sum, so that nothing waits for it.

constexpr int WARPS = 16, THREADS = 32 * WARPS;

// The sums over a warp's lanes of N values: each lane gets that of value lane / (32 / N).
template <int N>
__device__ inline float sum_of_lanes(float (&values)[N]) {
  const int lane = threadIdx.x % 32;
  int distance = 16;
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2, distance /= 2) {
    const bool upper = lane & distance;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float kept = upper ? values[i + half] : values[i];
      const float given = upper ? values[i] : values[i + half];
      values[i] = kept + __shfl_xor_sync(0xffffffffu, given, distance);
    }
  }
  for (; distance > 0; distance /= 2)
    values[0] += __shfl_xor_sync(0xffffffffu, values[0], distance);
  return values[0];
}

template <typename T, int M, int R, int P, int SHARES, int DEPTH, int INNER, bool NORMED, bool GATED>
__global__ void __launch_bounds__(THREADS, M * P <= 2 ? 2 : 1)
    row_product(const T* x, const T* w, const float* norm, const T* bias, const T* residual, T* y,
                int rows, int outputs, float epsilon) {
  extern __shared__ Piece held[];  // [DEPTH][OWN][THREADS]
  constexpr int V = 16 / sizeof(T), PIECES = INNER / V, OWN = GATED ? 2 * R : R;
  constexpr int GROUPS = WARPS / SHARES, VALUES = OWN * M;
  __shared__ float found[2][WARPS][VALUES];
  __shared__ float squares[WARPS][M];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int share = warp % SHARES, group = warp / SHARES;
  const int units = (outputs + R - 1) / R, side_by_side = gridDim.x * GROUPS;
  const auto piece_of = [=](int p) { return (p * SHARES + share) * 32 + lane; };

  // Copies piece p of the rows of a unit, and closes the group.
  const auto fetch = [&](int unit, int p, int slot) {
    const int first = unit * R, piece = piece_of(p);
    const size_t start = static_cast<size_t>(first) * PIECES + piece;
#pragma unroll
    for (int o = 0; o < OWN; ++o) {
      const bool there = first + o % R < outputs && piece < PIECES;
      const size_t row = o % R + (o < R ? 0 : static_cast<size_t>(outputs));
      const Piece* const from = reinterpret_cast<const Piece*>(w) + (there ? start + row * PIECES : 0);
      copy_piece(held + (slot * OWN + o) * THREADS + threadIdx.x, from, there);
    }
    close_copies();
  };
  const int first_unit = group * gridDim.x + blockIdx.x;
#pragma unroll
  for (int q = 0; q < DEPTH; ++q) fetch(first_unit + q / P * side_by_side, q % P, q);
  float taken[M][P][V];
#pragma unroll
  for (int p = 0; p < P; ++p) {
    Vector<float, V> scale;
    const bool scaled = NORMED && norm && piece_of(p) < PIECES;
    if (scaled) scale = load<V>(norm + piece_of(p) * V);
#pragma unroll
    for (int v = 0; v < V; ++v) taken[0][p][v] = scaled ? scale.item[v] : 1.0f;
  }
  LET_NEXT_KERNEL_BEGIN();
  WAIT_FOR_KERNEL_BEFORE();

  float square[M] = {};
#pragma unroll
  for (int p = 0; p < P; ++p) {
#pragma unroll
    for (int m = M - 1; m >= 0; --m) {
      Vector<T, V> given = {};
      if (piece_of(p) < PIECES) given = load<V>(x + min(m, rows - 1) * INNER + piece_of(p) * V);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float value = static_cast<float>(given.item[v]);
        if (NORMED) square[m] = fmaf(value, value, square[m]);
        taken[m][p][v] = value * taken[0][p][v];
      }
    }
  }
  if (NORMED) {
#pragma unroll
    for (int m = 0; m < M; ++m) {
      float one[1] = {square[m]};
      const float sum = sum_of_lanes(one);
      if (lane == 0) squares[warp][m] = sum;
    }
  }

  // Which result of a unit the thread writes.
  const int of_group = threadIdx.x / (R * M), r = threadIdx.x / M % R, m = threadIdx.x % M;
  const bool finishes = of_group < GROUPS && m < rows;
  float root = 0;
  for (int round = 0, slot = 0; round * side_by_side < units; ++round) {
    const int unit = round * side_by_side + of_group * gridDim.x + blockIdx.x;
    const int output = unit * R + r;
    const bool writes = finishes && unit < units && output < outputs;
    float added = 0, factor = 0;  // to the sum, and to that of the second half
    if (writes && bias) added = static_cast<float>(bias[output]);
    if (writes && bias && GATED) factor = static_cast<float>(bias[outputs + output]);
    if (writes && residual) added += static_cast<float>(residual[m * outputs + output]);

    float sums[VALUES] = {};
#pragma unroll
    for (int p = 0; p < P; ++p) {
      wait_for_copies<DEPTH - 1>();
#pragma unroll
      for (int o = 0; o < OWN; ++o) {
        const auto row = *reinterpret_cast<const Vector<T, V>*>(
            held + (slot * OWN + o) * THREADS + threadIdx.x);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const float weight = static_cast<float>(row.item[v]);
#pragma unroll
          for (int k = 0; k < M; ++k)
            sums[o * M + k] = fmaf(taken[k][p][v], weight, sums[o * M + k]);
        }
      }
      const int ahead = (p + DEPTH) / P;
      fetch(first_unit + (round + ahead) * side_by_side, (p + DEPTH) % P, slot);
      slot = slot + 1 < DEPTH ? slot + 1 : 0;
    }
    const float sum = sum_of_lanes(sums);
    if (lane % (32 / VALUES) == 0) found[round % 2][warp][lane / (32 / VALUES)] = sum;
    __syncthreads();
    if (!writes) continue;
    if (NORMED && round == 0) {
      for (int s = 0; s < SHARES; ++s) root += squares[s][m];
      root = rsqrtf(root / INNER + epsilon);
    }
    const auto total = [&](int o) {
      float all = 0;
#pragma unroll
      for (int s = 0; s < SHARES; ++s) all += found[round % 2][of_group * SHARES + s][o * M + m];
      return NORMED ? all * root : all;
    };
    const float value = total(r) + added;
    float result = ACTIVATED(value);
    if (GATED) result *= total(R + r) + factor;
    y[static_cast<size_t>(m) * outputs + output] = static_cast<T>(result);
  }
}
