// Inputs, copied into the layout and type in which steps read them.
//
// NCHW -> NHWC is, for each image, the transpose of the matrix [channels, pixels]. Wide matrices go
// through tiles in shared memory, so that both sides are read and written along their rows. With few
// channels, a thread takes all channels of one pixel: adjacent threads read adjacent pixels of each
// plane, and write adjacent vectors.

constexpr int TILE = 32;

// [batch, rows, columns], with pitch_in elements from row to row, to [batch, columns, pitch_out],
// zero where pitch_out exceeds the rows. One block of (32, 8) threads for each tile.
template <typename S, typename T>
__device__ void transpose_tile(
    const S* in, T* out, int rows, int columns, int pitch_in, int pitch_out) {
  __shared__ float tile[TILE][TILE + 1];
  const unsigned across = (columns + TILE - 1) / TILE;
  const unsigned tiles = across * ((pitch_out + TILE - 1) / TILE);
  const unsigned batch = blockIdx.x / tiles, place = blockIdx.x % tiles;
  const int row0 = place / across * TILE, column0 = place % across * TILE;
  const size_t from = static_cast<size_t>(batch) * rows * pitch_in;
  const size_t to = static_cast<size_t>(batch) * columns * pitch_out;
  for (int y = threadIdx.y; y < TILE; y += blockDim.y) {
    const int row = row0 + y, column = column0 + threadIdx.x;
    const bool inside = row < rows && column < columns;
    const size_t index = from + static_cast<size_t>(row) * pitch_in + column;
    tile[y][threadIdx.x] = inside ? static_cast<float>(in[index]) : 0.0f;
  }
  __syncthreads();
  for (int y = threadIdx.y; y < TILE; y += blockDim.y) {
    const int row = row0 + threadIdx.x, column = column0 + y;
    if (row >= pitch_out || column >= columns) continue;
    out[to + static_cast<size_t>(column) * pitch_out + row] = static_cast<T>(tile[threadIdx.x][y]);
  }
}

// [n, channels, pixels] to [n, pixels, PADDED]; a block belongs to one image.
template <int PADDED, typename S, typename T>
__device__ void gather_channels(const S* in, T* out, int channels, int pixels) {
  const int pixel = blockIdx.y * blockDim.x + threadIdx.x;
  if (pixel >= pixels) return;
  const size_t image = blockIdx.x;
  Vector<T, PADDED> values;
#pragma unroll
  for (int c = 0; c < PADDED; ++c) {
    const size_t index = (image * channels + c) * pixels + pixel;
    values.item[c] = static_cast<T>(c < channels ? static_cast<float>(in[index]) : 0.0f);
  }
  store(out + (image * pixels + pixel) * PADDED, values);
}

template <typename S, typename T>
__global__ void fetch_tiled(
    const S* base, const int* position, T* out, size_t batch, int channels, int pixels,
    int padded) {
  transpose_tile(current(base, position, batch), out, channels, pixels, pixels, padded);
}

template <typename S, typename T, int PADDED>
__global__ void fetch_narrow(
    const S* base, const int* position, T* out, size_t batch, int channels, int pixels) {
  gather_channels<PADDED>(current(base, position, batch), out, channels, pixels);
}

// N divides the batch, or is 1, so each batch begins at a multiple of the vector.
template <typename S, typename T, int N>
__global__ void fetch_rows(const S* base, const int* position, T* out, size_t batch) {
  const S* in = current(base, position, batch);
  for (size_t i = first_index<N, size_t>(); i < batch; i += step<N, size_t>()) {
    const auto values = load<N>(in + i);
    Vector<T, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result.item[k] = convert<T>(values.item[k]);
    store(out + i, result);
  }
}
