// The gradients of a group's key and value and of the queries of the heads that share it (Dao et al. 2022,
// "FlashAttention", algorithm 4): the weights are computed again, from the logarithms of their sums.
//
// Two kinds of panels: with a column for every row of the query, as in the forward pass, and, for what is
// summed over the query, the query's rows themselves, with zeros up to whole vectors.
struct Head {
  const float *query, *gradient, *output, *logarithm, *added;
  float *of_query, *of_key, *of_value;
  Matrix key, value;
  long query_row, gradient_row, output_row, of_query_row, of_key_row, of_value_row, added_row, added_key;
  long keys, inner, width;
  float scale;
  bool causal;
};

INLINE long whole(long size) { return (size + LANES - 1) / LANES * LANES; }

template <int W>
static void read_rows(const float* from, long step, long count, long size, float factor, float* rows) {
  const long wide = whole(size);
  for (long i = 0; i < W * wide; i++) rows[i] = 0;
  for (long q = 0; q < count; q++)
    for (long e = 0; e < size; e++) rows[q * wide + e] = from[q * step + e] * factor;
}

// The product of as many vectors as there are, at most V.
template <int V>
static void some_vectors(long vectors, Matrix a, long rows, long inner, const float* b, float* c, long wide) {
  if constexpr (V > 1) {
    if (vectors < V) return some_vectors<V - 1>(vectors, a, rows, inner, b, c, wide);
  }
  product<V>(a, rows, inner, b, c, wide, false);
}

// Adds a b to rows: a is [count, W], b is [W, size] and has whole vectors.
template <int W>
static void add_product(const float* a, long count, const float* b, long size, float* rows, long step) {
  alignas(64) float sums[KEYS * WIDEST];
  const long wide = whole(size);
  const Matrix left = {a, W, 1};
  for (long e = 0; e < wide; e += VECTORS * LANES)
    some_vectors<VECTORS>((wide - e) / LANES, left, count, W, b + e, sums + e, wide);
  for (long k = 0; k < count; k++)
    #pragma omp simd
    for (long i = 0; i < size; i++) rows[k * step + i] += sums[k * wide + i];
}

template <int V>
static void go_back(const Head& h, long first, long rows) {
  if constexpr (V > 1) {
    if (rows <= (V - 1) * LANES) return go_back<V - 1>(h, first, rows);
  }
  constexpr int W = V * LANES;
  alignas(64) float query[WIDEST * W], gradient[WIDEST * W], of_query[WIDEST * W];
  alignas(64) float query_rows[WIDEST * W], gradient_rows[WIDEST * W];
  alignas(64) float weights[KEYS * W], of_scores[KEYS * W], logarithm[W], shared[W], factor[W];
  const float* const x = h.query + first * h.query_row;
  const float* const y = h.gradient + first * h.gradient_row;
  read_columns<W>(x, h.query_row, rows, h.inner, h.scale, query);
  read_rows<W>(x, h.query_row, rows, h.inner, h.scale, query_rows);
  read_columns<W>(y, h.gradient_row, rows, h.width, 1.0f, gradient);
  read_rows<W>(y, h.gradient_row, rows, h.width, 1.0f, gradient_rows);
  for (int q = 0; q < W; q++) {
    const long row = first + (q < rows ? q : 0);
    const float* const output = h.output + row * h.output_row;
    const float* const outer = h.gradient + row * h.gradient_row;
    float sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (long d = 0; d < h.width; d++) sum += output[d] * outer[d];
    shared[q] = sum, factor[q] = h.scale;
    logarithm[q] = q < rows ? h.logarithm[row] : __builtin_inff();  // no weight behind the last row
  }
  const long seen = h.causal && first + rows < h.keys ? first + rows : h.keys;
  for (long begin = 0; begin < seen; begin += KEYS) {
    const long count = seen - begin < KEYS ? seen - begin : KEYS;
    const float* const key = h.key.first + begin * h.key.row;
    product<V>({key, h.key.row, 1}, count, h.inner, query, weights, W, false);
    product<V>({h.value.first + begin * h.value.row, h.value.row, 1}, count, h.width, gradient, of_scores, W, false);
    for (long k = 0; k < count; k++) {
      float* const line = weights + k * W;
      const float* const added = h.added + (begin + k) * h.added_key + first * h.added_row;
      const long hidden = h.causal ? begin + k - first : 0;  // rows that do not see this key
      if (h.added && h.added_row)
        for (long q = 0; q < rows; q++) line[q] += added[q];
      else if (h.added)
        for (int q = 0; q < W; q += LANES) at(line + q) += *added;
      for (long q = 0; q < hidden; q++) line[q] = -__builtin_inff();
      #pragma omp simd
      for (int q = 0; q < W; q++) {
        line[q] = exp_of_term(line[q] - logarithm[q]);
        of_scores[k * W + q] = line[q] * (of_scores[k * W + q] - shared[q]);
      }
    }
    product<V>({key, 1, h.key.row}, h.inner, count, of_scores, of_query, W, begin > 0);
    add_product<W>(weights, count, gradient_rows, h.width, h.of_value + begin * h.of_value_row, h.of_value_row);
    add_product<W>(of_scores, count, query_rows, h.inner, h.of_key + begin * h.of_key_row, h.of_key_row);
  }
  write_columns<W>(of_query, factor, h.of_query + first * h.of_query_row, h.of_query_row, rows, h.inner);
}

