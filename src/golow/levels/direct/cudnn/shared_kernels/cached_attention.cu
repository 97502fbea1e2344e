// softmax(scale query key^T) value over keys and values in a cache, where each row sees what was written up
// to itself. Only rows of the cache that exist are read. In the manner of Dao et al. 2023, "Flash-Decoding":
// parts of the keys are taken by blocks of their own, and the last of these blocks to arrive puts together
// what they found.
//
// grid: (splits, tiles of rows, images * groups). A block has ROWS rows of the heads that share keys, so that
// keys and values are read once for all of them, KEYS at a time.
//
// Eight threads have a key: a vector of V elements each, and the next ones. Of the values a thread has V
// columns, of every AT_ONCE-th key.
constexpr int THREADS = 128, KEYS = 64, LANES = 8;
constexpr float LOWEST = -1e30f;  // of a score that is not seen: finite, so that no difference is NaN
constexpr float LOG2E = 1.44269504f;

template <int V, typename T>
__device__ inline void load_floats(const T* at, float (&x)[V]) {
  const Vector<T, V> given = load<V>(at);
#pragma unroll
  for (int i = 0; i < V; ++i) x[i] = static_cast<float>(given.item[i]);
}

// V: elements that a thread loads at once, which divides both widths and all steps. E, D: widths.
template <typename T, typename C, int V, int ROWS, int E, int D>
__global__ void __launch_bounds__(THREADS)
    cached_attention(const T* query, const C* key, const C* value, const long long* position, T* output,
                     float* partial, unsigned* arrivals, int groups, int sharing, int rows, int longest,
                     long long query_image, long long query_head, long long query_row, long long key_image,
                     long long key_group, long long key_row, long long value_image, long long value_group,
                     long long value_row, long long output_image, long long output_head,
                     long long output_row, int window, float scale) {
  constexpr int COLUMNS = D / V, AT_ONCE = THREADS / COLUMNS, WIDE = D + 2;
  __shared__ float asked[ROWS * E];
  __shared__ float found[AT_ONCE * ROWS * D];
  __shared__ float weights[ROWS * KEYS], most[ROWS], total[ROWS], factor[ROWS];
  const int image = blockIdx.z / groups, group = blockIdx.z % groups, self = threadIdx.x;
  const int first_row = blockIdx.y * ROWS, count = min(ROWS, sharing * rows - first_row);
  const int splits = gridDim.x;
  const long long given = *position, last = longest - rows;
  const int before = static_cast<int>(given < 0 ? 0 : given > last ? last : given), keys = before + rows;
  // The first key that the first new row sees.
  const int lowest = window > 0 ? max(before + 1 - window, 0) : 0;
  const int some = (keys - lowest + splits * KEYS - 1) / (splits * KEYS) * KEYS;
  const int from = min(lowest + static_cast<int>(blockIdx.x) * some, keys), to = min(from + some, keys);
  const auto head = [=](int r) { return group * sharing + (first_row + r) / rows; };
  const auto place = [=](int r) { return (first_row + r) % rows; };  // of a row among the new ones
  const C* own_keys = key + image * key_image + group * key_group;
  const C* own_values = value + image * value_image + group * value_group;

  for (int i = self; i < ROWS * E; i += THREADS) {
    const int r = min(i / E, count - 1);
    const T* x = query + image * query_image + head(r) * query_head + place(r) * query_row;
    asked[i] = static_cast<float>(x[i % E]) * scale * LOG2E;
  }
  if (self < ROWS) most[self] = LOWEST, total[self] = 0;
  float sums[ROWS][V] = {};
  const int column = self % COLUMNS * V, line = self / COLUMNS;
  __syncthreads();
  for (int start = from; start < to; start += KEYS) {
    // The scores.
    for (int k = self / LANES; k < KEYS; k += THREADS / LANES) {
      float score[ROWS] = {};
      const C* x = own_keys + static_cast<long long>(min(start + k, to - 1)) * key_row;
      for (int e = self % LANES * V; e < E; e += LANES * V) {
        float held[V];
        load_floats<V>(x + e, held);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
          for (int i = 0; i < V; ++i) score[r] = fmaf(held[i], asked[r * E + e + i], score[r]);
        }
      }
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int distance = 1; distance < LANES; distance *= 2)
          score[r] += __shfl_xor_sync(0xffffffffu, score[r], distance);
        const int apart = before + place(min(r, count - 1)) - start - k;
        const bool seen = start + k < to && apart >= 0 && (window == 0 || apart < window);
        if (self % LANES == 0) weights[r * KEYS + k] = seen ? score[r] : LOWEST;
      }
    }
    __syncthreads();
    // Their weights: a warp has a row.
    for (int r = self / 32; r < ROWS; r += THREADS / 32) {
      float* own = weights + r * KEYS;
      const int lane = self % 32;
      float now = fmaxf(own[lane], own[lane + 32]);
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2)
        now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, distance));
      now = fmaxf(now, most[r]);
      const float one = exp2f(own[lane] - now), other = exp2f(own[lane + 32] - now);
      float sum = one + other;
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      own[lane] = one, own[lane + 32] = other;
      if (lane == 0) {
        factor[r] = exp2f(most[r] - now);
        total[r] = total[r] * factor[r] + sum, most[r] = now;
      }
    }
    __syncthreads();
    // The values.
    if (line < AT_ONCE) {
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int i = 0; i < V; ++i) sums[r][i] *= factor[r];
      }
      const int end = min(KEYS, to - start);
      for (int k = line; k < end; k += AT_ONCE) {
        float held[V];
        load_floats<V>(own_values + static_cast<long long>(start + k) * value_row + column, held);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          const float weight = weights[r * KEYS + k];
#pragma unroll
          for (int i = 0; i < V; ++i) sums[r][i] = fmaf(weight, held[i], sums[r][i]);
        }
      }
    }
    __syncthreads();
  }
  if (line < AT_ONCE) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (int i = 0; i < V; ++i) found[(line * ROWS + r) * D + column + i] = sums[r][i];
    }
  }
  __syncthreads();
  const size_t tile = static_cast<size_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  float* own = partial + (tile * splits + blockIdx.x) * ROWS * WIDE;
  for (int i = self; i < count * D; i += THREADS) {
    const int r = i / D, d = i % D;
    float sum = 0;
    for (int k = 0; k < AT_ONCE; ++k) sum += found[(k * ROWS + r) * D + d];
    if (splits > 1)
      own[r * WIDE + 2 + d] = sum;
    else
      output[image * output_image + head(r) * output_head + place(r) * output_row + d] =
          static_cast<T>(sum / total[r]);
  }
  if (splits == 1) return;
  if (self < count) own[self * WIDE] = most[self], own[self * WIDE + 1] = total[self];
  if (!arrives_last(arrivals + tile, splits)) return;
  const float* all = partial + tile * splits * ROWS * WIDE;
  for (int i = self; i < count * D; i += THREADS) {
    const int r = i / D, d = i % D;
    float largest = LOWEST, weight = 0, sum = 0;
    for (int s = 0; s < splits; ++s) largest = fmaxf(largest, all[(s * ROWS + r) * WIDE]);
    for (int s = 0; s < splits; ++s) {
      const float* part = all + (s * ROWS + r) * WIDE;
      const float share = exp2f(part[0] - largest);
      weight = fmaf(share, part[1], weight), sum = fmaf(share, part[2 + d], sum);
    }
    output[image * output_image + head(r) * output_head + place(r) * output_row + d] =
        static_cast<T>(sum / weight);
  }
}
