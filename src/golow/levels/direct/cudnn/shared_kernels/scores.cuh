// What all kernels of attention share: where operands lie, and what happens to scores. A warp has 16
// rows of scores in registers; of each eight columns, lane l has 2t and 2t + 1 in rows g and g + 8
// (t = l % 4, g = l / 4), as tensor cores give them. Scores are in units of log2.

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f
#define NUMBERS 1  // what is added, one by one or in pairs
#define PAIRS 2
#define LOWEST -1e30f
#define INFINITE __int_as_float(0x7f800000)

// Strides of [images, heads, rows, width] in elements. Rows themselves are contiguous.
#define PLACE(name) int name##_image, int name##_head, int name##_row
#define AT(name, image, head)                                                                      \
  (name + (size_t)(image) * name##_image + (size_t)(head) * name##_head)

// The sum, or the maximum, over the four lanes that have the same rows.
__device__ inline float sum_of_four(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ inline float maximum_of_four(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// What is added to a score. What is lower than LOWEST counts as LOWEST, so that a row of minus
// infinity has equal weights. By a truth value, a score is seen or not.
template <typename A>
__device__ inline float added_number(A stored) {
  const float number = convert<float>(stored);
  return number < LOWEST ? LOWEST : number;
}
template <>
__device__ inline float added_number<bool>(bool seen) {
  return seen ? 0.f : LOWEST;
}

// Whether a row whose largest score is this one sees nothing. By numbers, every row sees something.
template <typename A> struct Rows {
  __device__ static bool see_nothing(float) { return false; }
};
template <> struct Rows<bool> {
  __device__ static bool see_nothing(float largest) { return largest <= LOWEST; }
};

// Adds to scores of rows `row` and `row + 8` and of columns from `start`. IN_PAIRS: the number of
// columns is even, and pairs are aligned.
template <bool IN_PAIRS, int COLUMNS, typename A>
__device__ inline void add_to_scores(float (&score)[COLUMNS / 8][4], const A* added, int step,
                                     int row, int rows, int start, int columns) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const A* own = added + (size_t)min(row + 8 * half, rows - 1) * step;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; ++j) {
      const int column = start + 8 * j + 2 * t;
      Vector<A, 2> two = {};
      if (IN_PAIRS && column < columns) two = load<2>(own + column);
      if (!IN_PAIRS && column < columns) two.item[0] = own[column];
      if (!IN_PAIRS && column + 1 < columns) two.item[1] = own[column + 1];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        score[j][2 * half + k] =
            fmaf(added_number(two.item[k]), LOG2E, score[j][2 * half + k]);
      }
    }
  }
}

// Hides scores of columns that are not there, or that a row must not see.
template <bool CAUSAL, int COLUMNS>
__device__ inline void hide_scores(float (&score)[COLUMNS / 8][4], int row, int start,
                                   int columns) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < COLUMNS / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = start + 8 * j + 2 * t + i % 2;
      if (column >= columns || (CAUSAL && column > row + i / 2 * 8)) score[j][i] = -INFINITE;
    }
  }
}

// Turns scores of a tile into weights, relative to the largest score so far of rows `row` and
// `row + 8`. What was summed of earlier tiles, in o and total, becomes relative to it, too.
template <int KEYS, int D>
__device__ inline void weigh_scores(float (&score)[KEYS / 8][4], float (&o)[D / 8][4],
                                    float (&largest)[2], float (&total)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = largest[half];
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j)
      most = fmaxf(most, fmaxf(score[j][2 * half], score[j][2 * half + 1]));
    most = maximum_of_four(most);
    const float shrunk = power_of_two(largest[half] - most);
    largest[half] = most;
    total[half] *= shrunk;
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        score[j][2 * half + k] = power_of_two(score[j][2 * half + k] - most);
        total[half] += score[j][2 * half + k];
      }
    }
#pragma unroll
    for (int c = 0; c < D / 8; ++c) o[c][2 * half] *= shrunk, o[c][2 * half + 1] *= shrunk;
  }
}
