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
// over its part of the depth in chunks of 128 bytes of every pixel and filter. A thread copies the
// same piece of 16 bytes of every sixteenth row (cp.async). In shared memory, piece i of row j is at
// i ^ j % 8, so that neither the copies nor the reads of 8 rows (ldmatrix) have bank conflicts.
// Turned weights are rows of the depth instead.
// Memory: as many chunks as fit 48 KiB are loaded ahead; taps beyond the border and rows beyond the
// end are zeros. With a REGION, a pixel that several taps read is loaded once: the pixels under all
// windows of the tile, which follow one another in x, and behind them zeros, which stand for all
// that is beyond the border. The depth is (c, r, s) then in chunks of c, and all chunks of the
// weights fit.
// Warps: four. A warp owns all pixels and 32 filters of the tile, and its share of each chunk's
// products: with one or two warps side by side, four or two share the depth.
// Reduction: the warps write their sums to shared memory and the block adds them. Block r of a
// cluster then gets rows r * ROWS / SPLIT and the following of all others, and adds them in the
// order of their ranks. Only y is written to global memory.

constexpr int THREADS = 128, CHUNK = 8, STEPS = 4, MEMORY = 3072;  // MEMORY in pieces: 48 KiB
constexpr int ROWS_AT_ONCE = THREADS / CHUNK;

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

  __device__ Depth(int r, int s, int channel, int all) : r(r), s(s), channel(channel), all(all) {}
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

// The pixels whose pieces a thread copies, as the origins of their windows. Bit t of `inside` is
// set if tap t = r * kernel_x + s is a pixel of the image.
template <int ROWS> struct Windows {
  static constexpr int COUNT = ROWS / ROWS_AT_ONCE;
  int offset[COUNT];
  unsigned long long inside[COUNT];

  __device__ Windows(const Shape& at, int first, int pixels) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const int pixel = first + i * ROWS_AT_ONCE, line = pixel / at.out_width;
      const int image = line / at.out_height;
      const int row = (line - image * at.out_height) * at.stride_y - at.top;
      const int column = (pixel - line * at.out_width) * at.stride_x - at.left;
      offset[i] = ((image * at.height + row) * at.width + column) * at.channels;
      inside[i] = 0;
      unsigned long long bit = pixel < pixels;
      for (int r = 0; r < at.kernel_y; ++r) {
        const bool in_rows = (unsigned)(row + r * at.dilation_y) < at.height;
        for (int s = 0; s < at.kernel_x; ++s, bit <<= 1)
          if (in_rows && (unsigned)(column + s * at.dilation_x) < at.width) inside[i] |= bit;
      }
    }
  }
  __device__ void copy(Piece* target, const Piece* x, const Shape& at, const Depth& depth) const {
    const int down = depth.r * at.dilation_y, right = depth.s * at.dilation_x;
    const int tap = (down * at.width + right) * at.channels + depth.channel;
    const int bit = depth.r * at.kernel_x + depth.s;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const bool there = inside[i] >> bit & 1;
      copy_piece(target + i * THREADS, x + (there ? offset[i] + tap : 0), there);
    }
  }
};

// The pixels of x from the first to the last row that the windows of some pixels of y read.
struct Pixels {
  int first, count;

  __device__ Pixels(const Shape& at, int from, int to) {
    const int line = from / at.out_width, last_line = to / at.out_width;
    const int image = line / at.out_height, last_image = last_line / at.out_height;
    const int upper = (line - image * at.out_height) * at.stride_y - at.top;
    const int lower = (last_line - last_image * at.out_height) * at.stride_y - at.top +
                      (at.kernel_y - 1) * at.dilation_y;
    first = (image * at.height + min(max(upper, 0), at.height - 1)) * at.width;
    count = (last_image * at.height + min(max(lower, 0), at.height - 1) + 1) * at.width - first;
  }
};

