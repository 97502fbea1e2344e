// Flash attention of float32 tensors with tf32 products (Dao, "FlashAttention-2", 2023,
// arXiv:2307.08691). Scores are never in memory.
//
//   s[i, j] = scale * q[i] k[j] + added[i, j]      (only j <= i if CAUSAL)
//   o[i]    = sum over j of p[i, j] v[j],  p[i, j] = exp(s[i, j] - log[i])
//   log[i]  = log of the sum over j of exp(s[i, j])
//   dv[j]   = sum over i of p[i, j] do[i]
//   ds[i, j] = p[i, j] (do[i] v[j] - delta[i]),  delta[i] = do[i] o[i]
//   dq[i]   = scale * sum over j of ds[i, j] k[j]
//   dk[j]   = scale * sum over i of ds[i, j] q[i]
//
// A warp has 16 rows of the first matrix of a product in registers; those of the second are in
// shared memory, as rows of W + 4 floats, which all loads below read without conflicts of banks.
// Lane l is lane t = l % 4 of group g = l / 4, and has rows g and g + 8. A product sums over 8
// numbers, of which the lane has the t-th and the (t + 4)-th, but their order is free as long as
// both matrices have the same. So four products take the 8 adjacent columns 8t of 32
// (`add_products`); and the product of what a product gave, of which the lane has columns 2t and
// 2t + 1, takes rows 2t and 2t + 1 (`add_rows`), and no lane asks another one. The result's
// columns are free, too: the i-th of four products gives columns 4g + i of 32.

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f
#define NUMBERS 1  // what is added, one by one or in pairs
#define PAIRS 2
#define INFINITE __int_as_float(0x7f800000)

// Where [images, heads, rows, width] lies: distances in elements. Rows themselves are contiguous.
#define PLACE(name) int name##_image, int name##_head, int name##_row
#define AT(name, image, head)                                                                      \
  (name + (size_t)(image) * name##_image + (size_t)(head) * name##_head)

__device__ inline float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
}

__device__ inline unsigned as_tf32(float x) { return rounded<float>(__float_as_uint(x)); }

// The sum, or the maximum, over the four lanes that have the same rows.
__device__ inline float sum_of_four(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ inline float maximum_of_four(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// Eight adjacent floats of a row, zeros where there are none.
__device__ inline void load_eight(float (&eight)[8], const float* row, int column, bool there) {
  float4 low = {}, high = {};
  if (there) {
    low = *reinterpret_cast<const float4*>(row + column);
    high = *reinterpret_cast<const float4*>(row + column + 4);
  }
  eight[0] = low.x, eight[1] = low.y, eight[2] = low.z, eight[3] = low.w;
  eight[4] = high.x, eight[5] = high.y, eight[6] = high.z, eight[7] = high.w;
}

// The lane's part of rows `row` and `row + 8`, multiplied by a factor, as the first matrix.
template <int W>
__device__ inline void load_first(unsigned (&first)[W / 8][4], const float* matrix, int step,
                                  int row, int rows, int width, float factor) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float* own = matrix + (size_t)(row + 8 * half) * step;
#pragma unroll
    for (int c = 0; c < W / 32; ++c) {
      float eight[8];
      const int column = 32 * c + 8 * t;
      load_eight(eight, own, column, row + 8 * half < rows && column < width);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        first[4 * c + i][half] = as_tf32(eight[2 * i] * factor);
        first[4 * c + i][half + 2] = as_tf32(eight[2 * i + 1] * factor);
      }
    }
  }
}

// The rows on their way into shared memory: read early, rounded and written when they are wanted.
template <int ROWS, int W, int THREADS> struct Tile {
  static constexpr int PIECES = ROWS * W / 4 / THREADS;
  float4 piece[PIECES];

  __device__ inline void load(const float* matrix, int step, int first, int rows, int width) {
#pragma unroll
    for (int n = 0; n < PIECES; ++n) {
      const int at = n * THREADS + threadIdx.x, row = first + at / (W / 4);
      const int column = at % (W / 4) * 4;
      piece[n] = float4{};
      if (row < rows && column < width)
        piece[n] = *reinterpret_cast<const float4*>(matrix + (size_t)row * step + column);
    }
  }

  __device__ inline void store(unsigned* shared) const {
#pragma unroll
    for (int n = 0; n < PIECES; ++n) {
      const int at = n * THREADS + threadIdx.x;
      const float4 p = piece[n];
      *reinterpret_cast<uint4*>(shared + at / (W / 4) * (W + 4) + at % (W / 4) * 4) =
          uint4{as_tf32(p.x), as_tf32(p.y), as_tf32(p.z), as_tf32(p.w)};
    }
  }
};

