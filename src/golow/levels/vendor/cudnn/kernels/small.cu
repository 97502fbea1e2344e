// Convolution of few pixels on tensor cores, as one matrix product. Images are NHWC, weights KRSC:
//
//   y[m, k] = clip(bias[k] + residual[m, k] + sum over d of x[pixel under tap of d, d] * w[k, d])
//
// m counts the pixels of y; d = (r, s, c) is the depth: the taps of the window and their channels.
// Few pixels make few tiles of y, each with a long sum, so the depth must be divided. With stride 1
// the gradient of x is such a convolution too (TURNED): of the gradient of y, with the window
// rotated by 180 degrees and the filters of the weights as its channels, d = (r, s, k):
//
//   dx[m, c] = sum over d of dy[pixel under tap of d, k] * w[k, R - 1 - r, S - 1 - s, c]
//
// Blocks: a cluster of SPLIT blocks owns ROWS pixels x FILTERS filters of y; each block iterates
// over its part of the depth in chunks of 128 bytes of every pixel and filter.
// Pipeline: as many chunks as fit 48 KiB are loaded ahead (cp.async). A thread copies the same
// piece of 16 bytes of every sixteenth row; taps beyond the border and rows beyond the end are
// zeros. In shared memory, piece i of row j is at i ^ j % 8, so that neither the copies nor the
// reads of 8 rows (ldmatrix) have bank conflicts. Turned weights are rows of the depth instead.
// Warps: four. A warp owns all pixels and 32 filters of the tile, and its share of each chunk's
// products: with one or two warps side by side, four or two share the depth.
// Reduction: the warps write their sums to shared memory and the block adds them. Then every block
// of the cluster adds one part of the tile over all blocks, in the order of their ranks. Only y is
// written to global memory.

constexpr int THREADS = 128, CHUNK = 8, STEPS = 4, MEMORY = 3072;  // MEMORY in pieces: 48 KiB
constexpr int ROWS_AT_ONCE = THREADS / CHUNK;
constexpr int NOWHERE = -(1 << 30);  // a row of the image that no tap reaches

struct Shape {
  int height, width, channels, filters, out_height, out_width, kernel_y, kernel_x;
  int stride_y, stride_x, top, left, dilation_y, dilation_x;
};

__device__ inline Piece* piece_of(Piece* tile, int row, int piece) {
  return tile + row * CHUNK + (piece ^ (row & 7));
}

// The piece of the depth that a thread copies next.
struct Depth {
  int r, s, channel, all;  // tap, piece of its channels, piece of the whole depth

  __device__ Depth(const Shape& at, int piece) : all(piece) {
    const int tap = piece / at.channels;
    channel = piece - tap * at.channels, r = tap / at.kernel_x, s = tap - r * at.kernel_x;
  }
  __device__ void advance(const Shape& at) {
    all += CHUNK, channel += CHUNK;
    while (channel >= at.channels) {
      channel -= at.channels;
      if (++s == at.kernel_x) s = 0, ++r;
    }
  }
};

// The pixels whose pieces a thread copies, as the origins of their windows.
template <int ROWS> struct Windows {
  static constexpr int COUNT = ROWS / ROWS_AT_ONCE;
  int row[COUNT], column[COUNT], offset[COUNT];

  __device__ Windows(const Shape& at, int first, int pixels) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const int pixel = first + i * ROWS_AT_ONCE, line = pixel / at.out_width;
      const int image = line / at.out_height;
      row[i] = (line - image * at.out_height) * at.stride_y - at.top;
      column[i] = (pixel - line * at.out_width) * at.stride_x - at.left;
      offset[i] = ((image * at.height + row[i]) * at.width + column[i]) * at.channels;
      if (pixel >= pixels) row[i] = NOWHERE;
    }
  }
  __device__ void copy(Piece* target, const Piece* x, const Shape& at, const Depth& depth) const {
    const int down = depth.r * at.dilation_y, right = depth.s * at.dilation_x;
    const int tap = (down * at.width + right) * at.channels + depth.channel;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      // & instead of && avoids branches.
      const bool there = (depth.r < at.kernel_y) & ((unsigned)(row[i] + down) < at.height) &
                         ((unsigned)(column[i] + right) < at.width);
      copy_piece(target + i * THREADS, x + (there ? offset[i] + tap : 0), there);
    }
  }
};

template <int FILTERS>
__device__ inline void copy_weights(Piece* target, const Piece* weight, const Shape& at, int first,
                                    const Depth& depth) {
  const int whole = at.kernel_y * at.kernel_x * at.channels;
#pragma unroll
  for (int i = 0; i < FILTERS / ROWS_AT_ONCE; ++i) {
    const int filter = first + i * ROWS_AT_ONCE;
    const bool there = depth.r < at.kernel_y && filter < at.filters;
    copy_piece(target + i * THREADS, weight + (there ? filter * whole + depth.all : 0), there);
  }
}

