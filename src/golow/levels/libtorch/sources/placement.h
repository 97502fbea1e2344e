// Where a program runs and in which precision.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include "program.h"

namespace golow {

/// The device of state and batches and, for inference in bf16 and fp16, the dtype of floating-point
/// tensors. In training these keep their dtype, and the casts are in the program.
struct Placement {
  at::Device device = at::kCPU;
  std::optional<at::ScalarType> half;
  std::string precision = "default";

  /// The tensor as it arrives: on the device, in its own dtype.
  Tensor moved(const Tensor& tensor) const { return tensor.to(device); }

  /// Host memory from which a GPU copies while the host continues; it is not reused before the copy
  /// is done.
  at::TensorOptions host(at::ScalarType dtype) const {
    return at::TensorOptions(dtype).pinned_memory(!device.is_cpu());
  }

  /// The tensor on the device; the copy is enqueued like other work. Undefined stays undefined.
  Tensor fed(const Tensor& tensor) const {
    if (!tensor.defined()) return tensor;
    return tensor.to(device, tensor.scalar_type(), /*non_blocking=*/true);
  }

  /// The tensor in the precision of the state; inputs are cast to it within the iteration.
  Tensor cast(const Tensor& tensor) const {
    return half && tensor.is_floating_point() ? tensor.to(*half) : tensor;
  }

  /// A copy for a file: on the CPU, and float32 if the precision made it half.
  Tensor stored(const Tensor& tensor) const {
    const bool widened = half && tensor.scalar_type() == *half;
    const auto dtype = widened ? at::kFloat : tensor.scalar_type();
    return tensor.to(tensor.options().device(at::kCPU).dtype(dtype), false, /*copy=*/true);
  }

  /// One step on the batch.
  void step(Program& program, const Batch& batch, Result& result) const {
    if (!half || program.casts_inputs) return program.step(batch, result);
    program.step(cast(batch), result);
  }

  /// The inputs of the batch in the precision of the state.
  Batch cast(const Batch& batch) const {
    Batch inputs;
    for (const Tensor& input : batch.inputs) inputs.inputs.push_back(cast(input));
    return inputs;
  }

  /// Initialise the device, and set the precision of its convolutions and matrix products.
  void take_effect() const {
    at::Context& context = at::globalContext();
    context.lazyInitDevice(device.type());
    if (device.is_cpu()) return;
    // PyTorch's defaults, read once before anything is set.
    static const bool convolutions = context.allowTF32CuDNN(), products = context.allowTF32CuBLAS();
    const bool told = precision == "ieee" || precision == "tf32";
    context.setAllowTF32CuDNN(told ? precision == "tf32" : convolutions);
    context.setAllowTF32CuBLAS(told ? precision == "tf32" : products);
  }
};

/// The placement with these names (golow.records.workload.Workload); throws if there is none.
inline Placement find_placement(const std::string& device, const std::string& precision) {
  Placement found;
  found.precision = precision;
  if (device == "cuda")
    found.device = at::Device(at::kCUDA, 0);
  else if (device != "cpu")
    throw std::invalid_argument("there is no device " + device);
  if (precision == "bf16")
    found.half = at::kBFloat16;
  else if (precision == "fp16")
    found.half = at::kHalf;
  else if (precision != "default" && precision != "ieee" && precision != "tf32")
    throw std::invalid_argument("there is no precision " + precision);
  return found;
}

}  // namespace golow
