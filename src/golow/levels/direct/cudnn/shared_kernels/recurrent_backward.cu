// The gradients of one recurrent layer in all its directions, over all its time steps, from the last
// of each direction to the first. Blocks share the units, and all blocks run at once, as in
// recurrent.cu. What a step gives to the gradient of the state before it is a product of its gates'
// gradients, of all units, and the hidden weight: each block keeps the weight's columns of its own
// units in registers, and sends its units' gates' gradients to all blocks.
//
// Two steps' gradients have memory each, by turns: who sends those of a step has read all of the
// step before.

// Numbers of a unit in a line of words: its gates, and zeros that fill the last word.
template <typename T, Cell CELL>
constexpr int PLACES = (GATES<CELL> + PER_WORD<T> - 1) / PER_WORD<T> * PER_WORD<T>;

// A word of a column of the hidden weight [gates, units, units]: a row of it for each place.
template <typename T, Cell CELL>
__device__ inline unsigned word_of_column(const T* weight, int word, int unit, int units) {
  T values[PER_WORD<T>];
  for (int k = 0; k < PER_WORD<T>; ++k) {
    const int place = word * PER_WORD<T> + k;
    const int from = place / PLACES<T, CELL>, gate = place % PLACES<T, CELL>;
    const bool there = gate < GATES<CELL> && from < units && unit < units;
    const size_t row = static_cast<size_t>(gate) * units + from;
    values[k] = there ? weight[row * units + unit] : static_cast<T>(0.0f);
  }
  return word_of<T>(values);
}

// The gradients of what a unit's gates are functions of, from that of its state; what they give to
// the state before comes to them through the weight. beside: as in recurrent.cu, before: of an LSTM
// the cell before the step, of a GRU the state before it. gradient becomes what reaches the state
// before in another way, of_cell the gradient of the cell before. Of a GRU the last gate's is that
// of the input's part; returns that of the state's part.
template <Cell CELL>
__device__ inline float stepped_back(const float (&gate)[GATES<CELL>], float beside, float before,
                                     float& gradient, float& of_cell, float (&of)[GATES<CELL>]) {
  if constexpr (CELL == LSTM) {
    const float squashed = tanhf(beside);
    of_cell += gradient * gate[3] * (1.0f - squashed * squashed);
    of[0] = of_cell * gate[2] * gate[0] * (1.0f - gate[0]);
    of[1] = of_cell * before * gate[1] * (1.0f - gate[1]);
    of[2] = of_cell * gate[0] * (1.0f - gate[2] * gate[2]);
    of[3] = gradient * squashed * gate[3] * (1.0f - gate[3]);
    of_cell *= gate[1];
    gradient = 0.0f;
    return of[3];
  } else if constexpr (CELL == GRU) {
    of[2] = gradient * (1.0f - gate[1]) * (1.0f - gate[2] * gate[2]);
    of[1] = gradient * (before - gate[2]) * gate[1] * (1.0f - gate[1]);
    of[0] = of[2] * beside * gate[0] * (1.0f - gate[0]);
    gradient *= gate[1];
    return of[2] * gate[0];
  } else {
    of[0] = CELL == TANH ? gradient * (1.0f - gate[0] * gate[0]) : gate[0] > 0 ? gradient : 0.0f;
    gradient = 0.0f;
    return of[0];
  }
}

// 8 * TILES units of a block; each of WARPS has CHUNKS of the depth, of which it waits for GROUP at a
// time, and each thread ITEMS gradients of a row and unit. MANY: whether there are more than 8 rows.
//
// gradient: of y; y, gates and kept as recurrent.cu leaves them, a line for each row of a time step,
// y from `lead` elements behind its address on; the weight and first cell that it read; last_gradient: of the last cell. of_input and
// of_state: [lines, sides, gates, units], the second only of a GRU, of the others it is the same;
// of_first, of_first_cell: [sides, rows, units]. All but gates and kept are T. words: [sides, 2,
// rows, width]; number: that of the first gradients. What may be null: last_gradient, of_first,
// of_first_cell, and what the cell does not have.
template <typename T, Cell CELL, int TILES, int WARPS, int CHUNKS, int GROUP, int ITEMS,
          bool MANY>
__global__ void __launch_bounds__(32 * WARPS, 1)
recurrent_backward(const T* gradient, const float* gates, const float* kept, const T* y,
                   const T* weight, const T* first_cell, const T* last_gradient, T* of_input,
                   T* of_state, T* of_first, T* of_first_cell, Word* words, int steps, int rows,
                   int units, int width, int lead, unsigned number) {
  extern __shared__ float parts[];
  constexpr int G = GATES<CELL>, OWN = 8 * TILES, THREADS = 32 * WARPS;
  constexpr int UNIT_WORDS = PLACES<T, CELL> / PER_WORD<T>;
  const int side = blockIdx.y, sides = gridDim.y, first_unit = blockIdx.x * OWN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  unsigned b[CHUNKS][TILES][2];
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int word = (warp + c * WARPS) * WORDS + lane % 4 * 2 + half;
        const T* own = weight + static_cast<size_t>(side) * G * units * units;
        const int unit = first_unit + tile * 8 + lane / 4;
        b[c][tile][half] = word_of_column<T, CELL>(own, word, unit, units);
      }

  float through[ITEMS], of_cell[ITEMS];
