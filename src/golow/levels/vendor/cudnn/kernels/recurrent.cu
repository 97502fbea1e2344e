// One layer of a recurrent network in all its directions, over all its time steps. Blocks share the
// units, and all blocks run at once. Each keeps its units' rows of the hidden weight in registers
// from the first step to the last. In a step it multiplies them by the state before, on tensor
// cores, adds what the input gives to the gates (a product over all steps before this kernel), and
// sends its units' new state to all blocks.
//
// The state before a step and the one after it have memory each, by turns: who sends the state after
// a step has read all of the one before, and so has everyone whose new state it then waits for.

enum Cell { LSTM, GRU, TANH, RELU };
template <Cell CELL> constexpr int GATES = CELL == LSTM ? 4 : CELL == GRU ? 3 : 1;
// Units in a word, and words in the depth of one product.
template <typename T> constexpr int PER_WORD = 4 / sizeof(T);
constexpr int WORDS = 8;

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// The word of a line that begins with this unit, as products read it; zeros beyond the line.
template <typename T> __device__ inline unsigned word_of(const T* line, int unit, int units) {
  T values[PER_WORD<T>];
  for (int k = 0; k < PER_WORD<T>; ++k)
    values[k] = unit + k < units ? line[unit + k] : static_cast<T>(0.0f);
  unsigned word;
  memcpy(&word, values, 4);
  return rounded<T>(word);
}

// Where a word lies: those of a lane in one product are neighbours.
__device__ inline int place_of(int word) {
  return word / WORDS * WORDS + word % 4 * 2 + word % WORDS / 4;
}

// Sends a unit's state, with that of the next one if they share a word; all lanes of a warp do.
template <typename T>
__device__ inline void send(Word* line, float state, int unit, bool there, unsigned number) {
  T values[2] = {static_cast<T>(state), static_cast<T>(__shfl_xor_sync(0xffffffffu, state, 1))};
  unsigned word;
  memcpy(&word, values, 4);
  if (there && unit % PER_WORD<T> == 0)
    send_word(line + place_of(unit / PER_WORD<T>), rounded<T>(word), number);
}

// Waits for the words of COUNT chunks, each STRIDE words behind the one before; zeros beyond the end.
template <int COUNT, int STRIDE>
__device__ inline void receive(const Word* line, int word, int end, unsigned number,
                               unsigned (&b)[COUNT][2]) {
  Word found[COUNT][2];
  bool complete;
  do {
#pragma unroll
    for (int c = 0; c < COUNT; ++c)
      if (word + c * STRIDE < end)
        look_at_words(line + place_of(word + c * STRIDE), found[c][0], found[c][1]);
    complete = true;
#pragma unroll
    for (int c = 0; c < COUNT; ++c)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (word + c * STRIDE + 4 * half < end) complete &= number_of(found[c][half]) == number;
  } while (!complete);
#pragma unroll
  for (int c = 0; c < COUNT; ++c)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      b[c][half] = word + c * STRIDE + 4 * half < end ? bytes_of(found[c][half]) : 0;
}

// A unit's state after a step. x and h: what the input and the state before give to its gates, with
// their biases; cell: of an LSTM.
template <Cell CELL>
__device__ inline float stepped(const float (&x)[GATES<CELL>], const float (&h)[GATES<CELL>],
                                float before, float& cell) {
  if constexpr (CELL == LSTM) {
    const float kept = sigmoid(x[1] + h[1]) * cell;
    cell = kept + sigmoid(x[0] + h[0]) * tanhf(x[2] + h[2]);
    return sigmoid(x[3] + h[3]) * tanhf(cell);
  } else if constexpr (CELL == GRU) {
    const float update = sigmoid(x[1] + h[1]);
    const float made = tanhf(x[2] + sigmoid(x[0] + h[0]) * h[2]);
    return (1.0f - update) * made + update * before;
  } else {
    return CELL == TANH ? tanhf(x[0] + h[0]) : fmaxf(x[0] + h[0], 0.0f);
  }
}

// OWN units of a block in TILES of 16 rows, gate by gate; each of WARPS has CHUNKS of the depth, of
// which it waits for GROUP at a time, and each thread ITEMS states of a row and unit.
//
// inputs: [lines, sides, gates, units], y: [lines, sides, units]; a time step's rows are lines at
// step_lines, a row's steps at row_lines. weight: [sides, gates, units, units]; biases: [sides,
// gates, units] or absent; states: [sides, rows, units]; words: [sides, 2, rows, width]. number:
// that of the first state.
template <typename T, Cell CELL, int OWN, int TILES, int WARPS, int CHUNKS, int GROUP, int ITEMS>
__global__ void __launch_bounds__(32 * WARPS, 1)
recurrent(const float* inputs, const T* weight, const float* input_bias, const float* hidden_bias,
          const T* first, const T* first_cell, T* y, T* last, T* last_cell, Word* words, int steps,
          int rows, int units, int width, int step_lines, int row_lines, unsigned number) {
  extern __shared__ float parts[];
  constexpr int G = GATES<CELL>, ROWS = 16 * TILES, THREADS = 32 * WARPS;
  const int side = blockIdx.y, sides = gridDim.y, first_unit = blockIdx.x * OWN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  unsigned a[CHUNKS][TILES][4];
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = tile * 16 + lane / 4 + i % 2 * 8, unit = first_unit + row % OWN;
        const int word = (warp + c * WARPS) * WORDS + i / 2 * 4 + lane % 4;
        const size_t line = (static_cast<size_t>(side) * G + row / OWN) * units + unit;
        const bool there = row < G * OWN && unit < units;
        a[c][tile][i] = there ? word_of(weight + line * units, word * PER_WORD<T>, units) : 0;
      }
  WAIT_FOR_KERNEL_BEFORE();

  float state[ITEMS], cell[ITEMS], bias[ITEMS][G], last_bias[ITEMS];
  const int line_words = (units + PER_WORD<T> - 1) / PER_WORD<T>;
  words += static_cast<size_t>(side) * 2 * rows * width;
