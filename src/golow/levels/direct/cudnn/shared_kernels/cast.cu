// Conversion to another type.

template <typename S, typename T, int N>
__global__ void cast(const S* in, T* out, size_t count) {
  for (size_t i = first_index<N, size_t>(); i < count; i += step<N, size_t>()) {
    const auto values = load<N>(in, i, count);
    Vector<T, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result.item[k] = convert<T>(values.item[k]);
    store(out, i, count, result);
  }
}
