// One layer of a recurrent network in all its directions, over all its time steps. Blocks share the
// units, and all blocks run at once. Each keeps its units' rows of the hidden weight in registers
// from the first step to the last. In a step it multiplies them by the state before, on tensor
// cores, adds what the input gives to the gates (a product over all steps before this kernel), and
// sends its units' new state to all blocks.
//
// The state before a step and the one after it have memory each, by turns: who sends the state after
// a step has read all of the one before, and so has everyone whose new state it then waits for.

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// The word of a line that begins with this unit; zeros beyond the line.
template <typename T> __device__ inline unsigned word_at(const T* line, int unit, int units) {
  T values[PER_WORD<T>];
  for (int k = 0; k < PER_WORD<T>; ++k)
    values[k] = unit + k < units ? line[unit + k] : static_cast<T>(0.0f);
  return word_of<T>(values);
}

// Sends a unit's state, with that of the next one if they share a word; all lanes of a warp do.
template <typename T>
__device__ inline void send(Word* line, float state, int unit, bool there, unsigned number) {
  const T own = static_cast<T>(state);
  const T next = static_cast<T>(__shfl_xor_sync(0xffffffffu, state, 1));
  T values[PER_WORD<T>];
  for (int k = 0; k < PER_WORD<T>; ++k) values[k] = k ? next : own;
  if (there && unit % PER_WORD<T> == 0)
    send_word(line + unit / PER_WORD<T>, word_of<T>(values), number);
}

// A unit's state after a step. x and h: what the input and the state before give to its gates, with
// their biases; x becomes the gates. beside: of an LSTM its cell, of a GRU what the state gives to
// the last gate.
template <Cell CELL>
__device__ inline float stepped(float (&x)[GATES<CELL>], const float (&h)[GATES<CELL>],
                                float before, float& beside) {
  if constexpr (CELL == LSTM) {
    for (int g = 0; g < 4; ++g) x[g] = g == 2 ? tanhf(x[g] + h[g]) : sigmoid(x[g] + h[g]);
    beside = x[1] * beside + x[0] * x[2];
    return x[3] * tanhf(beside);
  } else if constexpr (CELL == GRU) {
    for (int g = 0; g < 2; ++g) x[g] = sigmoid(x[g] + h[g]);
    beside = h[2];
    x[2] = tanhf(x[2] + x[0] * h[2]);
    return (1.0f - x[1]) * x[2] + x[1] * before;
  } else {
    x[0] = CELL == TANH ? tanhf(x[0] + h[0]) : fmaxf(x[0] + h[0], 0.0f);
    return x[0];
  }
}

// OWN units of a block in TILES of 16 rows, gate by gate; each of WARPS has CHUNKS of the depth, of
// which it waits for GROUP at a time, and each thread ITEMS states of a row and unit.
//
// inputs: [lines, sides, gates, units], y: [lines, sides, units]; a time step's rows are lines at
// step_lines, a row's steps at row_lines. weight: [sides, gates, units, units]; biases: [sides,
// gates, units] or absent; states: [sides, rows, units]; words: [sides, 2, rows, width]. number:
// that of the first state.
//
// With TRAINS it keeps what its gradients need: gates, which may be the memory of inputs, what is
// beside the state in `kept` [lines, sides, units], and the first states as those of a step before
// y's first and, of the other side, behind its last; y begins `lead` elements behind its address.
template <typename T, Cell CELL, int OWN, int TILES, int WARPS, int CHUNKS, int GROUP, int ITEMS,
          bool TRAINS>
__global__ void __launch_bounds__(32 * WARPS, 1)
recurrent(const float* inputs, const T* weight, const float* input_bias, const float* hidden_bias,
          const T* first, const T* first_cell, T* y, float* gates, float* kept, T* last,
          T* last_cell, Word* words, int steps, int rows, int units, int width, int step_lines,
          int row_lines, int lead, unsigned number) {
  extern __shared__ float parts[];
  constexpr int G = GATES<CELL>, ROWS = 16 * TILES, THREADS = 32 * WARPS;
  const int side = blockIdx.y, sides = gridDim.y, first_unit = blockIdx.x * OWN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  if (TRAINS) {  // the kernel before may have written the weight
    WAIT_FOR_KERNEL_BEFORE();
  }
  unsigned a[CHUNKS][TILES][4];
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = tile * 16 + lane / 4 + i % 2 * 8, unit = first_unit + row % OWN;
        const int word = (warp + c * WARPS) * WORDS + lane % 4 * 2 + i / 2;
        const size_t line = (static_cast<size_t>(side) * G + row / OWN) * units + unit;
        const bool there = row < G * OWN && unit < units;
        a[c][tile][i] = there ? word_at(weight + line * units, word * PER_WORD<T>, units) : 0;
      }
  if (!TRAINS) {
    WAIT_FOR_KERNEL_BEFORE();
  }

  float state[ITEMS], beside[ITEMS], bias[ITEMS][G], last_bias[ITEMS];
  y += lead;
  const int line_words = (units + PER_WORD<T> - 1) / PER_WORD<T>;
  words += static_cast<size_t>(side) * 2 * rows * width;
#pragma unroll
  for (int p = 0; p < ITEMS; ++p) {
    const int row = (threadIdx.x + p * THREADS) / OWN;
    const int unit = first_unit + (threadIdx.x + p * THREADS) % OWN;
    const bool there = row < rows && unit < units;
    const size_t place = (static_cast<size_t>(side) * rows + row) * units + unit;
    state[p] = there ? static_cast<float>(first[place]) : 0.0f;
    beside[p] = CELL == LSTM && there ? static_cast<float>(first_cell[place]) : 0.0f;
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
    const int line = (side ? steps : -1) * step_lines + row * row_lines;
    if (TRAINS && there) y[(line * sides + side) * units + unit] = first[place];
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
        const int word = (warp + c * WARPS) * WORDS + lane % 4 * 2;
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
        state[p] = stepped<CELL>(x[p], h, state[p], beside[p]);
      }
      const T stored = static_cast<T>(state[p]);
      state[p] = static_cast<float>(stored);
      if (step + 1 < steps) {
        Word* after = words + ((step + 1) % 2 * rows + row) * width;
        send<T>(after, state[p], unit, there, number + step + 1);
      }
      const size_t line = static_cast<size_t>(time) * step_lines + row * row_lines;
      const size_t place = (line * sides + side) * units + unit;
      if (there) y[place] = stored;
      if (TRAINS && there) {
        if (CELL == LSTM || CELL == GRU) kept[place] = beside[p];
#pragma unroll
        for (int g = 0; g < G; ++g) gates[((line * sides + side) * G + g) * units + unit] = x[p][g];
      }
    }
  }

#pragma unroll
  for (int p = 0; p < ITEMS; ++p) {
    const int row = (threadIdx.x + p * THREADS) / OWN;
    const int unit = first_unit + (threadIdx.x + p * THREADS) % OWN;
    const size_t place = (static_cast<size_t>(side) * rows + row) * units + unit;
    if (row >= rows || unit >= units) continue;
    if (last) last[place] = static_cast<T>(state[p]);
    if (CELL == LSTM && last_cell) last_cell[place] = static_cast<T>(beside[p]);
  }
}
