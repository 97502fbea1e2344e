// Rows of a cache, from a position on that is data; both are seen as four axes. A position at which not
// all rows are within is the nearest one, so that no other memory is written.
template <typename R, typename C>
__global__ void cache_rows(const R* rows, const long long* position, C* cache, long long count, int size_1,
                           int size_2, int size_3, long long from_0, long long from_1, long long from_2,
                           long long from_3, long long to_0, long long to_1, long long to_2, long long to_3,
                           long long last, long long step) {
  const long long given = *position;
  C* const first = cache + (given < 0 ? 0 : given > last ? last : given) * step;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    long long rest = i;
    const long long d = rest % size_3;
    rest /= size_3;
    const long long c = rest % size_2;
    rest /= size_2;
    const long long b = rest % size_1, a = rest / size_1;
    first[a * to_0 + b * to_1 + c * to_2 + d * to_3] =
        convert<C>(rows[a * from_0 + b * from_1 + c * from_2 + d * from_3]);
  }
}
