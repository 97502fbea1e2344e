// One new token's attention, in the manner of Dao et al. 2023, "Flash-Decoding": its key and value are
// written into the caches, and query and key are turned by their position before, if ROTATED.
//
// grid: (splits of the keys, tiles of HEADS heads that share keys, images * groups). LANES threads
// have a key: V elements of it each, and the same of its value. Each such line of threads keeps its
// own maximum and sums, which meet when all keys are done. The last block to arrive puts together
// what the blocks of a tile found.
//
// Rows that earlier steps wrote are read before the kernel waits for the one that makes the query.
// The position is a guess until then.
constexpr int THREADS = 128, STEPS = 4, WARPS = THREADS / 32;
constexpr float LOWEST = -1e30f;  // of a score that is not seen: finite, so that no difference is NaN
constexpr float LOG2E = 1.44269504f;

// Whose keys a block has: from the first up to the last; before: tokens in the cache; active: blocks
// that have any.
struct Keys { int before, from, to, active; };

__device__ inline Keys keys_of(const long long* position, int longest, int window, int each) {
  const long long given = *position;
  const int before = static_cast<int>(given < 0 ? 0 : given > longest - 1 ? longest - 1 : given);
  const int lowest = window > 0 ? max(before + 1 - window, 0) : 0, count = before + 1 - lowest;
  const int step = each * static_cast<int>(gridDim.x);
  const int own = (count + step - 1) / step * each;
  const int from = min(lowest + static_cast<int>(blockIdx.x) * own, before + 1);
  return {before, from, min(from + own, before + 1), (count + own - 1) / own};
}

template <typename T, typename C, int HEADS, int E, bool ROTATED>
__global__ void __launch_bounds__(THREADS)
    step_attention(const T* query, const T* key, const T* value, const C* keys, const C* values,
                   const long long* position, const float* cosine, const float* sine, T* output,
                   C* new_keys, C* new_values, float* partial, unsigned* arrivals, int groups,
                   int sharing, int longest, long long query_image, long long query_head,
                   long long key_image, long long key_group, long long value_image,
                   long long value_group, long long keys_image, long long keys_group,
                   long long keys_row, long long values_image, long long values_group,
                   long long values_row, int window, float scale) {
  constexpr int V = 16 / sizeof(C), LANES = E / V, LINES = THREADS / LANES, KEYS = LINES * STEPS;
  constexpr int WIDE = E + 2;  // maximum, sum of weights, weighted sum of values
  constexpr int VECTORS = HEADS * E / 4, SLICES = THREADS / VECTORS, AT_ONCE = 8;
  __shared__ float found[WARPS][HEADS][WIDE];
  __shared__ float share[HEADS][MOST_SPLITS];
  __shared__ Vector<float, 4> parts[SLICES][VECTORS];
  const int image = blockIdx.z / groups, group = blockIdx.z % groups, self = threadIdx.x;
  const int column = self % LANES * V, line = self / LANES, warp = self / 32;
  const int first = blockIdx.y * HEADS, count = min(HEADS, sharing - first);
  const C* own_keys = keys + image * keys_image + group * keys_group;
  const C* own_values = values + image * values_image + group * values_group;

  Keys now = keys_of(position, longest, window, KEYS);
  Vector<C, V> of_key[STEPS], of_value[STEPS];
  const auto fetch = [&](int start) {
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      const long long row = min(start + s * LINES + line, now.before - 1);
      if (row < 0) {
        of_key[s] = of_value[s] = {};
      } else {
        of_key[s] = read_once<C, V>(own_keys + row * keys_row + column);
        of_value[s] = read_once<C, V>(own_values + row * values_row + column);
      }
    }
  };
  fetch(now.from);
  LET_NEXT_KERNEL_BEGIN();
  WAIT_FOR_KERNEL_BEFORE();
  Vector<float, V> cosines, sines;
  if (ROTATED) cosines = load<V>(cosine + column), sines = load<V>(sine + column);
  const auto turned = [&](const T* row, float (&x)[V]) {
    const Vector<T, V> own = load<V>(row + column);
    const Vector<T, V> other = ROTATED ? load<V>(row + (column + E / 2) % E) : own;
    const float sign = column < E / 2 ? -1.0f : 1.0f;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      x[v] = static_cast<float>(own.item[v]);
      if (ROTATED)
        x[v] = x[v] * cosines.item[v] + sign * static_cast<float>(other.item[v]) * sines.item[v];
    }
  };
  float asked[HEADS][V], fresh[V];
