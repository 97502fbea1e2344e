// Sums over rows [rows, columns], for each column, in one launch and in a fixed order. Included after
// vectors.cuh.
//
// A block has lanes x walkers threads: a lane takes V adjacent columns, a walker some of the rows.
// A grid has `parts` such blocks for each tile of lanes * V columns, each with a part of the rows.
// With several parts, each block leaves its sums in memory, and the block that arrives last adds
// them, part by part. Which block that is does not change the result.

constexpr int AT_ONCE = 4;  // loads that a thread has under way

// Calls add(read(k)) for k = first, first + step, ... below last.
template <typename Read, typename Add>
__device__ void add_each(long long first, long long last, long long step, Read read, Add add) {
  for (long long k = first; k < last; k += AT_ONCE * step) {
    decltype(read(k)) values[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i)
      if (k + i * step < last) values[i] = read(k + i * step);
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i)
      if (k + i * step < last) add(values[i]);
  }
}

// Adds up rows [rows, width] in shared memory, four at a time; the first row has the sums. All
// threads of the block take part, after whatever they wrote there and before they read it.
__device__ inline void add_rows(float* values, int rows, int width) {
  const int threads = blockDim.x * blockDim.y;
  while (rows > 1) {
    const int left = (rows + 3) / 4, next = left * width, end = rows * width;
    __syncthreads();
    for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < next; i += threads) {
      float sum = values[i];
      for (int k = i + next; k < end; k += next) sum += values[k];
      values[i] = sum;
    }
    rows = left;
  }
  __syncthreads();
}

// Whether this block is the last of so many that arrive at a counter, which is then zero again, for
// the next launch. The last one sees what all of them wrote before.
__device__ inline bool arrives_last(unsigned* counter, unsigned blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    __threadfence();
    last = atomicAdd(counter, 1u) == blocks - 1;
    if (last) *counter = 0;
    __threadfence();
  }
  __syncthreads();
  return last;
}

// What a thread adds. grid: (outer * tiles, parts). column: the first of its V.
struct Share {
  long long outer, column, first, last;
};
template <int V>
__device__ Share share_of(long long rows, int tiles) {
  const long long tile = blockIdx.x % tiles;
  return {blockIdx.x / tiles, (tile * blockDim.x + threadIdx.x) * V,
          rows * blockIdx.y / gridDim.y, rows * (blockIdx.y + 1) / gridDim.y};
}

// SUMS sums for each column. read(row) returns what add(value, sums) adds to float sums[SUMS][V];
// write(sum, column, value) stores one of the results. Returns whether this block stored them.
// THREADS: at least those of a block.
// partial: [outer * tiles, parts, SUMS * lanes * V rounded up to vectors of four], any content;
// arrivals: a counter for each of the outer * tiles. Both are absent if there is one part.
template <int SUMS, int V, int THREADS, typename Read, typename Add, typename Write>
__device__ bool sum_over_rows(const Share& share, long long columns, float* partial,
                              unsigned* arrivals, Read read, Add add, Write write) {
  using Row = decltype(read(0LL));
  constexpr int EACH = SUMS * V > 4 ? SUMS * V : 4;
  __shared__ Vector<float, 4> memory[THREADS * EACH / 4];
  float* values = memory[0].item;
  const int lanes = blockDim.x, threads = lanes * blockDim.y, tile = lanes * V, width = SUMS * tile;
  const int self = threadIdx.y * lanes + threadIdx.x, parts = gridDim.y;
  float sums[SUMS][V] = {};
  if (share.column < columns) {
    add_each(share.first + threadIdx.y, share.last, blockDim.y, read,
             [&](const Row& row) { add(row, sums); });
  }
#pragma unroll
  for (int s = 0; s < SUMS; ++s) {
    Vector<float, V> held;
#pragma unroll
    for (int v = 0; v < V; ++v) held.item[v] = sums[s][v];
    store<V>(values + threadIdx.y * width + s * tile + threadIdx.x * V, held);
  }
  add_rows(values, blockDim.y, width);
  if (parts > 1) {
    const int vectors = (width + 3) / 4, at_once = threads / vectors;
    float* of_tile = partial + (size_t)blockIdx.x * parts * vectors * 4;
    for (int i = self; i < width; i += threads) of_tile[blockIdx.y * vectors * 4 + i] = values[i];
    if (!arrives_last(arrivals + blockIdx.x, parts)) return false;
    Vector<float, 4> total = {};
    if (self < at_once * vectors) {
      const float* first = of_tile + self % vectors * 4;
      add_each(self / vectors, parts, at_once,
               [=](long long part) { return load<4>(first + part * vectors * 4); },
               [&](const Vector<float, 4>& part) {
#pragma unroll
                 for (int v = 0; v < 4; ++v) total.item[v] += part.item[v];
               });
      memory[self] = total;
    }
    add_rows(values, at_once, vectors * 4);
  }
  const long long first = share.column - threadIdx.x * V;
  for (int i = self; i < width; i += threads) {
    const long long column = first + i % tile;
    if (column < columns) write(i / tile, column, values[i]);
  }
  return true;
}
