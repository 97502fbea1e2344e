// For each row that the indices name, the sum of its gradients, in their order, is added to it:
//
//   y[o, r, i] += sum over k with index[k] = r of g[o, k, i]
//
// A block looks at one k. If an earlier one has the same index, that one's block adds them all. Its
// threads first look through all indices side by side; most have no second place. Otherwise they
// collect the places of as many indices as there are threads, and add the rows there: X threads take
// V columns each of a row, and so many rows at once as there are threads for. The order of every
// sum depends only on the indices, not on the order of blocks. Other rows stay as they are.

// Those values that are `found`, in the order of the threads that have them. Returns their number.
template <int THREADS>
__device__ int collect(bool found, int value, int* list) {
  __shared__ int of_warp[THREADS / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned mask = __ballot_sync(0xffffffff, found);
  if (lane == 0) of_warp[warp] = __popc(mask);
  __syncthreads();
  int before = 0, total = 0;
  for (int other = 0; other < THREADS / 32; ++other) {
    if (other < warp) before += of_warp[other];
    total += of_warp[other];
  }
  if (found) list[before + __popc(mask & ((1u << lane) - 1))] = value;
  __syncthreads();
  return total;
}

template <typename T, typename Place, typename Y, int THREADS, int V>
__global__ void add_rows(const T* gradient, const Place* index, Y* y, int count, long long inner,
                         long long size, int vectors, long long skipped) {
  // grid: (count, outer, tiles of `vectors` vectors of a row)
  const int k = blockIdx.x;
  const Place row = index[k];
  bool earlier = row == skipped, later = false;
#pragma unroll 4
  for (int j = threadIdx.x; j < count; j += THREADS) {
    const bool same = index[j] == row;
    earlier |= same && j < k;
    later |= same && j > k;
  }
  if (__syncthreads_or(earlier)) return;
  const int last = __syncthreads_or(later) ? count : k + 1;

  __shared__ int places[THREADS];
  __shared__ float sums[V * THREADS];
  const int at_once = THREADS / vectors, mine = threadIdx.x / vectors;
  const long long i = (blockIdx.z * vectors + threadIdx.x % vectors) * static_cast<long long>(V);
  const bool adds = mine < at_once && i < inner;
  const T* from = gradient + static_cast<long long>(blockIdx.y) * count * inner + i;
  float sum[V] = {};
  for (int first = k; first < last; first += THREADS) {
    const int j = first + threadIdx.x;
    const int found = collect<THREADS>(j < last && index[j] == row, j, places);
    if (!adds) continue;
#pragma unroll 4
    for (int n = mine; n < found; n += at_once) {
      const Vector<T, V> values = load<V>(from + places[n] * inner);
#pragma unroll
      for (int v = 0; v < V; ++v) sum[v] += static_cast<float>(values.item[v]);
    }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) sums[v * THREADS + threadIdx.x] = sum[v];
  __syncthreads();
  if (mine != 0 || !adds) return;
  Y* to = y + (blockIdx.y * size + row) * inner + i;
  Vector<Y, V> values = load<V>(to);
#pragma unroll
  for (int v = 0; v < V; ++v) {
    float total = static_cast<float>(values.item[v]);
    for (int other = 0; other < at_once; ++other) {
      total += sums[v * THREADS + other * vectors + threadIdx.x];
    }
    values.item[v] = static_cast<Y>(total);
  }
  store(to, values);
}
