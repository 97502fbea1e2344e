// Flash attention with tf32 products (Dao, "FlashAttention-2", 2023, arXiv:2307.08691): of float32
// tensors, and of 16-bit ones with dropout. Scores are never in memory.
//
//   s[i, j] = scale * q[i] k[j] + added[i, j]      (only j <= i if CAUSAL)
//   o[i]    = sum over j of p[i, j] v[j],  p[i, j] = exp(s[i, j] - log[i])
//   log[i]  = log of the sum over j of exp(s[i, j])
//   dv[j]   = sum over i of p[i, j] do[i]
//   ds[i, j] = p[i, j] (do[i] v[j] - delta[i]),  delta[i] = do[i] o[i]
//   dq[i]   = scale * sum over j of ds[i, j] k[j]
//   dk[j]   = scale * sum over i of ds[i, j] q[i]
//
// With DROPS, dropout multiplies p[i, j] by 0 or by raised = 1 / (1 - probability): in o and dv the
// weight, and in ds the product do[i] v[j]. delta stays do[i] o[i].

#ifdef DROPS
#define DROPOUT const bool *kept, const float *probability,
#else
#define DROPOUT
#endif

// A block has 16 * WARPS rows of one head and takes KEYS keys at a time.
// A: type of what is added; by a mask of truth values, a row that sees nothing is zero.
template <typename A, int WARPS, int KEYS, int E, int D, bool CAUSAL, int ADDED, typename T = float>
__global__ void __launch_bounds__(32 * WARPS)
    forward(const T* query, const T* key, const T* value, const A* added, DROPOUT
            T* output, float* logarithms, int rows, int keys, int query_width, int value_width,
            int group, PLACE(query), PLACE(key), PLACE(value), PLACE(added), PLACE(output),
            float scale) {
  constexpr int THREADS = 32 * WARPS;
  __shared__ __align__(16) unsigned key_tile[KEYS * (E + 4)], value_tile[KEYS * (D + 4)];
  const int head = blockIdx.y, image = blockIdx.z;
  // Of a causal head, the blocks that have most to do come first.
  const int block = CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int first_row = block * 16 * WARPS + threadIdx.x / 32 * 16;
  const int row = first_row + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const T* own_keys = AT(key, image, head / group);
  const T* own_values = AT(value, image, head / group);

  unsigned q[E / 8][4];
  load_first<E>(q, AT(query, image, head), query_row, row, rows, query_width, scale * LOG2E);
  float o[D / 8][4] = {}, largest[2] = {-INFINITE, -INFINITE}, total[2] = {};
  const int end = CAUSAL ? min(keys, (block + 1) * 16 * WARPS) : keys;
  Tile<KEYS, E, THREADS> next_keys;
  Tile<KEYS, D, THREADS> next_values;
  next_keys.load(own_keys, key_row, 0, keys, query_width);
  for (int start = 0; start < end; start += KEYS) {
    next_keys.store(key_tile);
    next_values.load(own_values, value_row, start, keys, value_width);
    __syncthreads();
    float score[KEYS / 8][4] = {};
    add_products<KEYS, E>(score, q, key_tile);
    if (ADDED)
      add_to_scores<ADDED == PAIRS, KEYS>(score, AT(added, image, head), added_row, row, rows, start, keys);
    if (start + KEYS > keys || (CAUSAL && start + KEYS > first_row + 1))
      hide_scores<CAUSAL, KEYS>(score, row, start, keys);
    weigh_scores<KEYS, D>(score, o, largest, total);
#ifdef DROPS
    drop<KEYS>(score, kept + ((size_t)image * gridDim.y + head) * rows * keys,
               raised_by(*probability), row, rows, start, keys);
#endif
    next_values.store(value_tile);
    if (start + KEYS < end) next_keys.load(own_keys, key_row, start + KEYS, keys, query_width);
    __syncthreads();
    add_rows<KEYS, D>(o, score, value_tile);
  }
  total[0] = sum_of_four(total[0]), total[1] = sum_of_four(total[1]);
  const bool nothing[2] = {Rows<A>::see_nothing(largest[0]), Rows<A>::see_nothing(largest[1])};
  store_rows<D>(AT(output, image, head), output_row, row, rows, value_width, o,
                nothing[0] ? 0 : 1 / total[0], nothing[1] ? 0 : 1 / total[1]);
  if (logarithms == nullptr || t > 0) return;
  float* own = logarithms + ((size_t)image * gridDim.y + head) * rows;
  if (row < rows) own[row] = nothing[0] ? 0 : (largest[0] + log2f(total[0])) * LN2;
  if (row + 8 < rows) own[row + 8] = nothing[1] ? 0 : (largest[1] + log2f(total[1])) * LN2;
}

