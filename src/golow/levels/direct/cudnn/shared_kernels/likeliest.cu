// The likeliest next token of each text, the first of equal ones, and what the next step reads: the
// token, where it stands in the text, and the position, which is one further.
//
// grid: (parts of the vocabulary, texts). The last block of a text to arrive chooses among the parts;
// the last text of all moves the position. logits: [texts, vocabulary]; text: [texts, longest].
constexpr int THREADS = 256;

struct Best { float logit; int token; };

// NaN is larger than all numbers, as in PyTorch.
__device__ inline bool beats(Best one, Best other) {
  const bool better = one.logit > other.logit || (one.logit != one.logit && other.logit == other.logit);
  const bool worse = other.logit > one.logit || (other.logit != other.logit && one.logit == one.logit);
  return better || (!worse && one.token < other.token);
}

// The best of a block's threads, in its first one.
__device__ inline Best best_of(Best own, Best* memory) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const Best other = {__shfl_xor_sync(0xffffffffu, own.logit, distance),
                        __shfl_xor_sync(0xffffffffu, own.token, distance)};
    if (beats(other, own)) own = other;
  }
  if (threadIdx.x % 32 == 0) memory[threadIdx.x / 32] = own;
  __syncthreads();
  for (int warp = 0; threadIdx.x == 0 && warp < THREADS / 32; ++warp)
    if (beats(memory[warp], own)) own = memory[warp];
  __syncthreads();
  return own;
}

// V: elements that a thread loads at once, which divides the vocabulary, or there is one text.
template <int V>
__global__ void likeliest(const float* logits, long long* token, long long* position, long long* text,
                          float* partial, unsigned* arrivals, int vocabulary, int longest) {
  __shared__ Best memory[THREADS / 32];
  const int parts = gridDim.x, row = blockIdx.y;
  const float* const own = logits + static_cast<size_t>(row) * vocabulary;
  Best best = {__int_as_float(0xff800000), vocabulary};
  for (int i = (blockIdx.x * THREADS + threadIdx.x) * V; i < vocabulary; i += parts * THREADS * V) {
    const Vector<float, V> some = load<V>(own, i, vocabulary);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const Best other = {some.item[v], i + v};
      if (i + v < vocabulary && beats(other, best)) best = other;
    }
  }
  best = best_of(best, memory);
  Best* const found = reinterpret_cast<Best*>(partial) + row * parts;
  if (threadIdx.x == 0) found[blockIdx.x] = best;
  if (!arrives_last(arrivals + 1 + row, parts)) return;
  best = {__int_as_float(0xff800000), vocabulary};
  for (int i = threadIdx.x; i < parts; i += THREADS)
    if (beats(found[i], best)) best = found[i];
  best = best_of(best, memory);
  const long long before = *position;
  if (threadIdx.x == 0) {
    token[row] = best.token;
    if (before + 1 < longest) text[row * static_cast<long long>(longest) + before + 1] = best.token;
  }
  if (arrives_last(arrivals, gridDim.y) && threadIdx.x == 0) *position = before + 1;
}
