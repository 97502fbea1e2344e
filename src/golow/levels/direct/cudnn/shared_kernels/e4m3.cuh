// Numbers of e4m3: a sign, 4 bits of exponent and 3 of mantissa; the largest is 448, and a pattern
// of ones is NaN. Before kernels that name the type. From sm_89 on, one instruction converts to it.

struct E4m3 {
  unsigned char bits;
  E4m3() = default;

  // To the nearest number, of two equally near ones to the even one. What is too large becomes 448.
  __device__ explicit E4m3(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
    bits = static_cast<unsigned char>(pair);
#else
    const unsigned whole = __float_as_uint(value), sign = whole >> 24 & 0x80;
    unsigned size = whole & 0x7fffffff;
    if (size > 0x7f800000) {
      bits = sign | 0x7f;
    } else if (size < 0x3c800000) {  // below 2^-6 neighbours are 2^-9 apart
      bits = sign | static_cast<unsigned>(rintf(__uint_as_float(size) * 512.0f));
    } else {
      size = size < 0x43e00000 ? size : 0x43e00000;
      size += 0x7ffff + (size >> 20 & 1);
      bits = sign | ((size >> 20) - (120 << 3));  // the exponents' biases are 127 and 7
    }
#endif
  }

  __device__ operator float() const {
    const unsigned exponent = bits >> 3 & 15, mantissa = bits & 7;
    float size = mantissa * (1.0f / 512);
    if (exponent) size = __uint_as_float((exponent + 120) << 23 | mantissa << 20);
    if ((bits & 0x7f) == 0x7f) size = __uint_as_float(0x7fc00000);
    return bits & 0x80 ? -size : size;
  }
};
