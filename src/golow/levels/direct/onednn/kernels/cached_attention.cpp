// softmax(scale query key^T) value for a few rows of the query, over keys and values in a cache: each row
// sees what was written up to itself. Keys and values are read once from end to end, at the speed of
// memory, and only as far as they were written.
//
// The rows of all heads that share keys are taken together. A part has some of the keys; what parts of the
// same heads found is put together afterwards (R. Hong et al. 2023, "FlashDecoding").
constexpr long MOST = 16;          // rows at a time
constexpr float LOWEST = -1e30f;   // of a score that is not seen: finite, so that no difference is NaN

struct Cache {
  const float *key, *value;
  long key_row, value_row, inner, width;
};

// The sum of each vector's elements, in the place of its number: halves are added up as they are put together.
#ifdef __clang__
INLINE Lanes sums_of(Lanes (&x)[LANES]) {
  turn(x);
  for (int i = 1; i < LANES; i++) x[0] += x[i];
  return x[0];
}
#else
template <int HALF>
INLINE void fold(Lanes (&x)[LANES]) {
  Places own, other;
  for (int i = 0; i < LANES; i++) {
    own[i] = i & HALF ? LANES + i : i;
    other[i] = i & HALF ? LANES + i - HALF : i + HALF;
  }
  for (int i = 0; i < HALF; i++)
    x[i] = __builtin_shuffle(x[i], x[i + HALF], own) + __builtin_shuffle(x[i], x[i + HALF], other);
}
INLINE Lanes sums_of(Lanes (&x)[LANES]) {
  if constexpr (LANES == 16) fold<8>(x);
  fold<4>(x), fold<2>(x), fold<1>(x);
  return x[0];
}
#endif

// The products of R rows with LANES / R keys, row by row; behind the last key it is repeated. Rows of the
// query and of the output are WIDEST apart. Between loads there is so much to do that the processor would
// not begin the next ones in time: what is needed a block later is fetched here.
template <int R>
INLINE Lanes products(const float* query, const Cache& c, long first, long last) {
  constexpr int EACH = LANES / R;
  const float* keys[EACH];
  for (int i = 0; i < EACH; i++) keys[i] = c.key + (first + i < last ? first + i : last - 1) * c.key_row;
  Lanes sums[LANES] = {};
  long e = 0;
  for (; e + LANES <= c.inner; e += LANES) {
    Lanes x[R];
    for (int r = 0; r < R; r++) x[r] = at(query + r * WIDEST + e);
    for (int i = 0; i < EACH; i++) {
      const Lanes key = at(keys[i] + e);
      __builtin_prefetch(keys[i] + e + KEYS * c.key_row);
      for (int r = 0; r < R; r++) sums[r * EACH + i] += x[r] * key;
    }
  }
  Lanes found = sums_of(sums);
  for (; e < c.inner; e++)
    for (int i = 0; i < LANES; i++) found[i] += query[i / EACH * WIDEST + e] * keys[i % EACH][e];
  return found;
}

// output (* factor) += weights value, in V vectors of R rows.
template <int R, int V>
INLINE void weigh(const float (&weights)[R][KEYS], const float* value, long row, long count, const float* factor,
                  float* output) {
  Lanes sums[R][V];
  for (int r = 0; r < R; r++)
    for (int j = 0; j < V; j++) sums[r][j] = at(output + r * WIDEST + j * LANES) * factor[r];
  for (long k = 0; k < count; k++) {
    Lanes x[V];
    for (int j = 0; j < V; j++) {
      x[j] = at(value + k * row + j * LANES);
      __builtin_prefetch(value + (k + KEYS) * row + j * LANES);
    }
    for (int r = 0; r < R; r++)
      for (int j = 0; j < V; j++) sums[r][j] += weights[r][k] * x[j];
  }
  for (int r = 0; r < R; r++)
    for (int j = 0; j < V; j++) at(output + r * WIDEST + j * LANES) = sums[r][j];
}

