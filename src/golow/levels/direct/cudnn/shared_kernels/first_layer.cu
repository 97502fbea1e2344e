// Convolution of images with few channels on tensor cores, and the gradient of its weights: a
// network's first layer. Its images are read where all batches lie, in PyTorch's order; weights
// are KRSC, results NHWC. With stride (SY, SX) and x' = x[n, c, p SY + r - top, q SX + s - left]:
//
//   y[n, p, q, k] = clip(bias[k] + sum over r, s, c of x' * w[k, r, s, c])
//   dw[k, r, s, c] = sum over n, p, q of dy[n, p, q, k] * x'
//
// Tiles: a block takes ROWS x 16 pixels of the result at a time, and loads what they read of the
// image into registers while it computes the tile before. In shared memory the channels of a pixel
// lie side by side, with zeros up to WIDTH of them, so that the windows of adjacent pixels begin at
// multiples of 16 bytes. The products read overlapping windows from there, so the matrix of patches
// is never built (an implicit matrix product).
// Depth: the products take s and c together, DEPTH numbers for each row of the window, the last of
// them beyond the window: there the weights are zero, and gradients are dropped. (An infinite pixel
// there makes NaN.)
// Blocks keep the filters in shared memory and go on to further tiles.
// Gradient: each block adds over its tiles, whose gradients of y it copies (cp.async), halves one
// tile ahead; a second kernel adds the blocks' sums.
// The code before this file may define ACTIVATED, a function of the clipped result.

#ifndef ACTIVATED
#define ACTIVATED(value) (value)
#endif

constexpr int COLUMNS = 16;  // of a tile: the rows of one product

// A number as tensor cores read it.
template <typename T, typename In> __device__ inline T operand(In value) {
  if constexpr (sizeof(T) == 4) return __uint_as_float(rounded<T>(__float_as_uint(value)));
  else return convert<T>(value);
}

struct Sizes { int images, height, width, out_height, out_width, filters, top, left; };

#define SIZE_ARGUMENTS                                                                             \
  int images, int height, int width, int out_height, int out_width, int filters, int top, int left
#define SIZES Sizes{ images, height, width, out_height, out_width, filters, top, left }

template <typename T, int CHANNELS, int R, int S, int SY, int SX, int ROWS, int THREADS>
struct Tile {
  static constexpr int PIECE = 16 / sizeof(T), STEP = 2 * PIECE;  // numbers in a piece, a product
  __host__ __device__ static constexpr int padded(int width) {
    return width * SX % PIECE ? padded(2 * width) : width;
  }
  static constexpr int WIDTH = padded(CHANNELS < 3 ? CHANNELS : 4);
  static constexpr int STEPS = (S * WIDTH + STEP - 1) / STEP, DEPTH = STEPS * STEP;
  static constexpr int HIGH = (ROWS - 1) * SY + R;
  static constexpr int WIDE = (15 * SX * WIDTH + DEPTH + PIECE - 1) / PIECE * PIECE / WIDTH;
  static constexpr int LINE = WIDE * WIDTH, PIXELS = HIGH * WIDE;
  static constexpr int LOADS = (PIXELS + THREADS - 1) / THREADS;
  static constexpr int ELEMENTS = HIGH * LINE;
  static_assert(LINE % PIECE == 0, "rows begin at pieces");
};

// Which pixels of the result a tile has.
struct Place {
  int image, p, q;

  template <int ROWS> __device__ static Place of(int tile, const Sizes& at) {
    const int across = (at.out_width + COLUMNS - 1) / COLUMNS;
    const int down = (at.out_height + ROWS - 1) / ROWS, line = tile / across;
    return {line / down, line % down * ROWS, tile % across * COLUMNS};
  }
};

// The pixels under a tile's windows, on their way to shared memory.
template <typename In, typename Of, int CHANNELS, int THREADS> struct Loaded {
  In value[Of::LOADS][CHANNELS];

  __device__ void load(const In* x, const Place& place, const Sizes& at, int down, int right) {
    const int y = place.p * down - at.top, left = place.q * right - at.left;
    const In* image = x + (size_t)place.image * CHANNELS * at.height * at.width;
#pragma unroll
    for (int i = 0; i < Of::LOADS; ++i) {
      const int pixel = threadIdx.x + i * THREADS;
      const int row = y + pixel / Of::WIDE, column = left + pixel % Of::WIDE;
      const bool there = (pixel < Of::PIXELS) & ((unsigned)row < at.height) &
                         ((unsigned)column < at.width);
#pragma unroll
      for (int c = 0; c < CHANNELS; ++c)
        value[i][c] = there ? image[((size_t)c * at.height + row) * at.width + column] : In(0);
    }
  }
  template <typename T> __device__ void put(T* tile) const {
#pragma unroll
    for (int i = 0; i < Of::LOADS; ++i) {
      const int pixel = threadIdx.x + i * THREADS;
      Vector<T, Of::WIDTH> numbers{};
#pragma unroll
      for (int c = 0; c < CHANNELS; ++c) numbers.item[c] = operand<T>(value[i][c]);
      if (pixel < Of::PIXELS) store<Of::WIDTH>(tile + pixel * Of::WIDTH, numbers);
    }
  }
};