#pragma unroll
  for (int r = 0; r < HEADS; ++r) {
    const int head = group * sharing + first + min(r, count - 1);
    turned(query + image * query_image + head * query_head, asked[r]);
#pragma unroll
    for (int v = 0; v < V; ++v) asked[r][v] *= scale * LOG2E;
  }
  turned(key + image * key_image + group * key_group, fresh);
  const Vector<T, V> given = load<V>(value + image * value_image + group * value_group + column);
  const Keys guessed = now;
  now = keys_of(position, longest, window, KEYS);
  if (now.before != guessed.before) fetch(now.from);
  if (now.from >= now.to) return;
  Vector<C, V> last_key, last_value;
#pragma unroll
  for (int v = 0; v < V; ++v) {
    last_key.item[v] = static_cast<C>(fresh[v]);
    last_value.item[v] = convert<C>(given.item[v]);
  }
  if (now.to == now.before + 1 && line == 0 && blockIdx.y == 0) {
    const long long row = now.before;
    store<V>(new_keys + image * keys_image + group * keys_group + row * keys_row + column, last_key);
    store<V>(new_values + image * values_image + group * values_group + row * values_row + column,
             last_value);
  }

  float most[HEADS], total[HEADS] = {}, sums[HEADS][V] = {};
#pragma unroll
  for (int r = 0; r < HEADS; ++r) most[r] = LOWEST;
  for (int start = now.from;;) {
    float scores[STEPS][HEADS];
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      const int k = start + s * LINES + line;
      if (k == now.before) of_key[s] = last_key, of_value[s] = last_value;
#pragma unroll
      for (int r = 0; r < HEADS; ++r) {
        float score = 0;
#pragma unroll
        for (int v = 0; v < V; ++v)
          score = fmaf(asked[r][v], static_cast<float>(of_key[s].item[v]), score);
#pragma unroll
        for (int distance = 1; distance < LANES; distance *= 2)
          score += __shfl_xor_sync(0xffffffffu, score, distance);
        scores[s][r] = k < now.to ? score : LOWEST;
      }
    }
#pragma unroll
    for (int r = 0; r < HEADS; ++r) {
      float highest = most[r];
#pragma unroll
      for (int s = 0; s < STEPS; ++s) highest = fmaxf(highest, scores[s][r]);
      const float factor = exp2f(most[r] - highest);
      most[r] = highest, total[r] *= factor;
#pragma unroll
      for (int v = 0; v < V; ++v) sums[r][v] *= factor;
#pragma unroll
      for (int s = 0; s < STEPS; ++s) {
        const bool seen = start + s * LINES + line < now.to;
        const float weight = seen ? exp2f(scores[s][r] - highest) : 0.0f;
        total[r] += weight;
#pragma unroll
        for (int v = 0; v < V; ++v)
          sums[r][v] = fmaf(weight, static_cast<float>(of_value[s].item[v]), sums[r][v]);
      }
    }
    start += KEYS;
    if (start >= now.to) break;
    fetch(start);
  }

  // The lines of a warp, then its warps.
#pragma unroll
  for (int r = 0; r < HEADS; ++r) {
    float highest = most[r];
#pragma unroll
    for (int distance = LANES; distance < 32; distance *= 2)
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, distance));
    const float factor = exp2f(most[r] - highest);
    total[r] *= factor;
#pragma unroll
    for (int v = 0; v < V; ++v) sums[r][v] *= factor;
