// The program of the level aotinductor:cudagraph. Unlike all others it is compiled with CUDA's
// headers, which PyTorch's own graph includes, and which Inductor needs for a GPU in any case.

#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "clock.h"
#include "replayed.h"

namespace golow {

/// Makes another stream the current one while it lives.
class OnStream {
 public:
  explicit OnStream(at::Device device)
      : guard_(device.type()),
        before_(guard_.exchangeStream(guard_.getStreamFromGlobalPool(device))) {}
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;
  ~OnStream() { guard_.exchangeStream(before_); }

 private:
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream before_;
};

class CudaGraph {
 public:
  template <typename Work>
  void record(at::Device device, const Work& work) {
    synchronize(device);
    {
      const OnStream side(device);
      for (int warmup = 0; warmup < kWarmUp; ++warmup) work();
      synchronize(device);
      graph_.capture_begin();
      work();
      graph_.capture_end();
    }
    synchronize(device);
  }

  void replay() { graph_.replay(); }

 private:
  static constexpr int kWarmUp = 3;  // as golow/levels/torch/graph.py
  at::cuda::CUDAGraph graph_;
};

std::unique_ptr<Program> make_program() { return std::make_unique<Replayed<CudaGraph>>(); }

}  // namespace golow
