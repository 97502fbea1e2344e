// What `exchange.cuh` has, on this processor, where each block is a thread.

using Word = unsigned long long;

inline unsigned bytes_of(Word word) { return static_cast<unsigned>(word); }
inline unsigned number_of(Word word) { return static_cast<unsigned>(word >> 32); }

inline void send_word(Word* at, unsigned bytes, unsigned number) {
  __atomic_store_n(at, static_cast<Word>(number) << 32 | bytes, __ATOMIC_RELAXED);
}

inline void look_at_words(const Word* at, Word& first, Word& second) {
  wait_for(OTHERS);
  first = __atomic_load_n(at, __ATOMIC_RELAXED);
  second = __atomic_load_n(at + 1, __ATOMIC_RELAXED);
}