#pragma unroll
    for (int distance = LANES; distance < 32; distance *= 2) {
      total[r] += __shfl_xor_sync(0xffffffffu, total[r], distance);
#pragma unroll
      for (int v = 0; v < V; ++v)
        sums[r][v] += __shfl_xor_sync(0xffffffffu, sums[r][v], distance);
    }
    if (self % 32 < LANES) {
      float* const own = found[warp][r];
      if (self % 32 == 0) own[0] = highest, own[1] = total[r];
#pragma unroll
      for (int v = 0; v < V; ++v) own[2 + column + v] = sums[r][v];
    }
  }
  __syncthreads();
  const size_t tile = static_cast<size_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  // Of every block of the tile: weighted sums of values, then maximum and sum of weights. A tile
  // begins where vectors can be loaded.
  float* const all = partial + tile * ((gridDim.x * HEADS * WIDE + 3) / 4 * 4);
  float* const facts = all + static_cast<size_t>(gridDim.x) * HEADS * E;
  T* const result = output + static_cast<size_t>(blockIdx.z) * sharing * E + first * E;
  for (int i = self; i < count * E; i += THREADS) {
    const int r = i / E, e = i % E;
    float highest = LOWEST, weights = 0, sum = 0;
    for (int w = 0; w < WARPS; ++w) highest = fmaxf(highest, found[w][r][0]);
    for (int w = 0; w < WARPS; ++w) {
      const float factor = exp2f(found[w][r][0] - highest);
      weights = fmaf(factor, found[w][r][1], weights);
      sum = fmaf(factor, found[w][r][2 + e], sum);
    }
    if (now.active == 1) {
      result[i] = static_cast<T>(sum / weights);
    } else {
      const int own = blockIdx.x * HEADS + r;
      if (e == 0) facts[own * 2] = highest, facts[own * 2 + 1] = weights;
      all[own * E + e] = sum;
    }
  }
  if (now.active == 1 || !arrives_last(arrivals + tile, now.active)) return;

  // The first sums are on their way while it is found out what each block's count for: a warp has
  // a head, a lane some blocks.
  const int vector = self % VECTORS, slice = self / VECTORS;
  Vector<float, 4> part[AT_ONCE], whole = {};
  const auto take = [&](int first) {
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int s = first + i * SLICES;
      if (s < now.active) part[i] = load<4>(all + static_cast<size_t>(s) * HEADS * E + vector * 4);
    }
  };
  if (slice < SLICES) take(slice);
  for (int r = warp; r < count; r += WARPS) {
    float highest = LOWEST, weights = 0, most_of[MOST_SPLITS / 32], total_of[MOST_SPLITS / 32];
#pragma unroll
    for (int i = 0; i < MOST_SPLITS / 32; ++i) {
      const int s = i * 32 + self % 32, own = (s * HEADS + r) * 2;
      most_of[i] = s < now.active ? facts[own] : LOWEST;
      total_of[i] = s < now.active ? facts[own + 1] : 0.0f;
      highest = fmaxf(highest, most_of[i]);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, distance));
#pragma unroll
    for (int i = 0; i < MOST_SPLITS / 32; ++i) {
      most_of[i] = exp2f(most_of[i] - highest);
      weights = fmaf(most_of[i], total_of[i], weights);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      weights += __shfl_xor_sync(0xffffffffu, weights, distance);
#pragma unroll
    for (int i = 0; i < MOST_SPLITS / 32; ++i) share[r][i * 32 + self % 32] = most_of[i] / weights;
  }
  __syncthreads();
  if (slice < SLICES) {
    for (int start = slice;;) {
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        const int s = start + i * SLICES;
        const float factor = s < now.active ? share[min(vector * 4 / E, count - 1)][s] : 0.0f;
#pragma unroll
        for (int v = 0; v < 4; ++v)
          if (s < now.active) whole.item[v] = fmaf(factor, part[i].item[v], whole.item[v]);
      }
      start += AT_ONCE * SLICES;
      if (start >= now.active) break;
      take(start);
    }
    parts[slice][vector] = whole;
  }
  __syncthreads();
  for (int i = self; i < count * E; i += THREADS) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < SLICES; ++k) sum += parts[k][i / 4].item[i % 4];
    result[i] = static_cast<T>(sum);
  }
}
