// The scale of the loss: it is halved after a gradient that is not finite, and doubled after 2000
// good steps in a row (torch.amp.GradScaler). Where `good_steps` is negative, it stays.

constexpr int GROWTH_INTERVAL = 2000;

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
  if (scaler->good_steps < 0) {
    // A scale of the caller's.
  } else if (scaler->found) {
    scaler->scale *= 0.5f;
    scaler->good_steps = 0;
  } else if (++scaler->good_steps == GROWTH_INTERVAL) {
    scaler->scale *= 2.0f;
    scaler->good_steps = 0;
  }
  scaler->found = 0;
}