// sum[j] += first x (rows 8j to 8j + 7 of the tile), transposed.
template <int ROWS, int W>
__device__ inline void add_products(float (&sum)[ROWS / 8][4], const unsigned (&first)[W / 8][4],
                                    const unsigned* tile) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int c = 0; c < W / 32; ++c) {
#pragma unroll
    for (int j = 0; j < ROWS / 8; ++j) {
      const uint4* row =
          reinterpret_cast<const uint4*>(tile + (8 * j + g) * (W + 4) + 32 * c + 8 * t);
      const uint4 low = row[0], high = row[1];
      multiply_add<float>(sum[j], first[4 * c], low.x, low.y);
      multiply_add<float>(sum[j], first[4 * c + 1], low.z, low.w);
      multiply_add<float>(sum[j], first[4 * c + 2], high.x, high.y);
      multiply_add<float>(sum[j], first[4 * c + 3], high.z, high.w);
    }
  }
}

// sum += weights x tile; the weights are what `add_products` gave.
template <int ROWS, int W>
__device__ inline void add_rows(float (&sum)[W / 8][4], const float (&weights)[ROWS / 8][4],
                                const unsigned* tile) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < ROWS / 8; ++j) {
    const unsigned first[4] = {as_tf32(weights[j][0]), as_tf32(weights[j][2]),
                               as_tf32(weights[j][1]), as_tf32(weights[j][3])};
#pragma unroll
    for (int c = 0; c < W / 32; ++c) {
      const unsigned* row = tile + (8 * j + 2 * t) * (W + 4) + 32 * c + 4 * g;
      const uint4 even = *reinterpret_cast<const uint4*>(row);
      const uint4 odd = *reinterpret_cast<const uint4*>(row + W + 4);
      multiply_add<float>(sum[4 * c], first, even.x, odd.x);
      multiply_add<float>(sum[4 * c + 1], first, even.y, odd.y);
      multiply_add<float>(sum[4 * c + 2], first, even.z, odd.z);
      multiply_add<float>(sum[4 * c + 3], first, even.w, odd.w);
    }
  }
}

// Writes rows `row` and `row + 8` of what `add_rows` gave, multiplied by a factor each.
template <int W>
__device__ inline void store_rows(float* matrix, int step, int row, int rows, int width,
                                  const float (&sum)[W / 8][4], float factor, float second_factor) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float by = half ? second_factor : factor;
#pragma unroll
    for (int c = 0; c < W / 32; ++c) {
      const int column = 32 * c + 8 * t;
      if (row + 8 * half >= rows || column >= width) continue;
      float4* to = reinterpret_cast<float4*>(matrix + (size_t)(row + 8 * half) * step + column);
#pragma unroll
      for (int k = 0; k < 2; ++k)
        to[k] = float4{sum[4 * c][2 * half + k] * by, sum[4 * c + 1][2 * half + k] * by,
                       sum[4 * c + 2][2 * half + k] * by, sum[4 * c + 3][2 * half + k] * by};
    }
  }
}

// Adds to scores of rows `row` and `row + 8` and of columns from `start`, in units of log2.
// IN_PAIRS: the number of columns is even, and pairs are aligned.
template <bool IN_PAIRS, int COLUMNS>
__device__ inline void add_to_scores(float (&score)[COLUMNS / 8][4], const float* added, int step,
                                     int row, int rows, int start, int columns) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float* own = added + (size_t)min(row + 8 * half, rows - 1) * step;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; ++j) {
      const int column = start + 8 * j + 2 * t;
      float2 two = {};
      if (IN_PAIRS && column < columns) two = *reinterpret_cast<const float2*>(own + column);
      if (!IN_PAIRS && column < columns) two.x = own[column];
      if (!IN_PAIRS && column + 1 < columns) two.y = own[column + 1];
      score[j][2 * half] = fmaf(two.x, LOG2E, score[j][2 * half]);
      score[j][2 * half + 1] = fmaf(two.y, LOG2E, score[j][2 * half + 1]);
    }
  }
}

// Hides scores of columns that are not there, or that a row must not see.
template <bool CAUSAL, int COLUMNS>
__device__ inline void hide_scores(float (&score)[COLUMNS / 8][4], int row, int start,
                                   int columns) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < COLUMNS / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = start + 8 * j + 2 * t + i % 2;
      if (column >= columns || (CAUSAL && column > row + i / 2 * 8)) score[j][i] = -INFINITE;
    }
  }
}

