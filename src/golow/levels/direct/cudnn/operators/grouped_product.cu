// Products of groups of rows on tensor cores: y[r] = w[g] x[r] for every row r of group g. x is
// [rows, inner], w [groups, outputs, inner], ends [groups] the first row after each group's own; rows
// after the last end become zeros. inner and outputs are multiples of a piece and of 8.
//
// A block computes a tile of ROWS rows of one group and COLUMNS outputs. Which group its rows belong
// to it finds by counting the tiles of all groups; the grid has enough for any division. Of depth, it
// copies PIECES pieces of each row at a time, STAGES - 1 of these chunks ahead.

constexpr int ROWS = 64, COLUMNS = 128, PIECES = 4, STAGES = 3, THREADS = 256;

// Place of a piece of a row in a chunk: eight rows' pieces are in different banks.
__device__ inline int held_at(int row, int piece) { return row * PIECES + (piece ^ (row / 2 % 4)); }

// Rows from first up to last of one group; those of no group have the number of groups.
struct Rows { int group, first, last; };

__device__ inline Rows rows_of(int tile, const int* ends, int groups, int rows) {
  int start = 0;
  for (int group = 0; group <= groups; ++group) {
    const int end = group < groups ? max(start, min(ends[group], rows)) : rows;
    const int tiles = (end - start + ROWS - 1) / ROWS;
    if (tile < tiles) return {group, start + tile * ROWS, min(start + (tile + 1) * ROWS, end)};
    tile -= tiles, start = end;
  }
  return {groups, rows, rows};
}

// Starts copying a chunk of COUNT rows from row `first` on; zeros for rows and pieces beyond.
template <int COUNT>
__device__ inline void copy_chunk(Piece* held, const Piece* from, int first, int last, int piece,
                                  int pieces) {
  for (int i = threadIdx.x; i < COUNT * PIECES; i += THREADS) {
    const int row = i / PIECES, own = i % PIECES;
    const bool there = first + row < last && piece + own < pieces;
    const size_t at = (size_t)(first + row) * pieces + piece + own;
    copy_piece(held + held_at(row, own), from + (there ? at : 0), there);
  }
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    grouped_product(const T* x, const T* w, const int* ends, T* y, int rows, int groups,
                    int outputs, int inner) {
  __shared__ Piece of_rows[STAGES][ROWS * PIECES], of_outputs[STAGES][COLUMNS * PIECES];
  constexpr int PER = 16 / sizeof(T);
  const Rows own = rows_of(blockIdx.x, ends, groups, rows);
  if (own.first >= own.last) return;
  const int column = blockIdx.y * COLUMNS, pieces = own.group < groups ? inner / PER : 0;
  const Piece* const from_x = reinterpret_cast<const Piece*>(x);
  const Piece* const from_w =
      reinterpret_cast<const Piece*>(w) + (size_t)min(own.group, groups - 1) * outputs * pieces;
  const auto copy = [&](int chunk) {
    const int stage = chunk % STAGES, piece = chunk * PIECES;
    if (piece < pieces) {
      copy_chunk<ROWS>(of_rows[stage], from_x, own.first, own.last, piece, pieces);
      copy_chunk<COLUMNS>(of_outputs[stage], from_w, column, outputs, piece, pieces);
    }
    close_copies();
  };

  // Two by four warps, each with 32 rows and 32 outputs.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = warp / 4 * 32, output = warp % 4 * 32;
  float sums[2][4][4] = {};
  for (int chunk = 0; chunk < STAGES - 1; ++chunk) copy(chunk);
  for (int chunk = 0; chunk * PIECES < pieces; ++chunk) {
    wait_for_copies<STAGES - 2>();
    __syncthreads();  // the chunk is there for all, and all are done with the one before
    copy(chunk + STAGES - 1);
    const Piece* const held_rows = of_rows[chunk % STAGES];
    const Piece* const held_outputs = of_outputs[chunk % STAGES];
#pragma unroll
    for (int step = 0; step < PIECES; step += 2) {
      unsigned a[2][4], b[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = row + 16 * i + lane % 16, c = output + 16 * i + lane % 8 + lane / 16 * 8;
        load_matrices(a[i], held_rows + held_at(r, step + lane / 16));
        load_matrices(b[i], held_outputs + held_at(c, step + lane / 8 % 2));
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          a[i][word] = rounded<T>(a[i][word]);
          b[i][word] = rounded<T>(b[i][word]);
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          multiply_add<T>(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = own.first + row + i * 8 + lane / 4;
    if (r >= own.last) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int c = column + output + j * 8 + lane % 4 * 2;
      const float* const sum = sums[i / 2][j] + i % 2 * 2;
      if (c < outputs)
        store<2>(y + (size_t)r * outputs + c, Vector<T, 2>{convert<T>(sum[0]), convert<T>(sum[1])});
    }
  }
}