#define GRADIENT_ARGUMENTS                                                                         \
  const T *query, const T *key, const T *value, const A *added, DROPOUT const T *output,           \
      const T *gradient, const float *logarithms, T *of_query, T *of_key, T *of_value,             \
      float *delta, int heads, int rows, int keys, int query_width,               \
      int value_width, int group, PLACE(query), PLACE(key), PLACE(value), PLACE(added),            \
      PLACE(output), PLACE(gradient), PLACE(of_query), PLACE(of_key), PLACE(of_value), float scale

// The gradient of query, and delta [images, heads, rows]. A block has 64 rows of one head.
template <typename A, int KEYS, int E, int D, bool CAUSAL, int ADDED, typename T = float>
__global__ void __launch_bounds__(128) backward_query(GRADIENT_ARGUMENTS) {
  __shared__ __align__(16) unsigned key_tile[KEYS * (E + 4)], value_tile[KEYS * (D + 4)];
  const int head = blockIdx.y, image = blockIdx.z;
  const int block = CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int first_row = block * 64 + threadIdx.x / 32 * 16;
  const int row = first_row + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const T* own_keys = AT(key, image, head / group);
  const T* own_values = AT(value, image, head / group);
  const size_t line = ((size_t)image * heads + head) * rows;

  float own_delta[2] = {}, logarithm[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int here = row + 8 * half;
    const T* o = AT(output, image, head) + (size_t)here * output_row;
    const T* d = AT(gradient, image, head) + (size_t)here * gradient_row;
#pragma unroll
    for (int c = 0; c < D / 32; ++c) {
      const int column = 32 * c + 8 * t;
      float of_o[8], of_d[8];
      load_eight(of_o, o, column, here < rows && column < value_width);
      load_eight(of_d, d, column, here < rows && column < value_width);
#pragma unroll
      for (int i = 0; i < 8; ++i) own_delta[half] = fmaf(of_o[i], of_d[i], own_delta[half]);
    }
    own_delta[half] = sum_of_four(own_delta[half]);
    logarithm[half] = here < rows ? logarithms[line + here] * LOG2E : INFINITE;
    if (t == 0 && here < rows) delta[line + here] = own_delta[half];
  }

  unsigned q[E / 8][4], d[D / 8][4];
  load_first<E>(q, AT(query, image, head), query_row, row, rows, query_width, scale * LOG2E);
  load_first<D>(d, AT(gradient, image, head), gradient_row, row, rows, value_width, 1.f);
  float sum[E / 8][4] = {};
  const int end = CAUSAL ? min(keys, (block + 1) * 64) : keys;
  Tile<KEYS, E, 128> next_keys;
  Tile<KEYS, D, 128> next_values;
  next_keys.load(own_keys, key_row, 0, keys, query_width);
  next_values.load(own_values, value_row, 0, keys, value_width);
  for (int start = 0; start < end; start += KEYS) {
    next_keys.store(key_tile);
    next_values.store(value_tile);
    __syncthreads();
    if (start + KEYS < end) {
      next_keys.load(own_keys, key_row, start + KEYS, keys, query_width);
      next_values.load(own_values, value_row, start + KEYS, keys, value_width);
    }
    float score[KEYS / 8][4] = {}, change[KEYS / 8][4] = {};
    add_products<KEYS, E>(score, q, key_tile);
    add_products<KEYS, D>(change, d, value_tile);
#ifdef DROPS
    drop<KEYS>(change, kept + line * keys, raised_by(*probability), row, rows, start, keys);
#endif
    if (ADDED)
      add_to_scores<ADDED == PAIRS, KEYS>(score, AT(added, image, head), added_row, row, rows, start, keys);
    if (start + KEYS > keys || (CAUSAL && start + KEYS > first_row + 1))
      hide_scores<CAUSAL, KEYS>(score, row, start, keys);
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        change[j][i] =
            power_of_two(score[j][i] - logarithm[i / 2]) * (change[j][i] - own_delta[i / 2]);
    }
    add_rows<KEYS, E>(sum, change, key_tile);
    __syncthreads();
  }
  store_rows<E>(AT(of_query, image, head), of_query_row, row, rows, query_width, sum, scale, scale);
}

