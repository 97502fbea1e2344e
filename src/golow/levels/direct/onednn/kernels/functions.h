// What generated kernels call: the pool of threads, and functions of floats that a compiler can put
// into vectors. A kernel is compiled without headers, since parsing them would take most of its time.

#define fmodf __builtin_fmodf
#define powf __builtin_powf
#define fabsf __builtin_fabsf
#define floorf __builtin_floorf
#define ceilf __builtin_ceilf
#define rintf __builtin_rintf
#define truncf __builtin_truncf
#define expm1f __builtin_expm1f
#define exp2f __builtin_exp2f
#define logf __builtin_logf
#define log1pf __builtin_log1pf
#define log2f __builtin_log2f
#define log10f __builtin_log10f
#define sqrtf __builtin_sqrtf
#define sinf __builtin_sinf
#define cosf __builtin_cosf
#define tanf __builtin_tanf
#define atanf __builtin_atanf
#define atan2f __builtin_atan2f
#define sinhf __builtin_sinhf
#define coshf __builtin_coshf
#define expf vector_exp
#define tanhf vector_tanh
#define erff vector_erf
#define INLINE static inline __attribute__((always_inline))

INLINE float __int_as_float(int bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
INLINE int as_bits(float value) {
  int bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}
INLINE float widened(unsigned short bits) { return __int_as_float((int)((unsigned)bits << 16)); }
INLINE float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
INLINE float power_of_two(int n) { return __int_as_float((int)((unsigned)(n + 127) << 23)); }

// Cody and Waite's reduction to |r| <= log(2) / 2, where seven terms of the series leave 6e-9 (J.-M.
// Muller, Elementary Functions, chapters 3 and 11). At most 1.1 units in the last place off.
INLINE float exp_of_rest(float x, float whole) {
  const float rest = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
  float sum = 1.98412698e-4f;
  sum = sum * rest + 1.38888889e-3f;
  sum = sum * rest + 8.33333333e-3f;
  sum = sum * rest + 4.16666667e-2f;
  sum = sum * rest + 1.66666667e-1f;
  sum = sum * rest + 0.5f;
  return sum * (rest * rest) + rest + 1.0f;
}
constexpr float LOG2_E = 1.44269504088896341f;
// 2^n is multiplied in two steps, because it may be no normal number when the result is one, or still a
// denormal. What vanishes does not go that way: a product that underflows costs a hundred others.
INLINE float vector_exp(float x) {
  const bool nothing = x < -104.0f;
  const float bounded = nothing ? 0.0f : x > 89.0f ? 89.0f : x;
  const float whole = rintf(bounded * LOG2_E);
  const int n = (int)(x != x ? 0.0f : whole);
  const int half = n >> 1;
  const float result = exp_of_rest(bounded, whole) * power_of_two(half) * power_of_two(n - half);
  return nothing ? 0.0f : result;
}
// Of softmax, whose largest term is 1: x is not above 0, and a term below the smallest normal number is
// zero. PyTorch keeps such terms, but products that read them, from masks of -100, take five times as long.
INLINE float exp_of_term(float x) {
  const bool nothing = x < -87.3365f;
  const float bounded = nothing ? 0.0f : x;
  const float whole = rintf(bounded * LOG2_E);
  const float result = exp_of_rest(bounded, whole) * power_of_two((int)(x != x ? 0.0f : whole));
  return nothing ? 0.0f : result;
}

// Cephes' tanhf (https://www.netlib.org/cephes/): a polynomial near zero, elsewhere by exp. At most 1.4
// units in the last place off.
INLINE float vector_tanh(float x) {
  const float size = fabsf(x), square = x * x;
  float sum = -5.70498872745e-3f;
  sum = sum * square + 2.06390887954e-2f;
  sum = sum * square - 5.37397155531e-2f;
  sum = sum * square + 1.33314422036e-1f;
  sum = sum * square - 3.33332819422e-1f;
  const float small = sum * square * x + x;
  const float large = 1.0f - 2.0f / (vector_exp(size + size) + 1.0f);
  return __builtin_copysignf(size < 0.625f ? small : large, x);
}

// N. Juffa's erff (https://stackoverflow.com/a/35148199): x times a polynomial of x^2 near zero,
// elsewhere 1 - exp of a polynomial. At most 1.1 units in the last place off.
INLINE float vector_erf(float x) {
  const float size = fabsf(x), square = x * x;
  float far = -1.72853470e-5f * size + 3.83197126e-4f;
  far = far * square + (-3.88396438e-3f * size + 2.42546219e-2f);
  far = far * size - 1.06777877e-1f;
  far = far * size - 6.34846687e-1f;
  far = far * size - 1.28717512e-1f;
  far = 1.0f - vector_exp(far * size - size);
  float near = -5.96761703e-4f;
  near = near * square + 4.99119423e-3f;
  near = near * square - 2.67681349e-2f;
  near = near * square + 1.12819925e-1f;
  near = near * square - 3.76125336e-1f;
  near = near * square + 1.28379166e-1f;
  near = near * x + x;
  return size > 0.927734375f ? __builtin_copysignf(far, x) : x != x ? x : near;
}

// Division that rounds down, and what it leaves, which has the sign of the divisor.
INLINE float floor_mod(float a, float b) {
  const float rest = fmodf(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
INLINE long long floor_mod(long long a, long long b) {
  if (b == 0) return 0;  // an error in PyTorch; no trap here
  const long long rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
INLINE float floor_div(float a, float b) {
  const float whole = (a - floor_mod(a, b)) / b;
  return b == 0 ? a / b : rintf(whole);
}
INLINE long long floor_div(long long a, long long b) { return b == 0 ? 0 : (a - floor_mod(a, b)) / b; }
INLINE long long power(long long a, long long b) {
  long long result = 1;
  const bool negative = b < 0;
  for (; b > 0; b /= 2, a *= a) {
    if (b % 2) result *= a;
  }
  return negative ? 0 : result;
}

// oneDNN's own pool: the functions of the OpenMP library that it has loaded.
struct Pool {
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned);
  int (*thread)(void);
  int (*threads)(void);
};
using Body = void (*)(void* const*, const long*, long, long);
struct Work {
  Body body;
  void* const* pointers;
  const long* numbers;
  long count;
  const Pool* pool;
};
static void share(void* given) {
  const Work* work = static_cast<const Work*>(given);
  const long threads = work->pool->threads(), thread = work->pool->thread();
  const long begin = work->count * thread / threads, end = work->count * (thread + 1) / threads;
  if (begin < end) work->body(work->pointers, work->numbers, begin, end);
}
// Numbers of every kernel: how many parts it has, and whether they are worth more than one thread.
INLINE void run(Body body, void* const* pointers, const long* numbers, const Pool* pool) {
  if (!numbers[1]) return body(pointers, numbers, 0, numbers[0]);
  Work work = {body, pointers, numbers, numbers[0], pool};
  pool->parallel(share, &work, 0, 0);
}
