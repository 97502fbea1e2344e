// What kernels over rows [rows, columns] share: a block takes one row, or all of them. The order of
// every sum depends only on the shape. Included after columns.cuh.

struct Sum {
  template <typename Value>
  __device__ Value operator()(Value a, Value b) const { return a + b; }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Combines the values of all threads; every thread gets the result.
template <int THREADS, typename Combine, typename Value>
__device__ Value reduce(Value value, Combine combine) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffff, value, offset));
  }
  if constexpr (THREADS > 32) {
    __shared__ Value of_warp[THREADS / 32];
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) value = combine(value, of_warp[warp]);
    __syncthreads();
  }
  return value;
}

// The maximum of a row and the sum of exp(x - maximum).
template <int THREADS, typename T>
__device__ void normalise(const T* x, int columns, float& largest, float& sum) {
  largest = __int_as_float(0xff800000);  // minus infinity
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    largest = fmaxf(largest, static_cast<float>(x[i]));
  }
  largest = reduce<THREADS>(largest, Larger());
  sum = 0;
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    sum += expf(static_cast<float>(x[i]) - largest);
  }
  sum = reduce<THREADS>(sum, Sum());
}

// A row that LANES threads of a warp hold in registers, ITEMS vectors of V columns each. A block has
// several such groups. What is beyond the end of a row is zero.
template <int V, int LANES, int ITEMS>
struct Held {
  float item[ITEMS][V];

  // The group's row; the last row once more where there is none, so that the warp stays together.
  __device__ static int row(int rows) {
    const int mine = blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
    return mine < rows ? mine : rows - 1;
  }

  // Calls visit(k, column) for each vector inside the row.
  template <typename Visit>
  __device__ static void each(int columns, Visit visit) {
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
      const int column = (k * LANES + threadIdx.x % LANES) * V;
      if (column < columns) visit(k, column);
    }
  }

  template <typename T>
  __device__ void read(const T* line, int columns) {
#pragma unroll
    for (int k = 0; k < ITEMS; ++k)
#pragma unroll
      for (int v = 0; v < V; ++v) item[k][v] = 0.0f;
    each(columns, [&](int k, int column) {
      const Vector<T, V> values = load<V>(line + column);
#pragma unroll
      for (int v = 0; v < V; ++v) item[k][v] = static_cast<float>(values.item[v]);
    });
  }

  template <typename Y>
  __device__ void write(Y* line, int columns) const {
    each(columns, [&](int k, int column) {
      Vector<Y, V> values;
#pragma unroll
      for (int v = 0; v < V; ++v) values.item[v] = static_cast<Y>(item[k][v]);
      store<V>(line + column, values);
    });
  }

  // Replaces each value inside the row by function(value, k, v, column).
  template <typename Function>
  __device__ void apply(int columns, Function function) {
    each(columns, [&](int k, int column) {
#pragma unroll
      for (int v = 0; v < V; ++v) item[k][v] = function(item[k][v], k, v, column + v);
    });
  }

  // Combines function(value, k, v) of all values; every thread of the group gets the result.
  template <typename Combine, typename Function>
  __device__ float combined(int columns, float start, Combine combine, Function function) const {
    float total = start;
    each(columns, [&](int k, int) {
#pragma unroll
      for (int v = 0; v < V; ++v) total = combine(total, function(item[k][v], k, v));
    });
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2)
      total = combine(total, __shfl_xor_sync(0xffffffff, total, offset));
    return total;
  }
};

constexpr int GROUPED_THREADS = 128;  // of a block whose groups hold rows

// The rows that a group takes one after the other: visit(row, is_new), where all groups of a warp take
// equally many, the last row once more where there is none left.
template <int LANES, typename Visit>
__device__ void each_row(int rows, Visit visit) {
  constexpr int GROUPS = GROUPED_THREADS / LANES;
  const int group = threadIdx.x / LANES;
  for (long long first = static_cast<long long>(blockIdx.x) * GROUPS; first < rows;
       first += static_cast<long long>(gridDim.x) * GROUPS) {
    const bool is_new = first + group < rows;
    visit(is_new ? static_cast<int>(first) + group : rows - 1, is_new);
  }
}

// Writes the sums [columns] of what the groups of a block hold.
template <int V, int LANES, int ITEMS>
__device__ void write_sums(const Held<V, LANES, ITEMS>& held, float* sums, int columns) {
  __shared__ Vector<float, 4> memory[GROUPED_THREADS * ITEMS * V / 4];
  float* values = memory[0].item;
  __syncthreads();  // of an earlier call
  held.write(values + threadIdx.x / LANES * columns, columns);
  add_rows(values, GROUPED_THREADS / LANES, columns);
  for (int i = threadIdx.x; i < columns; i += GROUPED_THREADS) sums[i] = values[i];
}