static void clear(float* rows, long step, long count, long size) {
  for (long k = 0; k < count; k++)
    for (long e = 0; e < size; e++) rows[k * step + e] = 0;
}

static void body(void* const* pointers, const long* n, long begin, long end) {
  const long groups = n[2], sharing = n[3], rows = n[4];
  const bool adds = n[10];
  const auto number = [&](int index) { return static_cast<float*>(pointers[index]); };
  const long *query = n + 11, *key = n + 14, *value = n + 17, *result = n + 20, *outer = n + 23;  // steps
  const long *of_query = n + 26, *of_key = n + 29, *of_value = n + 32, *mask = n + 35;
  for (long part = begin; part < end; part++) {
    const long image = part / groups, group = part % groups;
    Head h;
    h.keys = n[5], h.inner = n[6], h.width = n[7], h.causal = n[8];
    h.scale = __int_as_float(static_cast<int>(n[9]));
    h.key = {number(1) + image * key[0] + group * key[1], key[2], 1};
    h.value = {number(2) + image * value[0] + group * value[1], value[2], 1};
    h.of_key = number(7 + adds) + image * of_key[0] + group * of_key[1], h.of_key_row = of_key[2];
    h.of_value = number(8 + adds) + image * of_value[0] + group * of_value[1], h.of_value_row = of_value[2];
    clear(h.of_key, h.of_key_row, h.keys, h.inner);
    clear(h.of_value, h.of_value_row, h.keys, h.width);
    for (long head = group * sharing; head < (group + 1) * sharing; head++) {
      h.query = number(0) + image * query[0] + head * query[1], h.query_row = query[2];
      h.output = number(3) + image * result[0] + head * result[1], h.output_row = result[2];
      h.logarithm = number(4) + (image * groups * sharing + head) * rows;
      h.gradient = number(5) + image * outer[0] + head * outer[1], h.gradient_row = outer[2];
      h.added = adds ? number(6) + image * mask[0] + head * mask[1] : nullptr;
      h.added_row = mask[2], h.added_key = mask[3];
      h.of_query = number(6 + adds) + image * of_query[0] + head * of_query[1], h.of_query_row = of_query[2];
      for (long first = 0; first < rows; first += VECTORS * LANES)
        go_back<VECTORS>(h, first, rows - first < VECTORS * LANES ? rows - first : VECTORS * LANES);
    }
  }
}
