// What `few_pixels.cu` is made of: which pieces of images and weights a thread copies, what a warp loads
// and multiplies, and how sums are left and added.

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