// A block has 16 * WARPS rows of one head and takes KEYS keys at a time.
template <int WARPS, int KEYS, int E, int D, bool CAUSAL, int ADDED>
__global__ void __launch_bounds__(32 * WARPS)
    forward(const float* query, const float* key, const float* value, const float* added,
            float* output, float* logarithms, int rows, int keys, int query_width, int value_width,
            int group, PLACE(query), PLACE(key), PLACE(value), PLACE(added), PLACE(output),
            float scale) {
  constexpr int THREADS = 32 * WARPS;
  __shared__ __align__(16) unsigned key_tile[KEYS * (E + 4)], value_tile[KEYS * (D + 4)];
  const int head = blockIdx.y, image = blockIdx.z;
  // Of a causal head, the blocks that have most to do come first.
  const int block = CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int first_row = block * 16 * WARPS + threadIdx.x / 32 * 16;
  const int row = first_row + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const float* own_keys = AT(key, image, head / group);
  const float* own_values = AT(value, image, head / group);

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
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = largest[half];
#pragma unroll
      for (int j = 0; j < KEYS / 8; ++j)
        most = fmaxf(most, fmaxf(score[j][2 * half], score[j][2 * half + 1]));
      most = maximum_of_four(most);
      const float shrunk = power_of_two(largest[half] - most);
      largest[half] = most;
      total[half] *= shrunk;
#pragma unroll
      for (int j = 0; j < KEYS / 8; ++j) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          score[j][2 * half + k] = power_of_two(score[j][2 * half + k] - most);
          total[half] += score[j][2 * half + k];
        }
      }
#pragma unroll
      for (int c = 0; c < D / 8; ++c) o[c][2 * half] *= shrunk, o[c][2 * half + 1] *= shrunk;
    }
    next_values.store(value_tile);
    if (start + KEYS < end) next_keys.load(own_keys, key_row, start + KEYS, keys, query_width);
    __syncthreads();
    add_rows<KEYS, D>(o, score, value_tile);
  }
  total[0] = sum_of_four(total[0]), total[1] = sum_of_four(total[1]);
  store_rows<D>(AT(output, image, head), output_row, row, rows, value_width, o, 1 / total[0],
                1 / total[1]);
  if (logarithms == nullptr || t > 0) return;
  float* own = logarithms + ((size_t)image * gridDim.y + head) * rows;
  if (row < rows) own[row] = (largest[0] + log2f(total[0])) * LN2;
  if (row + 8 < rows) own[row + 8] = (largest[1] + log2f(total[1])) * LN2;
}

#define GRADIENT_ARGUMENTS                                                                         \
  const float *query, const float *key, const float *value, const float *added,                    \
      const float *output, const float *gradient, const float *logarithms, float *of_query,        \
      float *of_key, float *of_value, float *delta, int heads, int rows, int keys,                 \
      int query_width, int value_width, int group, PLACE(query), PLACE(key), PLACE(value),         \
      PLACE(added), PLACE(output), PLACE(gradient), PLACE(of_query), PLACE(of_key),                \
      PLACE(of_value), float scale

// The gradient of query, and delta [images, heads, rows]. A block has 64 rows of one head.
template <int KEYS, int E, int D, bool CAUSAL, int ADDED>
__global__ void __launch_bounds__(128) backward_query(GRADIENT_ARGUMENTS) {
  __shared__ __align__(16) unsigned key_tile[KEYS * (E + 4)], value_tile[KEYS * (D + 4)];
  const int head = blockIdx.y, image = blockIdx.z;
  const int block = CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int first_row = block * 64 + threadIdx.x / 32 * 16;
  const int row = first_row + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const float* own_keys = AT(key, image, head / group);
  const float* own_values = AT(value, image, head / group);
  const size_t line = ((size_t)image * heads + head) * rows;

  float own_delta[2] = {}, logarithm[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int here = row + 8 * half;
    const float* o = AT(output, image, head) + (size_t)here * output_row;
    const float* d = AT(gradient, image, head) + (size_t)here * gradient_row;
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
template <int ROWS, int E, int D, bool CAUSAL, int ADDED>
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
    const float* queries = AT(query, image, head);
    const float* gradients = AT(gradient, image, head);
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
            score = fmaf(AT(added, image, head)[(size_t)min(row, rows - 1) * added_row +
                                                min(column, keys - 1)],
                         LOG2E, score);
          const bool seen = !CAUSAL || column <= row;
          weight[j][i] = seen ? power_of_two(score - line_logarithms[at]) : 0.f;
          change[j][i] = weight[j][i] * (change[j][i] - line_delta[at]);
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
