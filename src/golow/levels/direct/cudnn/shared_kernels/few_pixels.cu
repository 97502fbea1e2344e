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
