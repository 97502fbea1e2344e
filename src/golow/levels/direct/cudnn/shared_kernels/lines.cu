// Lines x [lines, length]: what is found along each of them. The order of every sum, and which of
// several equal elements is found, depend only on the shape.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename T>
__device__ inline float wide(T value) {
  return static_cast<float>(value);
}
__device__ inline long long wide(long long value) { return value; }
__device__ inline long long wide(int value) { return value; }
__device__ inline long long wide(unsigned char value) { return value; }
__device__ inline long long wide(bool value) { return value; }

struct Sum {
  template <typename C>
  __device__ static C of(C a, C b) { return a + b; }
};
struct Product {
  template <typename C>
  __device__ static C of(C a, C b) { return a * b; }
};
struct Largest {
  template <typename C>
  __device__ static C of(C a, C b) { return a > b || a != a ? a : b; }
};
struct Smallest {
  template <typename C>
  __device__ static C of(C a, C b) { return a < b || a != a ? a : b; }
};

// A block takes a line. Threads that have no element of their own do not take part. What they found
// is joined in halves.
template <typename T, typename C, typename Y, typename Function>
__global__ void fold(const T* x, Y* y, long long length) {
  __shared__ C found[256];
  const T* line = x + blockIdx.x * length;
  const int taking = length < blockDim.x ? static_cast<int>(length) : blockDim.x, own = threadIdx.x;
  if (own < taking) {
    C value = wide(line[own]);
    for (long long k = own + blockDim.x; k < length; k += blockDim.x) {
      value = Function::of(value, static_cast<C>(wide(line[k])));
    }
    found[own] = value;
  }
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (own < half && own + half < taking) found[own] = Function::of(found[own], found[own + half]);
  }
  if (own == 0) y[blockIdx.x] = static_cast<Y>(found[0]);
}

// The first place of the largest or smallest element.
template <typename T, typename C, bool SMALLEST>
__global__ void place(const T* x, long long* y, long long length) {
  __shared__ C values[256];
  __shared__ long long places[256];
  const T* line = x + blockIdx.x * length;
  const int taking = length < blockDim.x ? static_cast<int>(length) : blockDim.x, own = threadIdx.x;
  if (own < taking) {
    C best = wide(line[own]);
    long long where = own;
    for (long long k = own + blockDim.x; k < length; k += blockDim.x) {
      const C value = wide(line[k]);
      if (SMALLEST ? value < best : value > best) best = value, where = k;
    }
    values[own] = best, places[own] = where;
  }
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (own < half && own + half < taking) {
      const C best = values[own], value = values[own + half];
      const long long where = places[own + half];
      const bool better = SMALLEST ? value < best : value > best;
      if (better || (value == best && where < places[own])) values[own] = value, places[own] = where;
    }
  }
  if (own == 0) y[blockIdx.x] = places[0];
}

// Whether a comes before b in rising order; NaN is the largest, as in PyTorch.
template <typename C> __device__ inline bool is_less(C a, C b) {
  return a < b || (b != b && a == a);
}

// Each element's rank is the number of those of its line that come before it; equal ones keep their
// order. A warp has 32 elements of all lines, each in its own lane; PARTS warps, or one, look at a
// part of the line each.
template <typename T, typename C, bool DESCENDING, int PARTS>
__global__ void sort(const T* x, T* values, long long* places, long long count, long long length) {
  constexpr int ELEMENTS = 256 / PARTS;
  __shared__ long long ranks[256];
  const int own = threadIdx.x % ELEMENTS, part = threadIdx.x / ELEMENTS;
  const long long at = static_cast<long long>(blockIdx.x) * ELEMENTS + own;
  const long long first = at / length * length, i = at - first;
  const long long size = (length + PARTS - 1) / PARTS, last = size * (part + 1);
  long long rank = 0;
  if (at < count) {
    const C value = wide(x[at]);
    for (long long k = size * part; k < last && k < length; ++k) {
      const C other = wide(x[first + k]);
      const bool less = is_less(other, value), more = is_less(value, other);
      rank += (DESCENDING ? more : less) || (!less && !more && k < i);
    }
  }
  ranks[threadIdx.x] = rank;
  __syncthreads();
  if (part > 0 || at >= count) return;
  for (int other = 1; other < PARTS; ++other) rank += ranks[other * ELEMENTS + own];
  values[first + rank] = x[at];
  places[first + rank] = i;
}

// Running sums of x [outer, length, inner] along its middle axis; a thread takes a line.
template <typename T, typename C, typename Y>
__global__ void running_sums(const T* x, Y* y, long long lines, long long length,
                             long long inner) {
  const long long line = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (line >= lines) return;
  const long long start = line / inner * length * inner + line % inner;
  C sum = 0;
  for (long long k = 0; k < length; ++k) {
    sum += static_cast<C>(wide(x[start + k * inner]));
    y[start + k * inner] = static_cast<Y>(sum);
  }
}

// The same; a block takes a line, 256 elements at a time. Each warp sums its own 32 by doubling
// distances, then adds what is before them.
template <typename T, typename C, typename Y>
__global__ void running_sums_of_block(const T* x, Y* y, long long length, long long inner) {
  __shared__ C sums[8];
  const long long line = blockIdx.x, start = line / inner * length * inner + line % inner;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  C before = 0;
  for (long long base = 0; base < length; base += 256) {
    const long long k = base + threadIdx.x;
    C sum = k < length ? static_cast<C>(wide(x[start + k * inner])) : C(0);
    for (int distance = 1; distance < 32; distance *= 2) {
      const C other = __shfl_sync(0xffffffffu, sum, lane < distance ? lane : lane - distance);
      if (lane >= distance) sum += other;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    C own = before;
    for (int other = 0; other < 8; ++other) {
      if (other == warp) own = before;
      before += sums[other];
    }
    if (k < length) y[start + k * inner] = static_cast<Y>(own + sum);
    __syncthreads();
  }
}