#pragma unroll
  for (int p = 0; p < ITEMS; ++p) {
    const int row = (threadIdx.x + p * THREADS) / OWN;
    const int unit = first_unit + (threadIdx.x + p * THREADS) % OWN;
    const size_t place = (static_cast<size_t>(side) * rows + row) * units + unit;
    const bool there = last_gradient && row < rows && unit < units;
    of_cell[p] = there ? static_cast<float>(last_gradient[place]) : 0.0f;
    through[p] = 0.0f;
  }

  y += lead;
  words += static_cast<size_t>(side) * 2 * rows * width;
  for (int step = 0; step < steps + (of_first != nullptr); ++step) {
    const int time = side ? step : steps - 1 - step, time_before = side ? time + 1 : time - 1;
    float of_y[ITEMS], gate[ITEMS][G], beside[ITEMS] = {}, before[ITEMS] = {};
#pragma unroll
    for (int p = 0; p < ITEMS; ++p) {
      const int row = (threadIdx.x + p * THREADS) / OWN;
      const int unit = first_unit + (threadIdx.x + p * THREADS) % OWN;
      const bool there = step < steps && row < rows && unit < units;
      const ptrdiff_t line = (static_cast<ptrdiff_t>(time) * rows + row) * sides + side;
      const ptrdiff_t other = (static_cast<ptrdiff_t>(time_before) * rows + row) * sides + side;
      of_y[p] = there ? static_cast<float>(gradient[line * units + unit]) : 0.0f;
#pragma unroll
      for (int g = 0; g < G; ++g)
        gate[p][g] = there ? gates[(line * G + g) * units + unit] : 0.0f;
      if (CELL == LSTM || CELL == GRU) beside[p] = there ? kept[line * units + unit] : 0.0f;
      if (CELL == GRU) before[p] = there ? static_cast<float>(y[other * units + unit]) : 0.0f;
      if (CELL == LSTM) {
        const size_t place = (static_cast<size_t>(side) * rows + row) * units + unit;
        const bool inner = step + 1 < steps;
        before[p] = !there ? 0.0f : inner ? kept[other * units + unit]
                                          : static_cast<float>(first_cell[place]);
      }
    }

    float* part = parts + step % 2 * WARPS * rows * OWN;
    const Word* sent = words + (step + 1) % 2 * rows * width;
    for (int some = 0; step > 0 && some < rows; some += 16) {
      float sum[TILES][4] = {};
#pragma unroll
      for (int c = 0; c < CHUNKS; c += GROUP) {
        unsigned upper[GROUP][2], lower[GROUP][2] = {};
        const int word = (warp + c * WARPS) * WORDS + lane % 4 * 2, end = units * UNIT_WORDS;
        const int row = some + lane / 4;
        receive<GROUP, WARPS * WORDS>(sent + row * width, word, row < rows ? end : 0,
                                      number + step - 1, upper);
        if (MANY)
          receive<GROUP, WARPS * WORDS>(sent + (row + 8) * width, word, row + 8 < rows ? end : 0,
                                        number + step - 1, lower);
#pragma unroll
        for (int k = 0; k < GROUP && c + k < CHUNKS; ++k) {
          const unsigned a[4] = {upper[k][0], lower[k][0], upper[k][1], lower[k][1]};
#pragma unroll
          for (int tile = 0; tile < TILES; ++tile)
            multiply_add<T>(sum[tile], a, b[c + k][tile][0], b[c + k][tile][1]);
        }
      }
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = some + lane / 4 + i / 2 * 8;
          const int own = tile * 8 + lane % 4 * 2 + i % 2;
          if (row < rows) part[(warp * rows + row) * OWN + own] = sum[tile][i];
        }
    }
    __syncthreads();

#pragma unroll
    for (int p = 0; p < ITEMS; ++p) {
      const int row = (threadIdx.x + p * THREADS) / OWN, own = (threadIdx.x + p * THREADS) % OWN;
      const int unit = first_unit + own;
      if (row >= rows || unit >= units) continue;
      float of_hidden = of_y[p] + through[p];
      if (step > 0) {
#pragma unroll
        for (int w = 0; w < WARPS; ++w) of_hidden += part[(w * rows + row) * OWN + own];
      }
      if (step == steps) {
        const size_t place = (static_cast<size_t>(side) * rows + row) * units + unit;
        of_first[place] = static_cast<T>(of_hidden);
        continue;
      }
      float of[G];
      const float of_last =
          stepped_back<CELL>(gate[p], beside[p], before[p], of_hidden, of_cell[p], of);
      through[p] = of_hidden;
      T values[UNIT_WORDS][PER_WORD<T>];
#pragma unroll
      for (int g = 0; g < PLACES<T, CELL>; ++g)
        values[g / PER_WORD<T>][g % PER_WORD<T>] =
            static_cast<T>(g < G - 1 ? of[g] : g == G - 1 ? of_last : 0.0f);
      Word* line = words + (step % 2 * rows + row) * width + unit * UNIT_WORDS;
#pragma unroll
      for (int w = 0; w < UNIT_WORDS; ++w)
        send_word(line + w, word_of<T>(values[w]), number + step);
      const size_t first = (static_cast<size_t>(time) * rows + row) * sides + side;
#pragma unroll
      for (int g = 0; g < G; ++g) {
        const size_t place = (first * G + g) * units + unit;
        of_input[place] = static_cast<T>(of[g]);
        if (CELL == GRU) of_state[place] = values[g / PER_WORD<T>][g % PER_WORD<T>];
      }
    }
  }

#pragma unroll
  for (int p = 0; p < ITEMS; ++p) {
    const int row = (threadIdx.x + p * THREADS) / OWN;
    const int unit = first_unit + (threadIdx.x + p * THREADS) % OWN;
    const size_t place = (static_cast<size_t>(side) * rows + row) * units + unit;
    if (CELL == LSTM && of_first_cell && row < rows && unit < units)
      of_first_cell[place] = static_cast<T>(of_cell[p]);
  }
}
