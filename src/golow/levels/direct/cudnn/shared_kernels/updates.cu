// The optimizers' updates of all parameters, as one flat array, as torch.optim defines them.
//
//   SGD      m <- first m + g               p <- p - rate m
//   NESTEROV m <- first m + g               p <- p - rate (g + first m)
//   ADAM     m <- first m + (1 - first) g   p <- p - rate by m / (sqrt(v) / root + epsilon)
//   RMSPROP  m <- first m + g / (sqrt(v) + epsilon)        p <- p - rate m
//
// where v <- second v + (1 - second) g^2, g has weight_decay p added, and by and root correct the
// running means, which begin at zero. In ADAMW, p shrinks by rate weight_decay p instead. PLAIN_
// RMSPROP has no m. Nothing changes in a step that `scaler` skips.

enum Rule { SGD, NESTEROV, ADAM, ADAMW, RMSPROP, PLAIN_RMSPROP };

struct Corrections {
  double by;
  float root;
};

// 1 - share would lose digits in float32, so the host computes it.
struct Share {
  float kept;
  float added;
};

template <Rule rule>
__device__ __forceinline__ float change(
    float slope, float& m, float& v, Share first, Share second, float epsilon, float root) {
  constexpr bool adam = rule == ADAM || rule == ADAMW;
  if (adam || rule == RMSPROP || rule == PLAIN_RMSPROP) {
    v = second.kept * v + second.added * slope * slope;
  }
  if (adam) {
    m = first.kept * m + first.added * slope;
    return m / (sqrtf(v) / root + epsilon);
  }
  const float term = rule == SGD || rule == NESTEROV ? slope : slope / (sqrtf(v) + epsilon);
  if (rule == PLAIN_RMSPROP) return term;
  m = first.kept * m + term;
  return rule == NESTEROV ? slope + first.kept * m : m;
}

// momentum, square: null if the rule has none. corrections: of Adam. clip: what the gradients are
// multiplied by, or null. scaler: null if gradients are not scaled. copy: the parameters in another
// type, or null.
template <Rule rule, typename Gradient, typename Copy>
__global__ void update(
    const Gradient* gradient, float* parameter, float* momentum, float* square, const float* rate,
    const Corrections* corrections, const float* clip, const Scaler* scaler, Copy* copy,
    size_t count, float kept, float added, float squares_kept, float squares_added, float epsilon,
    float decay) {
  if (skips(scaler)) return;
  const float learning_rate = *rate;
  const float moves = corrections == nullptr
      ? learning_rate : static_cast<float>(learning_rate * corrections->by);
  const float root = corrections == nullptr ? 1.0f : corrections->root;
  const float factor = unscaling(scaler) * (clip == nullptr ? 1.0f : *clip);
  for (size_t i = first_index<4, size_t>(); i < count; i += step<4, size_t>()) {
    const auto g = load<4>(gradient, i, count);
    auto p = load<4>(parameter, i, count);
    Vector<float, 4> m{}, v{};
    if (momentum != nullptr) m = load<4>(momentum, i, count);
    if (square != nullptr) v = load<4>(square, i, count);
    Vector<Copy, 4> rounded;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float slope = static_cast<float>(g.item[k]) * factor;
      if (rule == ADAMW) {
        p.item[k] *= 1.0f - learning_rate * decay;
      } else {
        slope += decay * p.item[k];
      }
      p.item[k] -= moves * change<rule>(slope, m.item[k], v.item[k], {kept, added},
                                        {squares_kept, squares_added}, epsilon, root);
      rounded.item[k] = static_cast<Copy>(p.item[k]);
    }
    store(parameter, i, count, p);
    if (momentum != nullptr) store(momentum, i, count, m);
    if (square != nullptr) store(square, i, count, v);
    if (copy != nullptr) store(copy, i, count, rounded);
  }
}

// One thread: the number of this step, and what it corrects.
__global__ void adam_step(
    const Scaler* scaler, float* steps, Corrections* corrections, double first, double second) {
  if (skips(scaler)) return;
  const float number = *steps + 1.0f;
  *steps = number;
  corrections->by = 1.0 / (1.0 - pow(first, static_cast<double>(number)));
  corrections->root = static_cast<float>(sqrt(1.0 - pow(second, static_cast<double>(number))));
}

constexpr int THREADS = 256;

template <typename Number>
__device__ Number block_sum(Number value) {
  __shared__ Number sums[THREADS];
  sums[threadIdx.x] = value;
  for (int half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  return sums[0];  // valid in the first thread
}

// Every block writes the sum of the squares of its part, zero if it has none.
template <typename Gradient, int N>
__global__ void squares(const Gradient* gradient, float* sums, size_t count) {
  float sum = 0.0f;
  for (size_t i = first_index<N, size_t>(); i < count; i += step<N, size_t>()) {
    const auto values = load<N>(gradient, i, count);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float value = static_cast<float>(values.item[k]);
      if (i + k < count) sum += value * value;
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// One block: norm over the norm of all gradients, at most 1 (torch.nn.utils.clip_grad_norm_).
__global__ void clip_factor(
    const float* sums, const Scaler* scaler, float* factor, int count, float norm, float smallest) {
  double sum = 0.0;
  for (int i = threadIdx.x; i < count; i += THREADS) sum += sums[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    const double found = sqrt(sum) * unscaling(scaler);
    *factor = static_cast<float>(fmin(1.0, norm / (found + smallest)));
  }
}
