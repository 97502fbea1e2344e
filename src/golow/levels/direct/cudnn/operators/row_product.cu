// A few rows of x by a weight that is read once: y = f(n(x) w^T + bias + residual). n is the RMS norm
// with weights `norm` (absent if zero), or nothing; f is ACTIVATED, which the generated code before
// this file defines. GATED: w has 2 `outputs` rows, and y = f(n(x) w_o^T) * (n(x) w_{outputs + o}^T).
//
// SHARES warps have R rows of outputs: each reads pieces of 16 bytes of these rows, P for each lane
// at once. The first of them are on their way before the kernel waits for the one that makes x. The
// root of the mean square is a factor of the sum, so that nothing waits for it.

constexpr int WARPS = 8, THREADS = 32 * WARPS;

template <typename T, int M, int R, int P, int SHARES, int INNER, bool NORMED, bool GATED>
__global__ void __launch_bounds__(THREADS, 2)
    row_product(const T* x, const T* w, const float* norm, const T* bias, const T* residual, T* y,
                int outputs, float epsilon) {
  constexpr int V = 16 / sizeof(T), PIECES = INNER / V, OWN = GATED ? 2 * R : R;
  constexpr int AT_ONCE = 32 * SHARES * P, GROUPS = WARPS / SHARES;
  constexpr bool WHOLE = PIECES % AT_ONCE == 0;
  __shared__ float found[WARPS][(OWN + 1) * M];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, share = warp % SHARES;
  const int first = (blockIdx.x * GROUPS + warp / SHARES) * R;
  const T* rows[OWN];
#pragma unroll
  for (int o = 0; o < OWN; ++o) {
    const int row = min(first + o % R, outputs - 1) + o / R * outputs;
    rows[o] = w + static_cast<size_t>(row) * INNER;
  }
  const auto piece_of = [=](int begin, int p) { return begin + (p * SHARES + share) * 32 + lane; };

  Vector<T, V> held[OWN][P];
  const auto fetch = [&](int begin) {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int piece = piece_of(begin, p);
#pragma unroll
      for (int o = 0; o < OWN; ++o) {
        if (WHOLE || piece < PIECES) held[o][p] = read_once<T, V>(rows[o] + piece * V);
      }
      if (NORMED && norm && begin == 0 && (WHOLE || piece < PIECES)) read_soon(norm + piece * V);
    }
  };
  fetch(0);
  WAIT_FOR_KERNEL_BEFORE();

  // Which result the thread writes in the end.
  const int own = threadIdx.x, group = own / (R * M), r = own / M % R, m = own % M;
  const int output = (blockIdx.x * GROUPS + group) * R + r;
  const bool writes = group < GROUPS && output < outputs;
  float added = 0, factor = 0;  // to the sum, and to that of the second half
  if (writes && bias) added = static_cast<float>(bias[output]);
  if (writes && bias && GATED) factor = static_cast<float>(bias[outputs + output]);
  if (writes && residual) added += static_cast<float>(residual[m * outputs + output]);

  float sums[OWN][M] = {}, squares[M] = {};
  for (int begin = 0;;) {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int piece = piece_of(begin, p);
      if (!WHOLE && piece >= PIECES) continue;
      Vector<float, V> scale;
      if (NORMED && norm) scale = load<V>(norm + piece * V);
#pragma unroll
      for (int k = 0; k < M; ++k) {
        const Vector<T, V> given = load<V>(x + k * INNER + piece * V);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          float value = static_cast<float>(given.item[v]);
          if (NORMED) squares[k] = fmaf(value, value, squares[k]);
          if (NORMED && norm) value *= scale.item[v];
#pragma unroll
          for (int o = 0; o < OWN; ++o)
            sums[o][k] = fmaf(value, static_cast<float>(held[o][p].item[v]), sums[o][k]);
        }
      }
    }
    begin += AT_ONCE;
    if (begin >= PIECES) break;
    fetch(begin);
  }

#pragma unroll
  for (int k = 0; k < M; ++k) {
#pragma unroll
    for (int o = 0; o < OWN + NORMED; ++o) {
      float sum = o < OWN ? sums[o < OWN ? o : 0][k] : squares[k];
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      if (lane == 0) found[warp][o * M + k] = sum;
    }
  }
  __syncthreads();
  if (!writes) return;
  const auto total = [&](int o) {
    float sum = 0;
#pragma unroll
    for (int s = 0; s < SHARES; ++s) sum += found[group * SHARES + s][o * M + m];
    return sum;
  };
  const float root = NORMED ? rsqrtf(total(OWN) / INNER + epsilon) : 1.0f;
  const float value = fmaf(total(r), root, added);
  float result = ACTIVATED(value);
  if (GATED) result *= fmaf(total(R + r), root, factor);
  y[static_cast<size_t>(m) * outputs + output] = static_cast<T>(result);
}
