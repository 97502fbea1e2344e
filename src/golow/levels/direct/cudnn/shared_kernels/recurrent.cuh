// What both directions of a recurrent layer share: its cells, and how a block reads the words that the
// others send. After the tensor cores and `exchange.cuh`.

enum Cell { LSTM, GRU, TANH, RELU };
template <Cell CELL> constexpr int GATES = CELL == LSTM ? 4 : CELL == GRU ? 3 : 1;
// Numbers in a word, and words in the depth of one product. In a product, a lane has the words
// lane % 4 * 2 and the next one of a row or column: any order is right that both factors have.
template <typename T> constexpr int PER_WORD = 4 / sizeof(T);
constexpr int WORDS = 8;

// The word of these numbers, as products read it.
template <typename T> __device__ inline unsigned word_of(const T (&values)[PER_WORD<T>]) {
  unsigned word;
  memcpy(&word, values, 4);
  return rounded<T>(word);
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
        look_at_words(line + word + c * STRIDE, found[c][0], found[c][1]);
    complete = true;
#pragma unroll
    for (int c = 0; c < COUNT; ++c)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (word + c * STRIDE + half < end) complete &= number_of(found[c][half]) == number;
  } while (!complete);
#pragma unroll
  for (int c = 0; c < COUNT; ++c)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      b[c][half] = word + c * STRIDE + half < end ? bytes_of(found[c][half]) : 0;
}
