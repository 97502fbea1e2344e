// Sixteen bytes of what is read once and not changed: the caches keep what others read again. The
// load stays where it is written, before or after a wait for the kernel before.

template <typename T, int N>
__device__ inline Vector<T, N> read_once(const T* base) {
  static_assert(sizeof(Vector<T, N>) == 16, "sixteen bytes");
  Vector<T, N> values;
  unsigned* const word = reinterpret_cast<unsigned*>(&values);
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "l"(base));
  return values;
}
