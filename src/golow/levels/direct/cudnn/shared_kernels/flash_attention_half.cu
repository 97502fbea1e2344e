// Flash attention of 16-bit tensors, forward (Dao, "FlashAttention-2", 2023, arXiv:2307.08691), for
// what the library's does not take: numbers in float32 that are added to the scores, and masks of
// truth values, by which a row that sees nothing is zero.
//
//   s[i, j] = scale * q[i] k[j] + added[i, j]      (only j <= i if CAUSAL)
//   o[i]    = sum over j of p[i, j] v[j],  p[i, j] = exp(s[i, j]) / sum over j of exp(s[i, j])
//
// A block has 16 * WARPS rows of one head and takes KEYS keys at a time, and values; the next tile is
// on its way into shared memory while one is used. A row of a tile ends with an unused piece, so
// that the pieces of eight rows are in different banks. A warp has its rows of the query in
// registers. What lane l gets of a product, columns 2t and 2t + 1 of rows g and g + 8 (t = l % 4,
// g = l / 4), is what the next product takes from it.

#define PITCH(width) ((width) / 8 + 1)  // of a row in a tile, in pieces

// Starts copying rows into a tile; zeros where there are none.
template <int ROWS, int W, int THREADS, typename T>
__device__ inline void copy_tile(Piece* tile, const T* matrix, int step, int first, int rows,
                                 int width) {
  for (int i = threadIdx.x; i < ROWS * (W / 8); i += THREADS) {
    const int row = i / (W / 8), piece = i % (W / 8);
    const bool there = first + row < rows && 8 * piece < width;
    const T* from = matrix + (there ? (size_t)(first + row) * step + 8 * piece : 0);
    copy_piece(tile + row * PITCH(W) + piece, reinterpret_cast<const Piece*>(from), there);
  }
}

// The lane's part of rows `row` and `row + 8`, as the first matrix of products.
template <int W, typename T>
__device__ inline void load_rows(unsigned (&first)[W / 16][4], const T* matrix, int step, int row,
                                 int rows, int width) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int c = 0; c < W / 16; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int own = row + i % 2 * 8, column = 16 * c + i / 2 * 8 + 2 * t;
      const T* from = matrix + (size_t)own * step + column;
      first[c][i] = own < rows && column < width ? *reinterpret_cast<const unsigned*>(from) : 0;
    }
  }
}

// score[j] += first x (rows 8j to 8j + 7 of the tile), transposed.
template <typename T, int ROWS, int W>
__device__ inline void score_tile(float (&score)[ROWS / 8][4], const unsigned (&first)[W / 16][4],
                                  const Piece* tile) {
  const int lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8, piece = lane / 8 % 2;
#pragma unroll
  for (int c = 0; c < W / 16; ++c) {
#pragma unroll
    for (int j = 0; j < ROWS / 8; j += 2) {
      unsigned b[4];
      load_matrices(b, tile + (8 * j + row) * PITCH(W) + 2 * c + piece);
      multiply_add<T>(score[j], first[c], b[0], b[1]);
      multiply_add<T>(score[j + 1], first[c], b[2], b[3]);
    }
  }
}

// sum += weights x tile; the weights are where `score_tile` left the scores.
template <typename T, int ROWS, int W>
__device__ inline void weigh_tile(float (&sum)[W / 8][4], const float (&weights)[ROWS / 8][4],
                                  const Piece* tile) {
  const int lane = threadIdx.x % 32, row = lane % 16, piece = lane / 16;
#pragma unroll
  for (int j = 0; j < ROWS / 8; j += 2) {
    const unsigned first[4] = {
        packed<T>(weights[j][0], weights[j][1]), packed<T>(weights[j][2], weights[j][3]),
        packed<T>(weights[j + 1][0], weights[j + 1][1]),
        packed<T>(weights[j + 1][2], weights[j + 1][3])};
#pragma unroll
    for (int c = 0; c < W / 8; c += 2) {
      unsigned b[4];
      load_columns(b, tile + (8 * j + row) * PITCH(W) + c + piece);
      multiply_add<T>(sum[c], first, b[0], b[1]);
      multiply_add<T>(sum[c + 1], first, b[2], b[3]);
    }
  }
}

// A: type of what is added.
template <typename T, typename A, int WARPS, int KEYS, int E, int D, bool CAUSAL, int ADDED>
__global__ void __launch_bounds__(32 * WARPS)
    forward_half(const T* query, const T* key, const T* value, const A* added, T* output, int rows,
                 int keys, int query_width, int value_width, int group, PLACE(query), PLACE(key),
                 PLACE(value), PLACE(added), PLACE(output), float scale) {
  constexpr int THREADS = 32 * WARPS;
  __shared__ Piece key_tiles[2][KEYS * PITCH(E)], value_tiles[2][KEYS * PITCH(D)];
  const int head = blockIdx.y, image = blockIdx.z;
  // Of a causal head, the blocks that have most to do come first.
  const int block = CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int first_row = block * 16 * WARPS + threadIdx.x / 32 * 16;
  const int row = first_row + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const T* own_keys = AT(key, image, head / group);
  const T* own_values = AT(value, image, head / group);
  const int end = CAUSAL ? min(keys, (block + 1) * 16 * WARPS) : keys;
  const auto copy = [&](int start) {
    const int stage = start / KEYS % 2;
    if (start < end) {
      copy_tile<KEYS, E, THREADS>(key_tiles[stage], own_keys, key_row, start, keys, query_width);
      copy_tile<KEYS, D, THREADS>(value_tiles[stage], own_values, value_row, start, keys, value_width);
    }
    close_copies();
  };

  copy(0);
  unsigned q[E / 16][4];
  load_rows<E>(q, AT(query, image, head), query_row, row, rows, query_width);
  float o[D / 8][4] = {}, largest[2] = {-INFINITE, -INFINITE}, total[2] = {};
  for (int start = 0; start < end; start += KEYS) {
    copy(start + KEYS);
    wait_for_copies<1>();
    __syncthreads();  // the tile is there for all
    float score[KEYS / 8][4] = {};
    score_tile<T, KEYS, E>(score, q, key_tiles[start / KEYS % 2]);
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) score[j][i] *= scale * LOG2E;
    }
    if (ADDED)
      add_to_scores<ADDED == PAIRS, KEYS>(score, AT(added, image, head), added_row, row, rows, start, keys);
    if (start + KEYS > keys || (CAUSAL && start + KEYS > first_row + 1))
      hide_scores<CAUSAL, KEYS>(score, row, start, keys);
    weigh_scores<KEYS, D>(score, o, largest, total);
    weigh_tile<T, KEYS, D>(o, score, value_tiles[start / KEYS % 2]);
    __syncthreads();  // all are done with the tile
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = row + 8 * half;
    const float sum = sum_of_four(total[half]);
    const float share = Rows<A>::see_nothing(largest[half]) ? 0 : 1 / sum;
    T* to = AT(output, image, head) + (size_t)own * output_row;
#pragma unroll
    for (int c = 0; c < D / 8; ++c) {
      if (own < rows && 8 * c < value_width)
        *reinterpret_cast<unsigned*>(to + 8 * c + 2 * t) =
            packed<T>(o[c][2 * half] * share, o[c][2 * half + 1] * share);
    }
  }
}