// The gradients of key and value, after `backward_query`. A block has 64 keys of one head of keys
// and takes ROWS rows at a time of each of the heads that share them. Scores are transposed here.
template <typename A, int ROWS, int E, int D, bool CAUSAL, int ADDED, typename T = float>
__global__ void __launch_bounds__(128) backward_keys(GRADIENT_ARGUMENTS) {
  __shared__ __align__(16) unsigned query_tile[ROWS * (E + 4)], gradient_tile[ROWS * (D + 4)];
  __shared__ float line_logarithms[ROWS], line_delta[ROWS];
  const int image = blockIdx.z, t = threadIdx.x % 4;
  const int own = blockIdx.x * 64 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;  // a key

  unsigned k[E / 8][4], v[D / 8][4];
  load_first<E>(k, AT(key, image, blockIdx.y), key_row, own, keys, query_width, scale * LOG2E);
  load_first<D>(v, AT(value, image, blockIdx.y), value_row, own, keys, value_width, 1.f);
  float of_k[E / 8][4] = {}, of_v[D / 8][4] = {};
  Tile<ROWS, E, 128> next_queries;
  Tile<ROWS, D, 128> next_gradients;
  const int begin = CAUSAL ? blockIdx.x * 64 / ROWS * ROWS : 0;
  for (int head = blockIdx.y * group; head < (blockIdx.y + 1) * group; ++head) {
    const T* queries = AT(query, image, head);
    const T* gradients = AT(gradient, image, head);
    const size_t line = ((size_t)image * heads + head) * rows;
    next_queries.load(queries, query_row, begin, rows, query_width);
    next_gradients.load(gradients, gradient_row, begin, rows, value_width);
    for (int start = begin; start < rows; start += ROWS) {
      next_queries.store(query_tile);
      next_gradients.store(gradient_tile);
      if (threadIdx.x < ROWS) {
        const int row = start + threadIdx.x;
        line_logarithms[threadIdx.x] = row < rows ? logarithms[line + row] * LOG2E : INFINITE;
        line_delta[threadIdx.x] = row < rows ? delta[line + row] : 0.f;
      }
      __syncthreads();
      if (start + ROWS < rows) {
        next_queries.load(queries, query_row, start + ROWS, rows, query_width);
        next_gradients.load(gradients, gradient_row, start + ROWS, rows, value_width);
      }
      float weight[ROWS / 8][4] = {}, change[ROWS / 8][4] = {};
      add_products<ROWS, E>(weight, k, query_tile);
      add_products<ROWS, D>(change, v, gradient_tile);
#pragma unroll
      for (int j = 0; j < ROWS / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = 8 * j + 2 * t + i % 2, row = start + at, column = own + i / 2 * 8;
          float score = weight[j][i];
          if (ADDED)
            score = fmaf(added_number(AT(added, image, head)[(size_t)min(row, rows - 1) * added_row +
                                                             min(column, keys - 1)]),
                         LOG2E, score);
          const bool seen = !CAUSAL || column <= row;
          weight[j][i] = seen ? power_of_two(score - line_logarithms[at]) : 0.f;
#ifdef DROPS
          const bool stays = row < rows && column < keys && kept[(line + row) * keys + column];
          const float factor = stays ? raised_by(*probability) : 0.f;
          change[j][i] = weight[j][i] * (change[j][i] * factor - line_delta[at]);
          weight[j][i] *= factor;
#else
          change[j][i] = weight[j][i] * (change[j][i] - line_delta[at]);
#endif
        }
      }
      add_rows<ROWS, D>(of_v, weight, gradient_tile);
      add_rows<ROWS, E>(of_k, change, query_tile);
      __syncthreads();
    }
  }
  store_rows<E>(AT(of_key, image, blockIdx.y), of_key_row, own, keys, query_width, of_k, scale,
                scale);
  store_rows<D>(AT(of_value, image, blockIdx.y), of_value_row, own, keys, value_width, of_v, 1.f,
                1.f);
}
