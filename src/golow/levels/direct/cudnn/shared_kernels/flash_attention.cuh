// Tiles and products of attention in float32. Included after tensor_cores.cuh and scores.cuh.
//
// A warp has 16 rows of the first matrix of a product in registers; those of the second are in
// shared memory, as rows of W + 4 floats, which all loads below read without conflicts of banks.
// Lane l is lane t = l % 4 of group g = l / 4, and has rows g and g + 8. A product sums over 8
// numbers, of which the lane has the t-th and the (t + 4)-th, but their order is free as long as
// both matrices have the same. So four products take the 8 adjacent columns 8t of 32
// (`add_products`); and the product of what a product gave, of which the lane has columns 2t and
// 2t + 1, takes rows 2t and 2t + 1 (`add_rows`), and no lane asks another one. The result's
// columns are free, too: the i-th of four products gives columns 4g + i of 32.

__device__ inline unsigned as_tf32(float x) { return rounded<float>(__float_as_uint(x)); }

// Four adjacent numbers of a row, zeros where there are none.
template <typename T>
__device__ inline float4 load_four(const T* row, int column, bool there) {
  if (!there) return float4{};
  const Vector<T, 4> four = load<4>(row + column);
  return float4{convert<float>(four.item[0]), convert<float>(four.item[1]),
                convert<float>(four.item[2]), convert<float>(four.item[3])};
}

// Eight of them.
template <typename T>
__device__ inline void load_eight(float (&eight)[8], const T* row, int column, bool there) {
  const float4 low = load_four(row, column, there), high = load_four(row, column + 4, there);
  eight[0] = low.x, eight[1] = low.y, eight[2] = low.z, eight[3] = low.w;
  eight[4] = high.x, eight[5] = high.y, eight[6] = high.z, eight[7] = high.w;
}

// The lane's part of rows `row` and `row + 8`, multiplied by a factor, as the first matrix.
template <int W, typename T>
__device__ inline void load_first(unsigned (&first)[W / 8][4], const T* matrix, int step,
                                  int row, int rows, int width, float factor) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const T* own = matrix + (size_t)(row + 8 * half) * step;
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

  template <typename T>
  __device__ inline void load(const T* matrix, int step, int first, int rows, int width) {
#pragma unroll
    for (int n = 0; n < PIECES; ++n) {
      const int at = n * THREADS + threadIdx.x, row = first + at / (W / 4);
      const int column = at % (W / 4) * 4;
      piece[n] = load_four(matrix + (size_t)row * step, column, row < rows && column < width);
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
template <int W, typename T>
__device__ inline void store_rows(T* matrix, int step, int row, int rows, int width,
                                  const float (&sum)[W / 8][4], float factor, float second_factor) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float by = half ? second_factor : factor;
#pragma unroll
    for (int c = 0; c < W / 32; ++c) {
      const int column = 32 * c + 8 * t;
      if (row + 8 * half >= rows || column >= width) continue;
      T* to = matrix + (size_t)(row + 8 * half) * step + column;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        Vector<T, 4> four;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          four.item[i] = convert<T>(sum[4 * c + i][2 * half + k] * by);
        store(to + 4 * k, four);
      }
    }
  }
}

// By what dropout multiplies the weights that it keeps.
__device__ inline float raised_by(float probability) {
  return probability < 1.f ? 1.f / (1.f - probability) : 0.f;
}

// Multiplies weights of rows `row` and `row + 8`, and of columns from `start`, by that, or by zero.
// kept: [rows, columns].
template <int COLUMNS>
__device__ inline void drop(float (&weight)[COLUMNS / 8][4], const bool* kept, float raised, int row,
                            int rows, int start, int columns) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool* own = kept + (size_t)min(row + 8 * half, rows - 1) * columns;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; ++j) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int column = start + 8 * j + 2 * t + k;
        weight[j][2 * half + k] *= column < columns && own[column] ? raised : 0.f;
      }
    }
  }
}
