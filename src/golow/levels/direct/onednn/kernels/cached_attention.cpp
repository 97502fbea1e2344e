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

// The products of one row with LANES keys; behind the last key it is repeated.
INLINE Lanes products(const float* query, const Cache& c, long first, long last) {
  const float* keys[LANES];
  for (int i = 0; i < LANES; i++) keys[i] = c.key + (first + i < last ? first + i : last - 1) * c.key_row;
  Lanes sums[LANES] = {};
  long e = 0;
  for (; e + LANES <= c.inner; e += LANES) {
    const Lanes x = at(query + e);
    for (int i = 0; i < LANES; i++) sums[i] += x * at(keys[i] + e);
  }
  turn(sums);
  for (int half = LANES / 2; half; half /= 2)
    for (int i = 0; i < half; i++) sums[i] += sums[i + half];
  for (; e < c.inner; e++)
    for (int i = 0; i < LANES; i++) sums[0][i] += query[e] * keys[i][e];
  return sums[0];
}

// output (* factor) += weights value, in V vectors of every row.
template <int V>
INLINE void weigh(const float* weights, const float* value, long row, long count, float factor, float* output) {
  Lanes sums[V];
  for (int j = 0; j < V; j++) sums[j] = at(output + j * LANES) * factor;
  for (long k = 0; k < count; k++)
    for (int j = 0; j < V; j++) sums[j] += weights[k] * at(value + k * row + j * LANES);
  for (int j = 0; j < V; j++) at(output + j * LANES) = sums[j];
}

// One row of the query and a block of keys.
static void add_keys(const Cache& c, const float* query, long begin, long count, long seen, float& most,
                     float& total, float* output) {
  alignas(64) float weights[KEYS];
  for (long k = 0; k < KEYS; k += LANES) {
    if (k < count) at(weights + k) = products(query, c, begin + k, begin + count);
    for (int i = 0; i < LANES; i++)
      if (k + i >= count || begin + k + i >= seen) weights[k + i] = LOWEST;
  }
  float now = most;
  for (long k = 0; k < KEYS; k++) now = weights[k] > now ? weights[k] : now;
  const float factor = exp_of_term(most - now);
  most = now, total *= factor;
  Lanes sums = {};
  #pragma omp simd
  for (long k = 0; k < KEYS; k++) weights[k] = exp_of_term(weights[k] - now);
  for (long k = 0; k < KEYS; k += LANES) sums += at(weights + k);
  for (int i = 0; i < LANES; i++) total += sums[i];
  const float* const value = c.value + begin * c.value_row;
  long d = 0;
  for (; d + 4 * LANES <= c.width; d += 4 * LANES) weigh<4>(weights, value + d, c.value_row, count, factor, output + d);
  for (; d + LANES <= c.width; d += LANES) weigh<1>(weights, value + d, c.value_row, count, factor, output + d);
  for (; d < c.width; d++) {
    float sum = output[d] * factor;
    for (long k = 0; k < count; k++) sum += weights[k] * value[k * c.value_row + d];
    output[d] = sum;
  }
}

static void body(void* const* pointers, const long* n, long begin, long end) {
  const long splits = n[2], groups = n[3], sharing = n[4], rows = n[5], longest = n[6];
  const long *query = n + 10, *key = n + 13, *value = n + 16, *result = n + 19;  // steps
  const float scale = __int_as_float(static_cast<int>(n[9]));
  const long given = *static_cast<const long long*>(pointers[3]), last = longest - rows;
  const long before = given < 0 ? 0 : given > last ? last : given, keys = before + rows;
  const long some = (keys + splits * KEYS - 1) / (splits * KEYS) * KEYS, count = sharing * rows;
  for (long part = begin; part < end; part++) {
    const long split = part % splits, group = part / splits % groups, image = part / splits / groups;
    const Cache c = {static_cast<float*>(pointers[1]) + image * key[0] + group * key[1],
                     static_cast<float*>(pointers[2]) + image * value[0] + group * value[1],
                     key[2], value[2], n[7], n[8]};
    const long from = split * some, to = from + some < keys ? from + some : keys;
    for (long first = 0; first < count; first += MOST) {
      const long taken = count - first < MOST ? count - first : MOST;
      alignas(64) float asked[MOST * WIDEST], output[MOST * WIDEST] = {};
      float most[MOST], total[MOST] = {};
      const auto head = [&](long m) { return group * sharing + (first + m) / rows; };
      for (long m = 0; m < taken; m++) {
        const float* const x = static_cast<float*>(pointers[0]) + image * query[0] + head(m) * query[1] +
                               (first + m) % rows * query[2];
        for (long e = 0; e < c.inner; e++) asked[m * WIDEST + e] = x[e] * scale;
        most[m] = LOWEST;
      }
      for (long at_key = from; at_key < to; at_key += KEYS)
        for (long m = 0; m < taken; m++)
          add_keys(c, asked + m * WIDEST, at_key, to - at_key < KEYS ? to - at_key : KEYS,
                   before + (first + m) % rows + 1, most[m], total[m], output + m * WIDEST);
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
