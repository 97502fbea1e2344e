// Words that blocks of one kernel send one another while all of them run: 4 bytes beside a number in
// one store, so that whoever reads the number it waits for has the bytes, too (as NCCL's protocol
// "LL" does). Nothing else orders them.

using Word = unsigned long long;

__device__ inline unsigned bytes_of(Word word) { return static_cast<unsigned>(word); }
__device__ inline unsigned number_of(Word word) { return static_cast<unsigned>(word >> 32); }

__device__ inline void send_word(Word* at, unsigned bytes, unsigned number) {
  const Word word = static_cast<Word>(number) << 32 | bytes;
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;\n" ::"l"(__cvta_generic_to_global(at)),
               "l"(word)
               : "memory");
}

// Loads two words, which lie at a multiple of 16 bytes, as they are now.
__device__ inline void look_at_words(const Word* at, Word& first, Word& second) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];\n"
               : "=l"(first), "=l"(second)
               : "l"(__cvta_generic_to_global(at))
               : "memory");
}