// ------------------------------------------------------------ forward

// Which filter a row of the filters in shared memory is, of 32: so each lane gets eight adjacent
// filters of the four products that lie side by side.
__device__ inline int filter_of(int row) { return row % 8 / 2 * 8 + row / 8 * 2 + row % 2; }

// Starts copying the block's filters as they lie; there are whole pieces of them.
template <int NUMBERS, int FILTERS, int THREADS, typename T>
__device__ inline void copy_filters(Piece* target, const T* weight, int first, int filters) {
  constexpr int PER = 16 / sizeof(T);
  const int there = min(FILTERS, filters - first) * NUMBERS / PER;
  const Piece* from = reinterpret_cast<const Piece*>(weight + (size_t)first * NUMBERS);
  for (int i = threadIdx.x; i < FILTERS * NUMBERS / PER; i += THREADS)
    copy_piece(target + i, from + (i < there ? i : 0), i < there);
  close_copies();
}

// Puts them into their rows, with zeros beyond the window.
template <typename Of, int CHANNELS, int R, int S, int LENGTH, int FILTERS, int THREADS, typename T>
__device__ inline void put_filters(Piece* weights, const Piece* copied) {
  constexpr int NUMBERS = R * S * CHANNELS;
  for (int i = threadIdx.x; i < FILTERS * LENGTH / Of::PIECE; i += THREADS) weights[i] = Piece{};
  __syncthreads();
  T* const rows = reinterpret_cast<T*>(weights);
  const T* const numbers = reinterpret_cast<const T*>(copied);
#pragma unroll 4
  for (int i = threadIdx.x; i < FILTERS * NUMBERS; i += THREADS) {
    const int row = i / NUMBERS, number = i % NUMBERS, r = number / (S * CHANNELS);
    const int s = number / CHANNELS % S, c = number % CHANNELS;
    const int filter = row / 32 * 32 + filter_of(row % 32);
    rows[row * LENGTH + r * Of::DEPTH + s * Of::WIDTH + c] =
        operand<T>(numbers[filter * NUMBERS + number]);
  }
}

// ABREAST warps side by side have 32 filters each, DEEP one below the other EACH rows of pixels.
template <typename In, typename T, int CHANNELS, int R, int S, int SY, int SX, int ABREAST,
          int DEEP, int EACH>
__global__ void __launch_bounds__(32 * ABREAST* DEEP, 512 / (32 * ABREAST * DEEP))
    first(const In* batches, const int* position, const T* weight, const float* bias, T* y,
          size_t batch, SIZE_ARGUMENTS, float low, float high) {
  constexpr int THREADS = 32 * ABREAST * DEEP, ROWS = EACH * DEEP, FILTERS = 32 * ABREAST;
  using Of = Tile<T, CHANNELS, R, S, SY, SX, ROWS, THREADS>;
  // An odd number of pieces: eight rows are in different banks.
  constexpr int LENGTH = R * Of::DEPTH + Of::PIECE;
  constexpr int COPIED = FILTERS * R * S * CHANNELS, HELD = Of::ELEMENTS;
  __shared__ Piece weights[FILTERS * LENGTH / Of::PIECE];
  __shared__ Piece pixels[(COPIED > HELD ? COPIED : HELD) / Of::PIECE];  // first the copied filters
  const Sizes at = SIZES;
  const In* x = current(batches, position, batch);
  T* const tile_of_x = reinterpret_cast<T*>(pixels);
  const int first_filter = blockIdx.y * FILTERS, warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  copy_filters<R * S * CHANNELS, FILTERS, THREADS>(pixels, weight, first_filter, at.filters);
  Loaded<In, Of, CHANNELS, THREADS> loaded;
  loaded.load(x, Place::of<ROWS>(blockIdx.x, at), at, SY, SX);
  wait_for_copies<0>();
  put_filters<Of, CHANNELS, R, S, LENGTH, FILTERS, THREADS, T>(weights, pixels);
  const int my_filter = first_filter + warp % ABREAST * 32 + lane % 4 * 8;
  const int tiles = at.images * ((at.out_height + ROWS - 1) / ROWS) *
                    ((at.out_width + COLUMNS - 1) / COLUMNS);
  const int own = warp / ABREAST * EACH;  // first row of the warp in the tile
  // What this lane reads first: of the filters, and of the pixels.
  const int my_row = warp % ABREAST * 32 + lane % 8 + lane / 16 * 8;
  const Piece* const my_filters = weights + my_row * (LENGTH / Of::PIECE) + lane / 8 % 2;
  const T* const my_line = tile_of_x + own * SY * Of::LINE + lane % 16 * SX * Of::WIDTH +
                           lane / 16 * Of::PIECE;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const Place place = Place::of<ROWS>(tile, at);
    __syncthreads();  // all are done with the tile before
    loaded.put(tile_of_x);
    __syncthreads();
    if (tile + gridDim.x < tiles)
      loaded.load(x, Place::of<ROWS>(tile + gridDim.x, at), at, SY, SX);

    float sums[EACH][4][4] = {};
    const Piece* filters_row = my_filters;
    const T* line = my_line;
#pragma unroll 1
    for (int r = 0; r < R; ++r, filters_row += 2 * Of::STEPS, line += Of::LINE) {
#pragma unroll
      for (int step = 0; step < Of::STEPS; ++step) {
        unsigned b[2][4];
#pragma unroll
        for (int j = 0; j < 2; ++j)
          load_matrices(b[j], filters_row + 16 * j * (LENGTH / Of::PIECE) + 2 * step);
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
          unsigned a[4];
          const T* from = line + i * SY * Of::LINE + step * Of::STEP;
          load_matrices(a, reinterpret_cast<const Piece*>(from));
#pragma unroll
          for (int j = 0; j < 4; ++j)
            multiply_add<T>(sums[i][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
      }
    }
    Vector<float, 8> shift{};
    if (bias && my_filter < at.filters) shift = load<8>(bias + my_filter);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int p = place.p + own + i, q = place.q + lane / 4 + 8 * half;
        if (p >= at.out_height || q >= at.out_width || my_filter >= at.filters) continue;
        Vector<T, 8> numbers;
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          const float value = clipped(sums[i][k / 2][2 * half + k % 2] + shift.item[k], low, high);
          numbers.item[k] = convert<T>(ACTIVATED(value));
        }
        const size_t line = ((size_t)place.image * at.out_height + p) * at.out_width + q;
        store<8>(y + line * at.filters + my_filter, numbers);
      }
    }
  }
}

