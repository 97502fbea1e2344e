// Tensor cores and the loads for them, one function for each instruction. Depth is counted in
// pieces of 16 bytes: 4 floats or 8 halves. One product takes two pieces of 16 rows and of 8
// columns. In bytes, its operands are distributed over the lanes of a warp in the same way for all
// types.

struct alignas(16) Piece { unsigned word[4]; };

__device__ inline unsigned in_shared(const Piece* piece) {
  return static_cast<unsigned>(__cvta_generic_to_shared(piece));
}

// Starts copying a piece into shared memory; copies zeros instead if it is not there.
__device__ inline void copy_piece(Piece* shared, const Piece* global, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(in_shared(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(there ? 16 : 0)
               : "memory");
}

// Closes the group of copies that this thread has started.
__device__ inline void close_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

// Waits until all groups of this thread are complete, except the latest OPEN ones.
template <int OPEN> __device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(OPEN) : "memory");
}

// Loads four matrices of 8 rows of one piece. Lane l passes the address of row l % 8 of matrix
// l / 8, and gets word l % 4 of row l / 4 of each matrix.
__device__ inline void load_matrices(unsigned (&matrix)[4], const Piece* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
               : "r"(in_shared(row))
               : "memory");
}

// The same for halves, transposed: in column l / 4 the lane gets rows l % 4 * 2 and the next.
__device__ inline void load_columns(unsigned (&matrix)[4], const Piece* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
               : "r"(in_shared(row))
               : "memory");
}

// The word as the product reads it: floats are rounded to tf32, ties away from zero.
template <typename T> __device__ inline unsigned rounded(unsigned word) { return word; }
template <> __device__ inline unsigned rounded<float>(unsigned word) {
  asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(word) : "f"(__uint_as_float(word)));
  return word;
}

#define TENSOR_CORE_PRODUCT(T, shape)                                                              \
  template <> __device__ inline void multiply_add<T>(float (&sum)[4], const unsigned (&a)[4],      \
                                                     unsigned b0, unsigned b1) {                   \
    asm("mma.sync.aligned." shape " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "                \
        "{%0, %1, %2, %3};\n"                                                                      \
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                                   \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                           \
  }

// sum += a b. a: matrices of rows 0 to 7 and 8 to 15 of the first piece, then of the second; b: the
// columns' matrix of the first piece, then of the second. Of sum, lane l holds columns l % 4 * 2
// and the next, in rows l / 4 and l / 4 + 8.
template <typename T>
__device__ void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
TENSOR_CORE_PRODUCT(float, "m16n8k8.row.col.f32.tf32.tf32.f32")
TENSOR_CORE_PRODUCT(__nv_bfloat16, "m16n8k16.row.col.f32.bf16.bf16.f32")
TENSOR_CORE_PRODUCT(__half, "m16n8k16.row.col.f32.f16.f16.f32")

// Two numbers as halves of one word, the first one in its lower half.
template <typename T> __device__ unsigned packed(float low, float high);
template <> __device__ inline unsigned packed<__nv_bfloat16>(float low, float high) {
  unsigned word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
template <> __device__ inline unsigned packed<__half>(float low, float high) {
  unsigned word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

// 2^x, to about 22 bits; zero instead of a subnormal number.
__device__ inline float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
}
