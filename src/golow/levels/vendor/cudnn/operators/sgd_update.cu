// The SGD update of all parameters, as one flat array.
//
//   m <- momentum * m + g + weight_decay * p        p <- p - rate * m
//
// as in PyTorch; m is zero before the first step. With loss scaling, for float16, the gradients are
// multiplied by `scale`. If one of them is not finite, the step is skipped and the scale is halved;
// after 2000 good steps in a row it is doubled (torch.amp.GradScaler). The decision stays on the
// device, so one CUDA graph covers both cases.

struct Scaler {
  float scale;
  int good_steps;
  int found;  // nonzero if a gradient is not finite
};

constexpr int GROWTH_INTERVAL = 2000;

// scaler: null if gradients are not scaled. copy: the parameters in another type, or null.
template <typename Gradient, typename Copy>
__global__ void sgd(
    const Gradient* gradient, float* parameter, float* momentum, const float* rate,
    const Scaler* scaler, Copy* copy, size_t count, float factor, float decay) {
  if (scaler != nullptr && scaler->found) return;
  const float learning_rate = *rate;
  const float unscale = scaler == nullptr ? 1.0f : 1.0f / scaler->scale;  // exact: a power of two
  for (size_t i = first_index<4, size_t>(); i < count; i += step<4, size_t>()) {
    const auto g = load<4>(gradient, i, count);
    auto p = load<4>(parameter, i, count);
    auto m = load<4>(momentum, i, count);
    Vector<Copy, 4> rounded;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float slope = static_cast<float>(g.item[k]) * unscale + decay * p.item[k];
      m.item[k] = factor * m.item[k] + slope;
      p.item[k] -= learning_rate * m.item[k];
      rounded.item[k] = static_cast<Copy>(p.item[k]);
    }
    store(parameter, i, count, p);
    store(momentum, i, count, m);
    if (copy != nullptr) store(copy, i, count, rounded);
  }
}

template <typename Gradient, int N>
__global__ void find_nonfinite(const Gradient* gradient, Scaler* scaler, size_t count) {
  bool found = false;
  for (size_t i = first_index<N, size_t>(); i < count; i += step<N, size_t>()) {
    const auto values = load<N>(gradient, i, count);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      found |= !(fabsf(static_cast<float>(values.item[k])) <= 3.402823466e38f);  // FLT_MAX
    }
  }
  if (found) scaler->found = 1;
}

__global__ void next_scale(Scaler* scaler) {
  if (scaler->found) {
    scaler->scale *= 0.5f;
    scaler->good_steps = 0;
  } else if (++scaler->good_steps == GROWTH_INTERVAL) {
    scaler->scale *= 2.0f;
    scaler->good_steps = 0;
  }
  scaler->found = 0;
}