// Turned weights, with the filters innermost as channels: the chunk has a row of FILTERS for each
// of its CHUNK * PER_PIECE<T> elements. Eight consecutive rows are in different banks; for floats,
// so are four rows with two pieces each.
template <typename T> constexpr int PER_PIECE = sizeof(Piece) / sizeof(T);

template <typename T, int FILTERS>
__device__ inline Piece* turned_piece(Piece* tile, int row, int piece) {
  const int place = row * (FILTERS / PER_PIECE<T>) + piece;
  return tile + (place ^ (row * (int)sizeof(T) / 2 & 7));
}

// Sixteen threads copy the rows of one piece of the depth.
template <typename T, int FILTERS>
__device__ inline void copy_turned(Piece* tile, const Piece* weight, const Shape& at, int first,
                                   const Depth& depth) {
  constexpr int LENGTH = FILTERS / PER_PIECE<T>;
  const int length = at.filters / PER_PIECE<T>, taps = at.kernel_y * at.kernel_x;
  const int tap = taps - 1 - (depth.r * at.kernel_x + depth.s);
#pragma unroll
  for (int i = threadIdx.x % ROWS_AT_ONCE; i < FILTERS; i += ROWS_AT_ONCE) {
    const int row = i / LENGTH, piece = i % LENGTH, from = first / PER_PIECE<T> + piece;
    const int channel = depth.channel * PER_PIECE<T> + row;
    const bool there = depth.r < at.kernel_y && from < length;
    copy_piece(turned_piece<T, FILTERS>(
                   tile, threadIdx.x / ROWS_AT_ONCE * PER_PIECE<T> + row, piece),
               weight + (there ? (channel * taps + tap) * length + from : 0), there);
  }
}

// Loads two pieces of the depth for 32 filters from `first` on, for four products side by side.
__device__ inline void load_weights(unsigned (&b)[2][4], Piece* tile, int first, int step) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int row = first + 16 * j + lane % 8 + lane / 16 * 8;
    load_matrices(b[j], piece_of(tile, row, 2 * step + lane / 8 % 2));
  }
}
template <typename T, int FILTERS>
__device__ inline void load_turned(unsigned (&b)[2][4], Piece* tile, int first, int step) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    if (sizeof(T) == 2) {
      const int piece = first / 8 + 2 * j + lane / 16;
      load_columns(b[j], turned_piece<T, FILTERS>(tile, 16 * step + lane % 16, piece));
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int filter = first + 16 * j + k / 2 * 8 + lane / 4;
        const int row = 8 * step + k % 2 * 4 + lane % 4;
        b[j][k] = turned_piece<T, FILTERS>(tile, row, filter / 4)->word[filter % 4];
      }
    }
  }
}

// Multiplies two pieces of all pixels by the same pieces of 32 filters.
template <typename T, int TILES>
__device__ inline void multiply(float (&sums)[TILES][4][4], Piece* pixels, unsigned (&b)[2][4],
                                int step) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < 8; ++k) b[k / 4][k % 4] = rounded<T>(b[k / 4][k % 4]);
#pragma unroll
  for (int i = 0; i < TILES; ++i) {
    unsigned a[4];
    load_matrices(a, piece_of(pixels, 16 * i + lane % 16, 2 * step + lane / 16));
#pragma unroll
    for (int k = 0; k < 4; ++k) a[k] = rounded<T>(a[k]);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      multiply_add<T>(sums[i][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
  }
}

// A row of sums in shared memory is longer than the tile's width, so that the rows of one product
// have no bank conflicts.
template <int TILES>
__device__ inline void leave(const float (&sums)[TILES][4][4], float* place, int length) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < TILES; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store<2>(place + (16 * i + 8 * half + lane / 4) * length + 8 * j + lane % 4 * 2,
                 Vector<float, 2>{sums[i][j][2 * half], sums[i][j][2 * half + 1]});
}

// The sum of COUNT vectors, where `at(i)` is the address of vector i.
template <int COUNT, typename At> __device__ inline Vector<float, 4> sum_over(At at) {
  Vector<float, 4> parts[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) parts[i] = load<4>(at(i));
#pragma unroll
  for (int i = 1; i < COUNT; ++i)
#pragma unroll
    for (int k = 0; k < 4; ++k) parts[0].item[k] += parts[i].item[k];
  return parts[0];
}