// ------------------------------------------------------------ the gradient of the weights

// Gradients of y in shared memory: a row of filters for each pixel, and a gap, so that neither
// reads of eight rows nor of single floats have bank conflicts.
constexpr int GAP = 8;

// The operand of 16 filters and 16 halves' or 8 floats' pixels, from row `pixel` on.
template <typename T>
__device__ inline void load_gradients(unsigned (&a)[4], const T* rows, int length) {
  const int lane = threadIdx.x % 32;
  if constexpr (sizeof(T) == 2) {
    const T* row = rows + (lane % 8 + lane / 16 * 8) * length + lane / 8 % 2 * 8;
    load_columns(a, reinterpret_cast<const Piece*>(row));
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const T* row = rows + (lane % 4 + k / 2 * 4) * length;
      a[k] = rounded<T>(__float_as_uint(row[lane / 4 + k % 2 * 8]));
    }
  }
}

// The operand of the same pixels and of STEP numbers of their windows; `line` is the first pixel's.
template <typename T, int STRIDE>
__device__ inline void load_windows(unsigned (&b)[4], const T* line) {
  const int lane = threadIdx.x % 32;
  if constexpr (sizeof(T) == 2) {
    load_columns(b, reinterpret_cast<const Piece*>(line + lane % 16 * STRIDE) + lane / 16);
  } else {
#pragma unroll
    for (int k = 0; k < 2; ++k)
      b[k] = __float_as_uint(line[(lane % 4 + k * 4) * STRIDE + lane / 4]);
  }
}

// Eight warps: ABREAST have 32 filters each, the others share the depth, in units of STEP numbers
// of a row of the window. parts: [gridDim.x][filters][R][S][CHANNELS].
template <typename In, typename T, int CHANNELS, int R, int S, int SY, int SX, int ABREAST,
          int ROWS>
