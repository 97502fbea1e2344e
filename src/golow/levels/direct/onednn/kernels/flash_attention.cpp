// softmax(scale query key^T + added) value for some of a head's rows at a time, in the manner of Dao et
// al. 2022, "FlashAttention": keys are taken in blocks, and what was summed before is scaled down when a
// larger score appears. Nothing is as large as the scores of a head.
//
// A panel has a column for every row of the query, so that softmax goes down vectors, and keys and values
// are read where they lie, one number for a whole vector.
struct Head {
  const float *query, *added;
  float *output, *logarithm;  // of each row's sum of exponentials
  Matrix key, value;
  long query_row, output_row, added_row, added_key, keys, inner, width;
  long before;  // the first row: rows before it are not of this query, but their keys are here
  float scale;
  bool causal;
};
// Of some rows of the query: [inner, wide], [KEYS, wide], [width, wide], [wide], [wide].
struct Panel {
  float *query, *weights, *output, *most, *total;
  long wide;
};

template <int V>
static void add_keys(const Head& h, Panel p, long first, long rows, long begin, long count, bool hides) {
  constexpr int W = V * LANES;
  const Matrix key = {h.key.first + begin * h.key.row, h.key.row, 1};
  product<V>(key, count, h.inner, p.query, p.weights, p.wide, false);
  for (long k = 0; h.added && k < count; k++) {
    const float* const x = h.added + (begin + k) * h.added_key + first * h.added_row;
    float* const scores = p.weights + k * p.wide;
    if (h.added_row)
      for (long q = 0; q < rows; q++) scores[q] += x[q];
    else
      for (int q = 0; q < W; q += LANES) at(scores + q) += *x;
  }
  for (long k = 1; hides && k < count; k++)
    for (long q = 0; q < k; q++) p.weights[k * p.wide + q] = -__builtin_inff();
  float factor[W];
  for (int q = 0; q < W; q += LANES) {
    Lanes most = at(p.most + q);
    for (long k = 0; k < count; k++) {
      const Lanes x = at(p.weights + k * p.wide + q);
      most = x > most ? x : most;
    }
    at(factor + q) = at(p.most + q) - most;
    at(p.most + q) = most;
  }
  #pragma omp simd
  for (int q = 0; q < W; q++) p.total[q] *= factor[q] = exp_of_term(factor[q]);
  for (long k = 0; k < count; k++) {
    float* const weights = p.weights + k * p.wide;
    #pragma omp simd
    for (int q = 0; q < W; q++) {
      weights[q] = exp_of_term(weights[q] - p.most[q]);
      p.total[q] += weights[q];
    }
  }
  for (long d = 0; begin && d < h.width; d++)
    for (int q = 0; q < W; q += LANES) at(p.output + d * p.wide + q) *= at(factor + q);
  const Matrix value = {h.value.first + begin * h.value.row, 1, h.value.row};
  product<V>(value, h.width, count, p.weights, p.output, p.wide, begin > 0);
}

// The keys from this row's own on, of which each row sees one more than the row before. Whole vectors of
// rows that see none of some keys are left out.
template <int V>
static void add_diagonal(const Head& h, Panel p, long first, long rows) {
  const long own = h.before + first, left = h.keys - own;
  if (left <= 0 || rows <= 0) return;
  add_keys<V>(h, p, first, rows, own, left < LANES ? left : LANES, true);
  if constexpr (V > 1) {
    const Panel rest = {p.query + LANES, p.weights + LANES, p.output + LANES,
                        p.most + LANES,  p.total + LANES,   p.wide};
    add_diagonal<V - 1>(h, rest, first + LANES, rows - LANES);
  }
}

// The rows from ``first`` on: as many vectors as they need, at most V.
template <int V>
static void attend(const Head& h, long first, long rows) {
  if constexpr (V > 1) {
    if (rows <= (V - 1) * LANES) return attend<V - 1>(h, first, rows);
  }
  constexpr int W = V * LANES;
  alignas(64) float query[WIDEST * W], weights[KEYS * W], output[WIDEST * W], most[W], total[W];
  read_columns<W>(h.query + first * h.query_row, h.query_row, rows, h.inner, h.scale, query);
  for (int q = 0; q < W; q++) most[q] = -__builtin_inff(), total[q] = 0;
  const Panel p = {query, weights, output, most, total, W};
  const long own = h.before + first, all = h.causal && own < h.keys ? own : h.keys;
  for (long begin = 0; begin < all; begin += KEYS)
    add_keys<V>(h, p, first, rows, begin, all - begin < KEYS ? all - begin : KEYS, false);
  if (h.causal) add_diagonal<V>(h, p, first, rows);
  for (int q = 0; h.logarithm && q < rows; q++) h.logarithm[first + q] = most[q] + logf(total[q]);
  for (int q = 0; q < W; q++) total[q] = 1.0f / total[q];
  write_columns<W>(output, total, h.output + first * h.output_row, h.output_row, rows, h.width);
}

static void body(void* const* pointers, const long* n, long begin, long end) {
  const long some = n[2], blocks = n[3], heads = n[4], sharing = n[5], rows = n[6];
  const bool adds = n[12], keeps = n[13], cached = n[30];  // of which the keys are as many as were written
  const float* const inputs[] = {static_cast<float*>(pointers[0]), static_cast<float*>(pointers[1]),
                                 static_cast<float*>(pointers[2])};
  const float* const added = adds ? static_cast<float*>(pointers[3]) : nullptr;
  const long long* const positions = cached ? static_cast<const long long*>(pointers[3 + adds]) : nullptr;
  float* const output = static_cast<float*>(pointers[3 + adds + cached]);
  float* const logarithm = keeps ? static_cast<float*>(pointers[4 + adds + cached]) : nullptr;
  const long *query = n + 14, *key = n + 17, *value = n + 20, *result = n + 23, *mask = n + 26;  // steps
  for (long part = begin; part < end; part++) {
    const long head = part / blocks % heads, image = part / blocks / heads, group = head / sharing;
    const long given = cached ? positions[n[31] ? image : 0] : 0, most = n[7] - rows;
    const long before = given < 0 ? 0 : cached && given > most ? most : given;
    Head h;
    h.query = inputs[0] + image * query[0] + head * query[1], h.query_row = query[2];
    h.key = {inputs[1] + image * key[0] + group * key[1], key[2], 1};
    h.value = {inputs[2] + image * value[0] + group * value[1], value[2], 1};
    h.output = output + image * result[0] + head * result[1], h.output_row = result[2];
    h.logarithm = keeps ? logarithm + (image * heads + head) * rows : nullptr;
    h.added = adds ? added + image * mask[0] + head * mask[1] : nullptr;
    h.added_row = mask[2], h.added_key = mask[3];
    h.before = before, h.keys = cached ? before + rows : n[7], h.inner = n[8], h.width = n[9], h.causal = n[10];
    h.scale = __int_as_float(static_cast<int>(n[11]));
    long first = part % blocks * some;
    const long last = first + some < rows ? first + some : rows;
    for (; first < last; first += VECTORS * LANES)
      attend<VECTORS>(h, first, last - first < VECTORS * LANES ? last - first : VECTORS * LANES);
  }
}
