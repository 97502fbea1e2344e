// Dropout by the random numbers of NumPy's generator, PCG64: a linear congruential generator of 128 bits whose
// state is folded to 64 (M. E. O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
// Algorithms for Random Number Generation", 2014). Number k of a step can be computed without those before it,
// so threads start anywhere and draw what one thread would. A float takes half of an output, the lower one first.
typedef unsigned __int128 Wide;
constexpr Wide MULTIPLIER = static_cast<Wide>(2549297995355413924ul) << 64 | 4865540595714422341ul;
constexpr long PIECE = 1024;  // elements of a part; even
constexpr int LANES = 4;      // outputs that do not wait for one another
typedef int __attribute__((may_alias)) Half;

// The generator as it was at the seed, and how many floats were drawn since. `active`: 0 to drop nothing.
struct Generator {
  unsigned long state[2], increment[2];  // upper half, lower half
  unsigned long drawn, active;
};
INLINE Wide wide(const unsigned long* halves) { return static_cast<Wide>(halves[0]) << 64 | halves[1]; }

// Some steps of the generator at once: state * factor + term.
struct Steps {
  Wide factor, term;
};
INLINE Wide after(Steps steps, Wide state) { return state * steps.factor + steps.term; }
INLINE Steps steps_of(unsigned long count, Wide increment) {
  Steps total = {1, 0}, power = {MULTIPLIER, increment};
  for (; count; count >>= 1) {
    if (count & 1) total = {total.factor * power.factor, after(power, total.term)};
    power = {power.factor * power.factor, after(power, power.term)};
  }
  return total;
}
INLINE unsigned long folded(Wide state) {
  const unsigned long both = static_cast<unsigned long>(state >> 64) ^ static_cast<unsigned long>(state);
  const int turn = static_cast<int>(state >> 122);
  return both >> turn | both << (-turn & 63);
}

INLINE void keep_all(const float* x, float* y, unsigned char* mask, long begin, long end) {
  for (long k = begin; k < end; k++) y[k] = x[k], mask[k] = 1;
}
static void body(void* const* pointers, const long* n, long begin, long end) {
  const long count = n[2];
  const int limit = static_cast<int>(n[3]);
  const float* const x = static_cast<float*>(pointers[0]);
  float* const y = static_cast<float*>(pointers[1]);
  unsigned char* const mask = static_cast<unsigned char*>(pointers[2]);
  const Generator* const generator = static_cast<Generator*>(pointers[3]);
  const long last = end * PIECE < count ? end * PIECE : count;
  if (!generator->active) return keep_all(x, y, mask, begin * PIECE, last);
  const float factor = __int_as_float(static_cast<int>(n[4]));
  const Wide increment = wide(generator->increment);
  const unsigned long first = generator->drawn + begin * PIECE, odd = first & 1;
  const Steps one = steps_of(1, increment), all = steps_of(LANES, increment);
  Wide state = after(steps_of(first / 2 + 1, increment), wide(generator->state)), lanes[LANES];
  unsigned long outputs[PIECE / 2 + 1];
  const Half* const halves = reinterpret_cast<Half*>(outputs) + odd;
  outputs[0] = folded(state);
  for (int lane = 0; lane < LANES; lane++) lanes[lane] = state = after(one, state);
  for (long start = begin * PIECE; start < last; start += PIECE) {
    for (long k = 1; k <= PIECE / 2; k += LANES) {
      for (int lane = 0; lane < LANES; lane++) {
        outputs[k + lane] = folded(lanes[lane]);
        lanes[lane] = after(all, lanes[lane]);
      }
    }
    const long size = last - start < PIECE ? last - start : PIECE;
    #pragma omp simd
    for (long k = 0; k < size; k++) {
      const int kept = static_cast<int>(static_cast<unsigned>(halves[k]) >> 8) >= limit;
      y[start + k] = x[start + k] * (factor * static_cast<float>(kept));
      mask[start + k] = static_cast<unsigned char>(kept);
    }
    outputs[0] = outputs[PIECE / 2];  // where the piece begins with an upper half, the next begins with this one's
  }
}