// R rows of the query and a block of keys. low, seen: each row sees the keys from low to below seen.
template <int R>
static void add_keys(const Cache& c, const float* query, long begin, long count, const long* low, const long* seen,
                     float* most, float* total, float* output) {
  constexpr int EACH = LANES / R;
  alignas(64) float weights[R][KEYS];
  float factor[R];
  for (long k = 0; k < count; k += EACH) {
    const Lanes found = products<R>(query, c, begin + k, begin + count);
    const float* const row = reinterpret_cast<const float*>(&found);
    for (int r = 0; r < R; r++) __builtin_memcpy(weights[r] + k, row + r * EACH, EACH * sizeof(float));
  }
  for (int r = 0; r < R; r++) {
    const long own = seen[r] - begin < count ? seen[r] - begin : count;
    for (long k = own < 0 ? 0 : own; k < KEYS; k++) weights[r][k] = LOWEST;
    for (long k = 0; k < count && begin + k < low[r]; k++) weights[r][k] = LOWEST;
    Lanes largest = at(weights[r]);
    for (long k = LANES; k < KEYS; k += LANES) {
      const Lanes x = at(weights[r] + k);
      largest = x > largest ? x : largest;
    }
    float now = most[r];
    for (int i = 0; i < LANES; i++) now = largest[i] > now ? largest[i] : now;
    factor[r] = exp_of_term(most[r] - now);
    most[r] = now, total[r] *= factor[r];
    Lanes sums = {};
    #pragma omp simd
    for (long k = 0; k < KEYS; k++) weights[r][k] = exp_of_term(weights[r][k] - now);
    for (long k = 0; k < KEYS; k += LANES) sums += at(weights[r] + k);
    for (int i = 0; i < LANES; i++) total[r] += sums[i];
  }
  const float* const value = c.value + begin * c.value_row;
  constexpr int V = R > 2 ? 2 : 4;  // what fits in registers
  long d = 0;
  for (; d + V * LANES <= c.width; d += V * LANES)
    weigh<R, V>(weights, value + d, c.value_row, count, factor, output + d);
  for (; d + LANES <= c.width; d += LANES)
    weigh<R, 1>(weights, value + d, c.value_row, count, factor, output + d);
  for (; d < c.width; d++)
    for (int r = 0; r < R; r++) {
      float sum = output[r * WIDEST + d] * factor[r];
      for (long k = 0; k < count; k++) sum += weights[r][k] * value[k * c.value_row + d];
      output[r * WIDEST + d] = sum;
    }
}

static void body(void* const* pointers, const long* n, long begin, long end) {
  const long splits = n[2], groups = n[3], sharing = n[4], rows = n[5], longest = n[6];
  const long *query = n + 10, *key = n + 13, *value = n + 16, *result = n + 19;  // steps
  const float scale = __int_as_float(static_cast<int>(n[9]));
  const long window = n[22], last = longest - rows, count = sharing * rows;
  for (long part = begin; part < end; part++) {
    const long split = part % splits, group = part / splits % groups, image = part / splits / groups;
    const long given = static_cast<const long long*>(pointers[3])[n[23] ? image : 0];
    const long before = given < 0 ? 0 : given > last ? last : given, keys = before + rows;
    const long lowest = window && before + 1 > window ? before + 1 - window : 0;
    const long some = (keys - lowest + splits * KEYS - 1) / (splits * KEYS) * KEYS;
    const Cache c = {static_cast<float*>(pointers[1]) + image * key[0] + group * key[1],
                     static_cast<float*>(pointers[2]) + image * value[0] + group * value[1],
                     key[2], value[2], n[7], n[8]};
    const long from = lowest + split * some, to = from + some < keys ? from + some : keys;
    for (long first = 0; first < count; first += MOST) {
      const long taken = count - first < MOST ? count - first : MOST;
      alignas(64) float asked[MOST * WIDEST], output[MOST * WIDEST] = {};
      float most[MOST], total[MOST] = {};
      long low[MOST], seen[MOST];
      const auto head = [&](long m) { return group * sharing + (first + m) / rows; };
      for (long m = 0; m < taken; m++) {
        const float* const x = static_cast<float*>(pointers[0]) + image * query[0] + head(m) * query[1] +
                               (first + m) % rows * query[2];
        for (long e = 0; e < c.inner; e++) asked[m * WIDEST + e] = x[e] * scale;
        most[m] = LOWEST, seen[m] = before + (first + m) % rows + 1;
        low[m] = window ? seen[m] - window : 0;
      }
      for (long block = from; block < to; block += KEYS) {
        const long some_keys = to - block < KEYS ? to - block : KEYS;
        long m = 0;
        const auto add = [&](auto take, int number) {
          take(c, asked + m * WIDEST, block, some_keys, low + m, seen + m, most + m, total + m, output + m * WIDEST);
          m += number;
        };
        while (m + 4 <= taken) add(add_keys<4>, 4);
        if (m + 2 <= taken) add(add_keys<2>, 2);
        if (m < taken) add(add_keys<1>, 1);
      }
      for (long m = 0; m < taken; m++) {
        if (splits == 1) {
          float* const y = static_cast<float*>(pointers[4]) + image * result[0] + head(m) * result[1] +
                           (first + m) % rows * result[2];
          for (long d = 0; d < c.width; d++) y[d] = output[m * WIDEST + d] / total[m];
        } else {
          float* const y = static_cast<float*>(pointers[4]) + (part * count + first + m) * (c.width + 2);
          y[0] = most[m], y[1] = total[m];
          for (long d = 0; d < c.width; d++) y[2 + d] = output[m * WIDEST + d];
        }
      }
    }
  }
}