// Bias and residual may be absent: 0. Channels are counted in pieces; filters fill whole pieces.
template <typename T, int ROWS, int FILTERS, bool TURNED, int SPLIT>
__global__ void __launch_bounds__(THREADS) CLUSTER_OF(SPLIT)
    small(const Piece* x, const Piece* weight, const T* bias, const T* residual, T* y, int pixels,
          int height, int width, int channels, int filters, int out_height, int out_width,
          int kernel_y, int kernel_x, int stride_y, int stride_x, int top, int left,
          int dilation_y, int dilation_x, float low, float high) {
  constexpr int STAGE = (ROWS + FILTERS) * CHUNK, STAGES = MEMORY / STAGE;
  constexpr int ABREAST = FILTERS / 32, DEEP = 4 / ABREAST;  // warps side by side, along the depth
  constexpr int LENGTH = FILTERS + 8, QUADS = FILTERS / 4;   // of a row of sums; its vectors
  static_assert(DEEP * ROWS * LENGTH <= MEMORY * 4, "the sums of all warps fit");
  const Shape at{height, width, channels, filters, out_height, out_width, kernel_y, kernel_x,
                 stride_y, stride_x, top, left, dilation_y, dilation_x};
  __shared__ Piece memory[STAGES * STAGE];

  const int rank = blockIdx.x % SPLIT, warp = threadIdx.x / 32;
  const int first_filter = blockIdx.x / SPLIT * FILTERS, first_pixel = blockIdx.y * ROWS;
  const int chunks = (kernel_y * kernel_x * channels + CHUNK - 1) / CHUNK;
  const int part = (chunks + SPLIT - 1) / SPLIT, own = min(part, chunks - rank * part);

  const int row = threadIdx.x / CHUNK, piece = threadIdx.x % CHUNK;
  const Windows<ROWS> windows(at, first_pixel + row, pixels);
  const int begin = rank * part * CHUNK;
  Depth depth(at, begin + piece), turned_depth(at, begin + threadIdx.x / ROWS_AT_ONCE);
  const auto fetch = [&](int chunk) {
    if (chunk < own) {
      Piece* stage = memory + chunk % STAGES * STAGE;
      if (TURNED) {
        copy_turned<T, FILTERS>(stage + ROWS * CHUNK, weight, at, first_filter, turned_depth);
        turned_depth.advance(at);
      } else {
        copy_weights<FILTERS>(piece_of(stage + ROWS * CHUNK, row, piece), weight, at,
                              first_filter + row, depth);
      }
      windows.copy(piece_of(stage, row, piece), x, at, depth);
      depth.advance(at);
    }
    close_copies();
  };

  float sums[ROWS / 16][4][4] = {};
  for (int chunk = 0; chunk < STAGES - 1; ++chunk) fetch(chunk);
  for (int chunk = 0; chunk < own; ++chunk) {
    wait_for_copies<STAGES - 2>();
    __syncthreads();  // the chunk is complete, and all threads are done with the previous one
    Piece* stage = memory + chunk % STAGES * STAGE;
#pragma unroll
    for (int i = 0; i < STEPS / DEEP; ++i) {
      const int filter = warp % ABREAST * 32, step = warp / ABREAST + i * DEEP;
      unsigned b[2][4];
      if (TURNED) {
        load_turned<T, FILTERS>(b, stage + ROWS * CHUNK, filter, step);
      } else {
        load_weights(b, stage + ROWS * CHUNK, filter, step);
      }
      multiply<T>(sums, stage, b, step);
    }
    fetch(chunk + STAGES - 1);  // overlaps the products; replaces the previous chunk
  }

  float* const left_sums = reinterpret_cast<float*>(memory);
  __syncthreads();
  leave(sums, left_sums + warp / ABREAST * ROWS * LENGTH + warp % ABREAST * 32, LENGTH);
  __syncthreads();
  const auto place = [&](int quad) { return left_sums + quad / QUADS * LENGTH + quad % QUADS * 4; };
  const auto over_warps = [&](int quad) {
    return sum_over<DEEP>([&](int i) { return place(quad) + i * ROWS * LENGTH; });
  };
  if (SPLIT > 1) {
#pragma unroll
    for (int quad = threadIdx.x; quad < ROWS * QUADS; quad += THREADS)
      store<4>(place(quad), over_warps(quad));
    CLUSTER_ARRIVE();
    CLUSTER_WAIT();
  }
  constexpr int SHARE = ROWS * QUADS / SPLIT;
#pragma unroll
  for (int i = threadIdx.x; i < SHARE; i += THREADS) {
    const int quad = rank * SHARE + i, filter = first_filter + quad % QUADS * 4;
    const int pixel = first_pixel + quad / QUADS;
    if (pixel >= pixels || filter >= filters) continue;
    const size_t result = (size_t)pixel * filters + filter;
    const Vector<T, 4> shift = bias ? load<4>(bias + filter) : Vector<T, 4>{};
    const Vector<T, 4> added = residual ? load<4>(residual + result) : Vector<T, 4>{};
    Vector<float, 4> sum;
    if (SPLIT > 1) {
      sum = sum_over<SPLIT>([&](int block) { return OF_BLOCK(place(quad), block); });
    } else {
      sum = over_warps(quad);
    }
    Vector<T, 4> values;
#pragma unroll
    for (int k = 0; k < 4; ++k)
      values.item[k] = convert<T>(clipped(
          sum.item[k] + convert<float>(shift.item[k]) + convert<float>(added.item[k]), low, high));
    store<4>(y + result, values);
  }
  if (SPLIT > 1) {  // other blocks read this block's sums until all are done
    CLUSTER_ARRIVE();
    CLUSTER_WAIT();
  }
}
