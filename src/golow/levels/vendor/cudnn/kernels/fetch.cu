// Inputs. All batches of an input are consecutive in device memory, and an integer there is the
// index of the current one. So one CUDA graph serves every batch: the host writes one word before
// the launch, and nothing is copied without being converted.

template <typename S>
__device__ const S* current(const S* base, const int* position, size_t batch) {
  return base + static_cast<size_t>(*position) * batch;
}

// The image in blocks of 2x2 pixels: channel 4 c + 2 dy + dx of block (h, w) is channel c of pixel
// (2 h + dy, 2 w + dx), as in PyTorch's pixel_unshuffle; channels from 4 C on are zero.
template <typename S, typename T, int PADDED>
__global__ void fetch_blocks(
    const S* base, const int* position, T* out, size_t batch, int channels, int height,
    int width) {
  const S* in = current(base, position, batch);
  const int row = blockIdx.x;  // row of blocks, counted over all images
  const int rows = height / 2, columns = width / 2;
  const int column = blockIdx.y * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  const S* image = in + static_cast<size_t>(row / rows) * channels * height * width;
  const S* corner = image + static_cast<size_t>(row % rows) * 2 * width + 2 * column;
  T* place = out + (static_cast<size_t>(row) * columns + column) * PADDED;
  constexpr int N = 16 / sizeof(T);  // elements of one store: whole pairs of rows
#pragma unroll
  for (int first = 0; first < PADDED; first += N) {
    Vector<T, N> part;
#pragma unroll
    for (int k = 0; k < N; k += 2) {
      const int c = (first + k) / 4, dy = (first + k) / 2 % 2;
      Vector<S, 2> pair{};
      if (c < channels) pair = load<2>(corner + (static_cast<size_t>(c) * height + dy) * width);
      part.item[k] = convert<T>(pair.item[0]);
      part.item[k + 1] = convert<T>(pair.item[1]);
    }
    store(place + first, part);
  }
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