#pragma unroll
  for (int p = 0; p < ITEMS; ++p) {
    const int row = (threadIdx.x + p * THREADS) / OWN;
    const int unit = first_unit + (threadIdx.x + p * THREADS) % OWN;
    const bool there = row < rows && unit < units;
    const size_t place = (static_cast<size_t>(side) * rows + row) * units + unit;
    state[p] = there ? static_cast<float>(first[place]) : 0.0f;
    cell[p] = CELL == LSTM && there ? static_cast<float>(first_cell[place]) : 0.0f;
#pragma unroll
    for (int g = 0; g < G; ++g) {
      const int gate = (side * G + g) * units + unit;
      const float of_state = there && hidden_bias ? hidden_bias[gate] : 0.0f;
      // The last gate of a GRU multiplies what the state gives.
      const bool apart = CELL == GRU && g == G - 1;
      bias[p][g] = (there && input_bias ? input_bias[gate] : 0.0f) + (apart ? 0.0f : of_state);
      if (g == G - 1) last_bias[p] = apart ? of_state : 0.0f;
    }
    send<T>(words + row * width, state[p], unit, there, number);
  }

  const int wide = (rows + 7) / 8 * 8;
  for (int step = 0; step < steps; ++step) {
    const int time = side ? steps - 1 - step : step;
    float x[ITEMS][G];
#pragma unroll
    for (int p = 0; p < ITEMS; ++p) {
      const int row = (threadIdx.x + p * THREADS) / OWN;
      const int unit = first_unit + (threadIdx.x + p * THREADS) % OWN;
      const size_t line = static_cast<size_t>(time) * step_lines + row * row_lines;
#pragma unroll
      for (int g = 0; g < G; ++g) {
        const size_t gate = ((line * sides + side) * G + g) * units + unit;
        x[p][g] = row < rows && unit < units ? inputs[gate] + bias[p][g] : 0.0f;
      }
    }

    float* part = parts + step % 2 * WARPS * ROWS * wide;
    const Word* before = words + step % 2 * rows * width;
    for (int some = 0; some < rows; some += 8) {
      const int row = some + lane / 4;
      const int end = row < rows ? line_words : 0;
      float sum[TILES][4] = {};
#pragma unroll
      for (int c = 0; c < CHUNKS; c += GROUP) {
        unsigned b[GROUP][2];
        const int word = (warp + c * WARPS) * WORDS + lane % 4;
        receive<GROUP, WARPS * WORDS>(before + row * width, word, end, number + step, b);
#pragma unroll
        for (int k = 0; k < GROUP && c + k < CHUNKS; ++k)
#pragma unroll
          for (int tile = 0; tile < TILES; ++tile)
            multiply_add<T>(sum[tile], a[c + k][tile], b[k][0], b[k][1]);
      }
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = warp * ROWS + tile * 16 + lane / 4 + i / 2 * 8;
          part[at * wide + some + lane % 4 * 2 + i % 2] = sum[tile][i];
        }
    }
    __syncthreads();

#pragma unroll
    for (int p = 0; p < ITEMS; ++p) {
      const int row = (threadIdx.x + p * THREADS) / OWN, own = (threadIdx.x + p * THREADS) % OWN;
      const int unit = first_unit + own;
      const bool there = row < rows && unit < units;
      float h[G] = {};
      if (there) {
#pragma unroll
        for (int g = 0; g < G; ++g)
#pragma unroll
          for (int w = 0; w < WARPS; ++w) h[g] += part[(w * ROWS + g * OWN + own) * wide + row];
        h[G - 1] += last_bias[p];
        state[p] = stepped<CELL>(x[p], h, state[p], cell[p]);
      }
      const T stored = static_cast<T>(state[p]);
      state[p] = static_cast<float>(stored);
      if (step + 1 < steps) {
        Word* after = words + ((step + 1) % 2 * rows + row) * width;
        send<T>(after, state[p], unit, there, number + step + 1);
      }
      const size_t line = static_cast<size_t>(time) * step_lines + row * row_lines;
      if (there) y[(line * sides + side) * units + unit] = stored;
    }
  }

#pragma unroll
  for (int p = 0; p < ITEMS; ++p) {
    const int row = (threadIdx.x + p * THREADS) / OWN;
    const int unit = first_unit + (threadIdx.x + p * THREADS) % OWN;
    const size_t place = (static_cast<size_t>(side) * rows + row) * units + unit;
    if (row >= rows || unit >= units) continue;
    if (last) last[place] = static_cast<T>(state[p]);
    if (CELL == LSTM && last_cell) last_cell[place] = static_cast<T>(cell[p]);
  }
}
