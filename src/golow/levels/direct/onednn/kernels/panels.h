// Products of panels: matrices whose rows are whole vectors. What stands before a kernel of attention.
#ifdef __AVX512F__
constexpr int LANES = 16, VECTORS = 4;
#else
constexpr int LANES = 8, VECTORS = 2;
#endif
constexpr int TILE = 6;       // rows of a product whose sums, with VECTORS each, stay in registers
constexpr long KEYS = 64;     // of attention, in a block
constexpr long WIDEST = 256;  // elements of a head's row

typedef float Lanes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int Places __attribute__((vector_size(4 * LANES)));
INLINE Lanes& at(float* x) { return *reinterpret_cast<Lanes*>(x); }
INLINE Lanes at(const float* x) { return *reinterpret_cast<const Lanes*>(x); }

// Turns rows into columns: halves of every size change places (J. O. Eklundh 1972, "A fast computer method
// for matrix transposing").
#ifdef __clang__
INLINE void turn(Lanes (&x)[LANES]) {
  for (int i = 0; i < LANES; i++)
    for (int j = 0; j < i; j++) {
      const float kept = x[i][j];
      x[i][j] = x[j][i];
      x[j][i] = kept;
    }
}
#else
template <int HALF>
INLINE void exchange(Lanes (&x)[LANES]) {
  Places low, high;
  for (int i = 0; i < LANES; i++) {
    low[i] = i & HALF ? LANES + i - HALF : i;
    high[i] = i & HALF ? LANES + i : i + HALF;
  }
  for (int i = 0; i < LANES; i++) {
    if (i & HALF) continue;
    const Lanes a = x[i], b = x[i + HALF];
    x[i] = __builtin_shuffle(a, b, low);
    x[i + HALF] = __builtin_shuffle(a, b, high);
  }
}
INLINE void turn(Lanes (&x)[LANES]) {
  exchange<1>(x), exchange<2>(x), exchange<4>(x);
  if constexpr (LANES == 16) exchange<8>(x);
}
#endif

struct Matrix {
  const float* first;
  long row, column;  // steps
};

// c (+)= a b for R rows of a and V vectors of each row of b and c, whose rows are ``wide`` apart.
template <int R, int V>
INLINE void tile(Matrix a, long inner, const float* b, float* c, long wide, bool adds) {
  Lanes sums[R][V];
  for (int i = 0; i < R; i++)
    for (int j = 0; j < V; j++) sums[i][j] = adds ? at(c + i * wide + j * LANES) : Lanes{};
  for (long n = 0; n < inner; n++) {
    Lanes right[V];
    for (int j = 0; j < V; j++) right[j] = at(b + n * wide + j * LANES);
    for (int i = 0; i < R; i++) {
      const float left = a.first[i * a.row + n * a.column];
      for (int j = 0; j < V; j++) sums[i][j] += left * right[j];
    }
  }
  for (int i = 0; i < R; i++)
    for (int j = 0; j < V; j++) at(c + i * wide + j * LANES) = sums[i][j];
}
template <int V>
static void product(Matrix a, long rows, long inner, const float* b, float* c, long wide, bool adds) {
  const auto move = [&](int count) { a.first += count * a.row, c += count * wide; };
  for (; rows >= TILE; rows -= TILE) tile<TILE, V>(a, inner, b, c, wide, adds), move(TILE);
  if (rows & 4) tile<4, V>(a, inner, b, c, wide, adds), move(4);
  if (rows & 2) tile<2, V>(a, inner, b, c, wide, adds), move(2);
  if (rows & 1) tile<1, V>(a, inner, b, c, wide, adds);
}


// Rows of ``size`` elements times a factor, as the columns of a panel; those behind the last one repeat the
// first.
template <int W>
static void read_columns(const float* rows, long step, long count, long size, float factor, float* panel) {
  for (int q = 0; q < W; q += LANES) {
    const auto row = [&](int i) { return rows + (q + i < count ? q + i : 0) * step; };
    long e = 0;
    for (; e + LANES <= size; e += LANES) {
      Lanes x[LANES];
      for (int i = 0; i < LANES; i++) x[i] = at(row(i) + e) * factor;
      turn(x);
      for (int i = 0; i < LANES; i++) at(panel + (e + i) * W + q) = x[i];
    }
    for (; e < size; e++)
      for (int i = 0; i < LANES; i++) panel[e * W + q + i] = row(i)[e] * factor;
  }
}
// The way back, each column times a factor of its own.
template <int W>
static void write_columns(const float* panel, const float* factor, float* rows, long step, long count, long size) {
  for (int q = 0; q < count; q += LANES) {
    const int some = count - q < LANES ? count - q : LANES;
    const Lanes share = at(factor + q);
    float* const y = rows + q * step;
    long d = 0;
    for (; d + LANES <= size; d += LANES) {
      Lanes x[LANES];
      for (int i = 0; i < LANES; i++) x[i] = at(panel + (d + i) * W + q) * share;
      turn(x);
      for (int i = 0; i < some; i++) at(y + i * step + d) = x[i];
    }
    for (; d < size; d++)
      for (int i = 0; i < some; i++) y[i * step + d] = panel[d * W + q + i] * share[i];
  }
}