// The pixels under one tap of some windows, as rows of a region that begins at a pixel.
template <int COUNT> struct Taps {
  int offset[COUNT], s;
  unsigned long long inside[COUNT];  // bit 0 is the tap's

  template <typename Seen>
  __device__ Taps(const Seen& windows, const Shape& at, int tap, int begin) {
    const int r = tap / at.kernel_x;
    s = tap - r * at.kernel_x;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      offset[i] = windows.offset[i] + r * at.dilation_y * at.width + s * at.dilation_x - begin;
      inside[i] = windows.inside[i] >> tap;
    }
  }
  __device__ int pixel(int i, int nowhere) const { return inside[i] & 1 ? offset[i] : nowhere; }
  __device__ void advance(const Shape& at) {
    int step = at.dilation_x;
    if (++s == at.kernel_x) s = 0, step += at.dilation_y * at.width - at.kernel_x * at.dilation_x;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) offset[i] += step, inside[i] >>= 1;
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

// Multiplies two pieces of all pixels by the same pieces of 32 filters. `at(i)` is the address of
// the pixels' piece for row lane % 16 of 16 rows, the first one for lanes below 16.
template <typename T, int TILES, typename At>
__device__ inline void multiply(float (&sums)[TILES][4][4], unsigned (&b)[2][4], At at) {
#pragma unroll
  for (int k = 0; k < 8; ++k) b[k / 4][k % 4] = rounded<T>(b[k / 4][k % 4]);
#pragma unroll
  for (int i = 0; i < TILES; ++i) {
    unsigned a[4];
    load_matrices(a, at(i));
#pragma unroll
    for (int k = 0; k < 4; ++k) a[k] = rounded<T>(a[k]);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      multiply_add<T>(sums[i][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
  }
}

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
// FROZEN: no kernel writes the weights while the plan runs, so their first chunks are loaded before
// the kernel before has ended. The code before this file may define ACTIVATED, a function of the
// clipped result.
#ifndef ACTIVATED
#define ACTIVATED(value) (value)
#endif
template <typename T, int ROWS, int FILTERS, bool TURNED, int SPLIT, bool REGION, bool FROZEN>
__global__ void __launch_bounds__(THREADS) CLUSTER_OF(SPLIT)
    small(const Piece* x, const Piece* weight, const T* bias, const T* residual, T* y, int pixels,
          int height, int width, int channels, int filters, int out_height, int out_width,
          int kernel_y, int kernel_x, int stride_y, int stride_x, int top, int left,
          int dilation_y, int dilation_x, int span, float low, float high) {
  constexpr int STAGE = (ROWS + FILTERS) * CHUNK, STAGES = MEMORY / STAGE;
  constexpr int ABREAST = FILTERS / 32, DEEP = 4 / ABREAST;  // warps side by side, along the depth
  // A row of sums is longer than the tile's width, so that the rows of one product have no bank
  // conflicts. OWN: rows that this block adds over the cluster.
  constexpr int LENGTH = FILTERS + 8, QUADS = FILTERS / 4, OWN = ROWS / SPLIT;
  const Shape at{height, width, channels, filters, out_height, out_width, kernel_y, kernel_x,
                 stride_y, stride_x, top, left, dilation_y, dilation_x};
  extern __shared__ Piece memory[];
  if (SPLIT > 1) CLUSTER_ARRIVE();  // this block has begun

  const int rank = blockIdx.x % SPLIT, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_filter = blockIdx.x / SPLIT * FILTERS, first_pixel = blockIdx.y * ROWS;
  const int taps = kernel_y * kernel_x, chunks = (taps * channels + CHUNK - 1) / CHUNK;
  const int part = (chunks + SPLIT - 1) / SPLIT, begin = rank * part;
  const int own = min(part, chunks - begin);
  const int row = threadIdx.x / CHUNK, piece = threadIdx.x % CHUNK;
  const int filter_of_warp = warp % ABREAST * 32, first_step = warp / ABREAST;
  float sums[ROWS / 16][4][4] = {};

  // What is added to the sums is on its way while they are computed.
  constexpr int COUNT = (OWN * QUADS + THREADS - 1) / THREADS;
  Vector<T, 4> shift[COUNT], added[COUNT];
  int results[COUNT];  // where they are written; -1: nowhere
  const auto load_others = [&] {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const int quad = threadIdx.x + i * THREADS, filter = first_filter + quad % QUADS * 4;
      const int pixel = first_pixel + rank * OWN + quad / QUADS;
      const bool there = quad < OWN * QUADS && pixel < pixels && filter < filters;
      results[i] = there ? pixel * filters + filter : -1;
      shift[i] = there && bias ? load<4>(bias + filter) : Vector<T, 4>{};
      added[i] = there && residual ? load<4>(residual + results[i]) : Vector<T, 4>{};
    }
  };

  int used;  // pieces of memory
  if constexpr (REGION) {
    const int first = begin / taps, last = (begin + own - 1) / taps;  // chunks of channels
    const int most = part % taps ? (part + taps - 2) / taps + 1 : part / taps;
    const int regions = min(most, channels / CHUNK), region = (span + 1) * CHUNK;
    Piece* const seen = memory + part * FILTERS * CHUNK;
    used = part * FILTERS * CHUNK + regions * region;
    const Pixels under(at, first_pixel, min(first_pixel + ROWS, pixels) - 1);
    Shape by_pixel = at;
    by_pixel.channels = 1;
    const Windows<ROWS> windows(by_pixel, first_pixel + lane % 16, pixels);
    const auto fetch_weights = [&] {
      for (int i = 0; i < own; ++i) {
        const int tap = (begin + i) % taps, chunk = (begin + i) / taps;
        const Depth depth{0, 0, 0, tap * channels + chunk * CHUNK + piece};
        copy_weights<FILTERS>(piece_of(memory + i * FILTERS * CHUNK, row, piece), weight, at,
                              first_filter + row, depth);
      }
    };
    const auto fetch_pixels = [&](int chunk) {
      Piece* const target = seen + (chunk - first) * region;
      for (int i = row; i < under.count; i += ROWS_AT_ONCE)
        copy_piece(piece_of(target, i, piece),
                   x + (under.first + i) * channels + chunk * CHUNK + piece, true);
      if (row == 0) target[span * CHUNK + piece] = Piece{};
    };
    if (FROZEN) fetch_weights();
    WAIT_FOR_KERNEL_BEFORE();
    if (!FROZEN) fetch_weights();
    if (own > 0) fetch_pixels(first);
    close_copies();
    for (int chunk = first + 1; chunk <= last; ++chunk) fetch_pixels(chunk);
    close_copies();
    load_others();
    for (int chunk = first, done = 0; chunk <= last; ++chunk) {
      if (chunk == first) wait_for_copies<1>();      // the weights and the first chunk of pixels
      if (chunk == first + 1) wait_for_copies<0>();  // all others
      if (chunk <= first + 1) __syncthreads();
      const int from = chunk == first ? begin - first * taps : 0, to = min(taps, from + own - done);
      Piece* const pixels_of = seen + (chunk - first) * region;
      Taps<ROWS / 16> under_tap(windows, at, from, under.first);
#pragma unroll 3
      for (int tap = from; tap < to; ++tap, ++done) {
#pragma unroll
        for (int j = 0; j < STEPS / DEEP; ++j) {
          const int step = first_step + j * DEEP;
          unsigned b[2][4];
          load_weights(b, memory + done * FILTERS * CHUNK, filter_of_warp, step);
          multiply<T>(sums, b, [&](int i) {
            return piece_of(pixels_of, under_tap.pixel(i, span), 2 * step + lane / 16);
          });
        }
        under_tap.advance(at);
      }
    }
  } else {
    used = STAGES * STAGE;
    const Windows<ROWS> windows(at, first_pixel + row, pixels);
    Depth of_pixels(at, begin * CHUNK + piece);
    Depth of_weights(at, begin * CHUNK + (TURNED ? threadIdx.x / ROWS_AT_ONCE : piece));
    const auto fetch_weights = [&](int chunk) {
      if (chunk >= own) return;
      Piece* tile = memory + chunk % STAGES * STAGE + ROWS * CHUNK;
      if (TURNED) {
        copy_turned<T, FILTERS>(tile, weight, at, first_filter, of_weights);
      } else {
        copy_weights<FILTERS>(piece_of(tile, row, piece), weight, at, first_filter + row,
                              of_weights);
      }
      of_weights.advance(at);
    };
    const auto fetch_pixels = [&](int chunk) {
      if (chunk < own) {
        windows.copy(piece_of(memory + chunk % STAGES * STAGE, row, piece), x, at, of_pixels);
        of_pixels.advance(at);
      }
      close_copies();
    };
    if (FROZEN)
      for (int chunk = 0; chunk < STAGES - 1; ++chunk) fetch_weights(chunk);
    WAIT_FOR_KERNEL_BEFORE();
    for (int chunk = 0; chunk < STAGES - 1; ++chunk) {
      if (!FROZEN) fetch_weights(chunk);
      fetch_pixels(chunk);
    }
    load_others();
    for (int chunk = 0; chunk < own; ++chunk) {
      wait_for_copies<STAGES - 2>();
      __syncthreads();  // the chunk is complete, and all threads are done with the previous one
      Piece* stage = memory + chunk % STAGES * STAGE;
#pragma unroll
      for (int i = 0; i < STEPS / DEEP; ++i) {
        const int step = first_step + i * DEEP;
        unsigned b[2][4];
        if (TURNED) {
          load_turned<T, FILTERS>(b, stage + ROWS * CHUNK, filter_of_warp, step);
        } else {
          load_weights(b, stage + ROWS * CHUNK, filter_of_warp, step);
        }
        multiply<T>(sums, b, [&](int i) {
          return piece_of(stage, 16 * i + lane % 16, 2 * step + lane / 16);
        });
      }
      fetch_weights(chunk + STAGES - 1);  // overlaps the products; replaces the previous chunk
      fetch_pixels(chunk + STAGES - 1);
    }
  }

  // Sums of the warps, where the chunks were; behind them those of the cluster's blocks.
  float* const of_warps = reinterpret_cast<float*>(memory);
  constexpr int ROOM = DEEP * ROWS * LENGTH / 4;  // in pieces
  float* const of_blocks = reinterpret_cast<float*>(memory + max(used, ROOM));
  __syncthreads();
  leave(sums, of_warps + first_step * ROWS * LENGTH + filter_of_warp, LENGTH);
  __syncthreads();
  const auto over_warps = [&](int quad) {
    const float* const place = of_warps + quad / QUADS * LENGTH + quad % QUADS * 4;
    return sum_over<DEEP>([&](int i) { return place + i * ROWS * LENGTH; });
  };
  if (SPLIT > 1) {
    CLUSTER_WAIT();  // all blocks have begun
#pragma unroll
    for (int quad = threadIdx.x; quad < ROWS * QUADS; quad += THREADS) {
      const int line = quad / QUADS;
      float* const place = of_blocks + (rank * OWN + line % OWN) * LENGTH + quad % QUADS * 4;
      store<4>(OF_BLOCK(place, line / OWN), over_warps(quad));
    }
    CLUSTER_ARRIVE();
    CLUSTER_WAIT();  // all sums are there
  }
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    if (results[i] < 0) continue;
    const int quad = threadIdx.x + i * THREADS;
    Vector<float, 4> sum;
    if (SPLIT > 1) {
      const float* const place = of_blocks + quad / QUADS * LENGTH + quad % QUADS * 4;
      sum = sum_over<SPLIT>([&](int block) { return place + block * OWN * LENGTH; });
    } else {
      sum = over_warps(quad);
    }
    Vector<T, 4> values;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float value =
          clipped(sum.item[k] + convert<float>(shift[i].item[k]) + convert<float>(added[i].item[k]),
                  low, high);
      values.item[k] = convert<T>(ACTIVATED(value));
    }
    store<4>(y + results[i], values);
  }
}
