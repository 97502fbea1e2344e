// What `tensor_cores.cuh` has, on this processor: the lanes of a warp exchange what they hold, as
// the instructions distribute it. https://docs.nvidia.com/cuda/parallel-thread-execution (mma,
// ldmatrix).

struct alignas(16) Piece { unsigned word[4]; };

inline void copy_piece(Piece* shared, const Piece* global, bool there) {
  *shared = there ? *global : Piece{};
}
inline void close_copies() {}
template <int OPEN> inline void wait_for_copies() {}

// What all lanes of the thread's warp pass, until the function has used it.
template <typename Given, typename Use> inline void together(const Given& mine, Use use) {
  static BLOCK_LOCAL Given given[1024];
  given[running] = mine;
  wait_for(WARP);
  use(given + running / 32 * 32);
  wait_for(WARP);
}

inline void load_matrices(unsigned (&matrix)[4], const Piece* row) {
  const unsigned lane = running % 32;
  together(row, [&](const Piece* const* rows) {
    for (int m = 0; m < 4; ++m) matrix[m] = rows[8 * m + lane / 4]->word[lane % 4];
  });
}

inline unsigned half_of(const unsigned* words, int index) {
  return words[index / 2] >> index % 2 * 16 & 0xffff;
}
inline void load_columns(unsigned (&matrix)[4], const Piece* row) {
  const unsigned lane = running % 32;
  together(row, [&](const Piece* const* rows) {
    for (int m = 0; m < 4; ++m) {
      const auto* pair = rows + 8 * m + lane % 4 * 2;
      matrix[m] = half_of(pair[0]->word, lane / 4) | half_of(pair[1]->word, lane / 4) << 16;
    }
  });
}

template <typename T> inline unsigned rounded(unsigned word) { return word; }
template <> inline unsigned rounded<float>(unsigned word) { return (word + 0x1000) & ~0x1fffu; }

// The number at an index of the words' bytes.
template <typename T> inline float number(const unsigned* words, int index) {
  T found;
  memcpy(&found, reinterpret_cast<const char*>(words) + index * sizeof(T), sizeof(T));
  return static_cast<float>(found);
}

struct Operands { unsigned a[4], b[2]; };

template <typename T>
inline void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  constexpr int PER = 4 / sizeof(T), HALF = 4 * PER;  // numbers in a word; in half of the depth
  const int lane = running % 32;
  together(Operands{{a[0], a[1], a[2], a[3]}, {b0, b1}}, [&](const Operands* of) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      for (int k = 0; k < 2 * HALF; ++k) {
        const int word = k % HALF / PER, place = k % PER, second = k / HALF;
        sum[i] += number<T>(of[row % 8 * 4 + word].a + row / 8 + 2 * second, place) *
                  number<T>(of[column * 4 + word].b + second, place);
      }
    }
  });
}

template <typename T> inline unsigned packed(float low, float high) {
  const T two[2] = {static_cast<T>(low), static_cast<T>(high)};
  unsigned word;
  memcpy(&word, two, sizeof(word));
  return word;
}

inline float power_of_two(float x) { return exp2f(x); }