__global__ void __launch_bounds__(256, 2)
    first_weight(const In* batches, const int* position, const T* dy, T*, float* parts,
                 size_t batch, SIZE_ARGUMENTS) {
  constexpr int THREADS = 256, FILTERS = 32 * ABREAST, LENGTH = FILTERS + GAP;
  using Of = Tile<T, CHANNELS, R, S, SY, SX, ROWS, THREADS>;
  constexpr int SHARING = 8 / ABREAST, UNITS = (R * Of::STEPS + SHARING - 1) / SHARING;
  constexpr int PIECES = FILTERS / Of::PIECE;
  constexpr int ACROSS = sizeof(T) == 2 ? 2 : 1;  // products of a unit
  constexpr int GRADIENTS = ROWS * COLUMNS * LENGTH / Of::PIECE;
  constexpr bool AHEAD = sizeof(T) == 2;  // of floats, two tiles leave too few rows for each
  __shared__ Piece gradients[(1 + AHEAD) * GRADIENTS], pixels[Of::ELEMENTS / Of::PIECE];
  const Sizes at = SIZES;
  const In* x = current(batches, position, batch);
  T* const tile_of_x = reinterpret_cast<T*>(pixels);
  const int first_filter = blockIdx.y * FILTERS, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tiles = at.images * ((at.out_height + ROWS - 1) / ROWS) *
                    ((at.out_width + COLUMNS - 1) / COLUMNS);

  const auto copy_gradients = [&](int tile, Piece* target) {
    const Place place = Place::of<ROWS>(tile, at);
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * COLUMNS * PIECES; i += THREADS) {
      const int pixel = i / PIECES, piece = i % PIECES;
      const int p = place.p + pixel / COLUMNS, q = place.q + pixel % COLUMNS;
      const int filter = first_filter + piece * Of::PIECE;
      const bool there = (p < at.out_height) & (q < at.out_width) & (filter < at.filters);
      const size_t line = ((size_t)place.image * at.out_height + p) * at.out_width + q;
      const T* from = dy + (there ? line * at.filters + filter : 0);
      copy_piece(target + pixel * (LENGTH / Of::PIECE) + piece,
                 reinterpret_cast<const Piece*>(from), there);
    }
    close_copies();
  };

  float sums[2][UNITS][ACROSS][4] = {};
  Loaded<In, Of, CHANNELS, THREADS> loaded;
  loaded.load(x, Place::of<ROWS>(blockIdx.x, at), at, SY, SX);
  if (AHEAD) copy_gradients(blockIdx.x, gradients);
  int turn = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, turn ^= AHEAD) {
    const int next = tile + gridDim.x;
    const T* const rows = reinterpret_cast<const T*>(gradients + turn * GRADIENTS);
    __syncthreads();  // all are done with the tile before
    if (!AHEAD) copy_gradients(tile, gradients);
    loaded.put(tile_of_x);
    if (next < tiles) {
      if (AHEAD) copy_gradients(next, gradients + (turn ^ 1) * GRADIENTS);
      loaded.load(x, Place::of<ROWS>(next, at), at, SY, SX);
    }
    if (AHEAD && next < tiles) {
      wait_for_copies<1>();
    } else {
      wait_for_copies<0>();
    }
    __syncthreads();
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
#pragma unroll
      for (int q = 0; q < COLUMNS; q += Of::STEP) {
        unsigned a[2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const T* from = rows + (row * COLUMNS + q) * LENGTH + warp % ABREAST * 32 + 16 * i;
          load_gradients(a[i], from, LENGTH);
        }
#pragma unroll
        for (int u = 0; u < UNITS; ++u) {
          const int unit = warp / ABREAST + u * SHARING, r = unit / Of::STEPS;
          if (unit >= R * Of::STEPS) continue;
          unsigned b[4];
          load_windows<T, SX * Of::WIDTH>(
              b, tile_of_x + (row * SY + r) * Of::LINE + q * SX * Of::WIDTH +
                     unit % Of::STEPS * Of::STEP);
#pragma unroll
          for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int j = 0; j < ACROSS; ++j)
              multiply_add<T>(sums[i][u][j], a[i], b[2 * j], b[2 * j + 1]);
        }
      }
    }
  }
  float* const part = parts + (size_t)blockIdx.x * at.filters * R * S * CHANNELS;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int u = 0; u < UNITS; ++u)
#pragma unroll
      for (int j = 0; j < ACROSS; ++j)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int unit = warp / ABREAST + u * SHARING, r = unit / Of::STEPS;
          const int d = unit % Of::STEPS * Of::STEP + 8 * j + lane % 4 * 2 + k % 2;
          const int s = d / Of::WIDTH, c = d % Of::WIDTH;
          const int filter = first_filter + warp % ABREAST * 32 + 16 * i + lane / 4 + k / 2 * 8;
          if (r >= R || s >= S || c >= CHANNELS || filter >= at.filters) continue;
          part[((filter * R + r) * S + s) * CHANNELS + c] = sums[i][u][j][k];
        }
}

// dw = the sum of all parts, in their order. A block has 32 weights, and LANES threads for each.
template <typename T, int LANES>
__global__ void first_weight_sum(const void*, const int*, const void*, T* dw, const float* parts,
                                 int weights, int count) {
  __shared__ float sums[LANES][32];
  const int weight = blockIdx.x * 32 + threadIdx.x;
  float sum = 0.f;
  if (weight < weights)
    for (int part = threadIdx.y; part < count; part += LANES)
      sum += parts[(size_t)part * weights + weight];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y || weight >= weights) return;
  for (int lane = 1; lane < LANES; ++lane) sum += sums[lane][threadIdx.x];
  dw[weight] = convert<T>(sum);
}
