// The state of loss scaling, for float16: gradients are those of the loss times `scale`. A step that
// finds one that is not finite changes nothing (torch.amp.GradScaler). The decision stays on the
// device, so that one CUDA graph covers both cases.
struct Scaler {
  float scale;
  int good_steps;
  int found;  // nonzero if a gradient is not finite
};

__device__ __forceinline__ bool skips(const Scaler* scaler) {
  return scaler != nullptr && scaler->found;
}

// What gradients are multiplied by; exact, since scales are powers of two.
__device__ __forceinline__ float unscaling(const Scaler* scaler) {
  return scaler == nullptr ? 1.0f : 1.0f / scaler->scale;
}
