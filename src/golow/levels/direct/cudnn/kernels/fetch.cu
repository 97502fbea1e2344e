// Inputs, copied into the layout and type in which steps read them.

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
