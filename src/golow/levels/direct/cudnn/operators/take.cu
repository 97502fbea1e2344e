// For each row that the indices name, the sum of its gradients, in their order, is added to it:
//
//   y[o, r, i] += sum over k with index[k] = r of g[o, k, i]
//
// However many indices name a row, its sum is spread over many blocks, and always has the same
// order: first `order_rows` sorts the places k by their row, then `sum_chunks` adds the gradients of
// CHUNK places after one another, and `join_chunks` adds the sums of a row that several chunks
// share. Rows that no index names stay as they are, and so does the skipped one.
//
// Where y is all zeros before and there are few places, `collect_rows` writes all of it at once: each
// thread compares every place with its own row.

// sorted[p]: the place that comes p-th in the order of rows, equal ones in the order of places.
// LANES threads count together how many places come before one.
template <typename Place, int THREADS, int LANES>
__global__ void order_rows(const Place* index, int* sorted, int count) {
  __shared__ Place tile[THREADS];
  __shared__ int counted[THREADS];
  const int lane = threadIdx.x % LANES, k = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
  const Place row = k < count ? index[k] : 0;
  int before = 0;
  for (int start = 0; start < count; start += THREADS) {
    __syncthreads();
    const int filled = min(THREADS, count - start), own = threadIdx.x;
    if (own < filled) tile[own] = index[start + own];
    __syncthreads();
    for (int j = lane; j < filled; j += LANES) {
      before += tile[j] < row || (tile[j] == row && start + j < k);
    }
  }
  counted[threadIdx.x] = before;
  __syncthreads();
  if (lane != 0 || k >= count) return;
  for (int other = 1; other < LANES; ++other) before += counted[threadIdx.x + other];
  sorted[before] = k;
}

// The rows of a chunk's places, and of the places before and behind it; none is -1.
template <typename Place>
struct Chunk {
  const Place* index;
  const int* sorted;
  int count;

  __device__ long long row(int p) const {
    return p < 0 || p >= count ? -1 : static_cast<long long>(index[sorted[p]]);
  }
};

// Columns are the threads of a block. partial[o, 2 c, i]: the sum of chunk c's first places, if
// their row began before it; partial[o, 2 c + 1, i]: of its last ones, if their row begins in it and
// goes on behind it. All other sums are whole.
template <typename T, typename Place, typename Y, int CHUNK, int AT_ONCE = 8>
__global__ void sum_chunks(const T* gradient, const Place* index, const int* sorted, Y* y,
                           float* partial, int count, int inner, long long size,
                           long long skipped) {
  const Chunk<Place> chunk{index, sorted, count};
  const int first = blockIdx.x * CHUNK, end = min(first + CHUNK, count);
  __shared__ int place[CHUNK];
  __shared__ long long row[CHUNK + 2];  // of the place before, of each, of the place behind
  for (int p = threadIdx.x; p < CHUNK + 2; p += blockDim.x) row[p] = chunk.row(first - 1 + p);
  for (int p = threadIdx.x; first + p < end; p += blockDim.x) place[p] = sorted[first + p];
  __syncthreads();
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= inner) return;
  const T* from = gradient + static_cast<size_t>(blockIdx.z) * count * inner + i;
  Y* to = y + static_cast<size_t>(blockIdx.z) * size * inner + i;
  float* part = partial + static_cast<size_t>(blockIdx.z) * 2 * gridDim.x * inner + i;
  bool began_before = row[0] == row[1];
  float sum = 0;
  for (int start = 0; start < end - first; start += AT_ONCE) {
    const int filled = min(AT_ONCE, end - first - start);
    float held[AT_ONCE];
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      const bool is_there = j < filled;
      const size_t at = is_there ? place[start + j] : 0;
      held[j] = is_there ? static_cast<float>(from[at * inner]) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      if (j >= filled) break;
      sum += held[j];
      const int p = start + j;
      const long long own = row[p + 1];
      const bool goes_on = own == row[p + 2];
      if (goes_on && first + p + 1 < end) continue;
      if (began_before) {
        part[static_cast<size_t>(2 * blockIdx.x) * inner] = sum;
      } else if (goes_on) {
        part[static_cast<size_t>(2 * blockIdx.x + 1) * inner] = sum;
      } else if (own != skipped) {
        Y* at = to + static_cast<size_t>(own) * inner;
        *at = static_cast<Y>(static_cast<float>(*at) + sum);
      }
      began_before = false;
      sum = 0;
    }
  }
}

// A block looks at one chunk. If a row begins in it and goes on behind it, the block adds its sums.
template <typename Place, typename Y, int CHUNK>
__global__ void join_chunks(const Place* index, const int* sorted, const float* partial, Y* y,
                            int count, int inner, long long size, long long skipped) {
  const Chunk<Place> chunk{index, sorted, count};
  const int first = blockIdx.x * CHUNK, end = first + CHUNK;
  const long long row = chunk.row(end - 1);
  if (end >= count || row == skipped || row != chunk.row(end) || row == chunk.row(first - 1)) {
    return;
  }
  int last = blockIdx.x;  // the last chunk that has places of the row
  __shared__ int further;
  for (int found = blockDim.x; found == static_cast<int>(blockDim.x); last += found) {
    if (threadIdx.x == 0) further = 0;
    __syncthreads();
    const int start = (last + 1 + static_cast<int>(threadIdx.x)) * CHUNK;
    if (start < count && chunk.row(start) == row) atomicAdd(&further, 1);
    __syncthreads();
    found = further;
    __syncthreads();
  }
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= inner) return;
  const float* part = partial + static_cast<size_t>(blockIdx.z) * 2 * gridDim.x * inner + i;
  float sum = part[static_cast<size_t>(2 * blockIdx.x + 1) * inner];
#pragma unroll 8
  for (int c = blockIdx.x + 1; c <= last; ++c) sum += part[static_cast<size_t>(2 * c) * inner];
  Y* at = y + (static_cast<size_t>(blockIdx.z) * size + row) * inner + i;
  *at = static_cast<Y>(static_cast<float>(*at) + sum);
}

// y [outer, size, inner] as a whole, V columns a thread; the skipped row is zeros. The gradient's
// rows, which begin at multiples of V, and the indices may have gaps.
template <typename T, typename Place, typename Y, int V, int MOST>
__global__ void collect_rows(const T* gradient, const Place* index, Y* y, int count, int inner,
                             int size, long long skipped, long long outer_step,
                             long long place_step, long long index_step) {
  __shared__ Place rows[MOST];
  for (int k = threadIdx.x; k < count; k += blockDim.x) rows[k] = index[k * index_step];
  __syncthreads();
  const unsigned vectors = inner / V, at = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned row = at / vectors, i = at % vectors * V;
  if (row >= size) return;
  const T* const from = gradient + blockIdx.y * outer_step + i;
  float sum[V] = {};
  for (int k = 0; k < count && row != skipped; ++k) {
    if (rows[k] != static_cast<Place>(row)) continue;
    const auto more = load<V>(from + k * place_step);
#pragma unroll
    for (int j = 0; j < V; ++j) sum[j] += convert<float>(more.item[j]);
  }
  Vector<Y, V> values;
#pragma unroll
  for (int j = 0; j < V; ++j) values.item[j] = convert<Y>(sum[j]);
  store<V>(y + (static_cast<size_t>(blockIdx.y) * size + row) * inner + i, values);
}
