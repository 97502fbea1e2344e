// Dropout: y = x * mask / (1 - p), each element kept with probability 1 - p.
//
// The random bits are a pure function of seed, step, layer and element: Philox4x32-10 of Salmon,
// Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). Ten rounds of
// multiplying and mixing turn a counter (element / 4, step, layer) under a key (seed) into four
// words, one for each of four adjacent elements. So there is no state to keep or to order. A
// captured graph draws new numbers after a kernel of one thread has advanced the step.

struct Control {
  unsigned seed;
  unsigned step;
  float probability;
};

struct Words {
  unsigned item[4];
};

__device__ inline Words philox(Words counter, unsigned key_0, unsigned key_1) {
  for (int round = 0; round < 10; ++round) {
    const auto [a, b, c, d] = counter.item;
    counter = {{__umulhi(0xCD9E8D57u, c) ^ b ^ key_0, 0xCD9E8D57u * c,
                __umulhi(0xD2511F53u, a) ^ d ^ key_1, 0xD2511F53u * a}};
    key_0 += 0x9E3779B9u;
    key_1 += 0xBB67AE85u;
  }
  return counter;
}

// Converts a word to one of 2^24 evenly spaced floats in [0, 1).
__device__ inline float uniform(unsigned word) { return (word >> 8) * 0x1p-24f; }

// N is a multiple of 4.
template <typename T, int N>
__global__ void dropout(
    const T* x, const Control* control, T* y, bool* mask, size_t count, unsigned layer) {
  const Control state = *control;
  const float kept_share = 1.0f - state.probability;
  const float scale = kept_share > 0.0f ? 1.0f / kept_share : 0.0f;
  for (size_t i = first_index<N, size_t>(); i < count; i += step<N, size_t>()) {
    const auto values = load<N>(x, i, count);
    Vector<T, N> result;
    Vector<bool, N> kept;
#pragma unroll
    for (int quad = 0; quad < N / 4; ++quad) {
      const size_t place = i / 4 + quad;
      const Words counter = {
          {static_cast<unsigned>(place), static_cast<unsigned>(place >> 32), state.step, layer}};
      const Words words = philox(counter, state.seed, 0);
#pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        const int k = quad * 4 + lane;
        kept.item[k] = uniform(words.item[lane]) >= state.probability;
        const float value = static_cast<float>(values.item[k]);
        result.item[k] = static_cast<T>(value * (kept.item[k] ? scale : 0.0f));
      }
    }
    store(y, i, count, result);
    store(mask, i, count, kept);
  }
}

// The mask alone, by the same draws.
template <int N>
__global__ void dropout_mask(const Control* control, bool* mask, size_t count, unsigned layer) {
  const Control state = *control;
  for (size_t i = first_index<N, size_t>(); i < count; i += step<N, size_t>()) {
    Vector<bool, N> kept;
#pragma unroll
    for (int quad = 0; quad < N / 4; ++quad) {
      const size_t place = i / 4 + quad;
      const Words counter = {
          {static_cast<unsigned>(place), static_cast<unsigned>(place >> 32), state.step, layer}};
      const Words words = philox(counter, state.seed, 0);
#pragma unroll
      for (int lane = 0; lane < 4; ++lane)
        kept.item[quad * 4 + lane] = uniform(words.item[lane]) >= state.probability;
    }
    store(mask, i, count, kept);
  }
}

__global__ void advance(Control* control) { control->step += 1; }
