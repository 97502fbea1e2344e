// A few rows times a narrow weight, read once from end to end at the speed of memory: bf16, whole numbers of 8
// bits, or two of 4 bits in a byte, in groups with a scale each. A part is one output of every row.
typedef float Floats __attribute__((vector_size(64), aligned(4)));
typedef int Ints __attribute__((vector_size(64)));
constexpr long SOME = 16;    // numbers of a vector
constexpr long PIECE = 512;  // numbers whose sum is a chain of additions by itself
constexpr long AHEAD = 4096;  // bytes
// With conversions between its loads, a processor does not look far enough ahead by itself, and waits.
INLINE void fetch(const void* weight) { __builtin_prefetch(static_cast<const char*>(weight) + AHEAD); }

INLINE const Floats& at(const float* x) { return *reinterpret_cast<const Floats*>(x); }
#if defined(__AVX512F__) && !defined(__clang__)
// GCC makes several instructions of the conversions below, where the processor has one.
typedef char Chars __attribute__((vector_size(16)));
INLINE Chars loaded(const void* numbers) {
  Chars found;
  __builtin_memcpy(&found, numbers, sizeof found);
  return found;
}
INLINE Ints ints(const signed char* x) {
  return (Ints)__builtin_ia32_pmovsxbd512_mask(loaded(x), Ints{}, static_cast<unsigned short>(-1));
}
INLINE Ints ints(const unsigned char* x) {
  return (Ints)__builtin_ia32_pmovzxbd512_mask(loaded(x), Ints{}, static_cast<unsigned short>(-1));
}
typedef short Wide __attribute__((vector_size(32)));
INLINE Ints ints(const unsigned short* x) {
  Wide found;
  __builtin_memcpy(&found, x, sizeof found);
  return (Ints)__builtin_ia32_pmovzxwd512_mask(found, Ints{}, static_cast<unsigned short>(-1));
}
#else
typedef short Shorts __attribute__((vector_size(32)));
typedef signed char Bytes __attribute__((vector_size(16), aligned(1)));
typedef unsigned char Pairs __attribute__((vector_size(16), aligned(1)));
typedef unsigned short Halves __attribute__((vector_size(32), aligned(2)));
// In two steps: of one, GCC makes a conversion for each number.
INLINE Ints ints(const signed char* x) {
  return __builtin_convertvector(__builtin_convertvector(*reinterpret_cast<const Bytes*>(x), Shorts), Ints);
}
INLINE Ints ints(const unsigned char* x) {
  return __builtin_convertvector(__builtin_convertvector(*reinterpret_cast<const Pairs*>(x), Shorts), Ints);
}
INLINE Ints ints(const unsigned short* x) {
  return __builtin_convertvector(*reinterpret_cast<const Halves*>(x), Ints);
}
#endif
INLINE Floats floats(const Ints& x) { return __builtin_convertvector(x, Floats); }
INLINE Floats numbers(const signed char* x) { return floats(ints(x)); }
INLINE Floats numbers(const unsigned short* x) { return (Floats)(ints(x) << 16); }  // bf16 is half a float
INLINE float number(signed char x) { return x; }
INLINE float number(unsigned short x) { return widened(x); }
INLINE float total(const Floats& x) {
  float sums[16];
  __builtin_memcpy(sums, &x, sizeof sums);
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; i++) sums[i] += sums[i + half];
  return sums[0];
}

// sums[r] = x[r] . weight, for R rows of x that are ``inner`` apart.
template <int R, typename Number>
INLINE void of_numbers(const float* x, const Number* weight, long inner, float* sums) {
  Floats all[R] = {};
  long c = 0;
  const auto add = [&](Floats (&sum)[R]) {
    const Floats some = numbers(weight + c);
    for (int r = 0; r < R; r++) sum[r] += at(x + r * inner + c) * some;
    c += SOME;
  };
  while (c + SOME <= inner) {
    Floats some[R] = {}, others[R] = {};
    const long stop = c + PIECE < inner ? c + PIECE : inner;
    while (c + 2 * SOME <= stop) fetch(weight + c), add(some), add(others);
    if (c + SOME <= stop) add(some);
    for (int r = 0; r < R; r++) all[r] += some[r] + others[r];
  }
  for (int r = 0; r < R; r++) sums[r] = total(all[r]);
  for (; c < inner; c++)
    for (int r = 0; r < R; r++) sums[r] += x[r * inner + c] * number(weight[c]);
}

// The same of whole numbers of 4 bits: the low four bits are the first half of a group, the high ones the second.
template <int R>
INLINE void of_pairs(const float* x, const unsigned char* weight, const float* scale, long groups, long half,
                     float* sums) {
  const long inner = 2 * groups * half;
  Floats all[R] = {};
  float rest[R] = {};
  for (long g = 0; g < groups; g++, weight += half) {
    const float* const first = x + 2 * g * half;
    fetch(weight);
    Floats some[R][2] = {};
    long c = 0;
    for (; c + SOME <= half; c += SOME) {
      const Ints pairs = ints(weight + c);
      const Floats low = floats((pairs & 15) - 8), high = floats((pairs >> 4) - 8);
      for (int r = 0; r < R; r++) {
        some[r][0] += at(first + r * inner + c) * low;
        some[r][1] += at(first + r * inner + half + c) * high;
      }
    }
    for (int r = 0; r < R; r++) all[r] += (some[r][0] + some[r][1]) * scale[g];
    for (; c < half; c++) {
      const float low = (weight[c] & 15) - 8, high = (weight[c] >> 4) - 8;
      for (int r = 0; r < R; r++)
        rest[r] += (first[r * inner + c] * low + first[r * inner + half + c] * high) * scale[g];
    }
  }
  for (int r = 0; r < R; r++) sums[r] = total(all[r]) + rest[r];
}
