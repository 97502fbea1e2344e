// The interface of an emitted program: a network's state, and one straight-line step over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

// As in ATen/ScalarOps.h, whose other declarations would take half of a program's compile time.
namespace at::detail {
TORCH_API Tensor scalar_tensor_static(const Scalar& value, std::optional<ScalarType> dtype,
                                      std::optional<Device> device);
}

namespace golow {

using at::Tensor;

/// Tensor arguments that are not given: PyTorch's None.
constexpr std::nullopt_t none = std::nullopt;

/// A Python number for an operator that takes a tensor; it does not determine the result's dtype.
inline Tensor number(const at::Scalar& value) {
  Tensor tensor = at::detail::scalar_tensor_static(value, value.type(), at::kCPU);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

/// The tensors of one batch, by position.
struct Batch {
  std::vector<Tensor> inputs, targets;

  const Tensor& input(std::size_t index) const { return get(inputs, index, "input"); }
  const Tensor& target(std::size_t index) const { return get(targets, index, "target"); }

 private:
  static const Tensor& get(const std::vector<Tensor>& from, std::size_t index, const char* kind) {
    if (index < from.size()) return from[index];
    throw std::invalid_argument(std::string("the batch has no ") + kind + " " +
                                std::to_string(index));
  }
};

/// The results of a step besides the state: the model's outputs and, in training, the loss.
struct Result {
  std::vector<Tensor> outputs;
  Tensor loss;
};

/// The factor of the loss before the backward pass, so that gradients in float16 do not underflow.
struct LossScale {
  double value = 65536;
  std::int32_t good_steps = 0;  // since it last changed
};

class Program;

/// A tensor of the state dict that training may change, with the optimizer's data.
struct Parameter : Tensor {
  Parameter(Program& program, const char* name);
  std::string name;
  Tensor gradient;  // of the last step; undefined if there is none
  Tensor momentum, square;  // what the optimizer keeps; undefined before the first step
};

/// A tensor of the state dict that is not a parameter; `updated` if the step changes it.
enum BufferKind { fixed, updated };
struct Buffer : Tensor {
  Buffer(Program& program, const char* name, BufferKind kind = fixed);
  using Tensor::operator=;
  std::string name;
  BufferKind kind;
};

/// A tensor that the model's code created and that is not in the state dict.
struct Constant : Tensor {
  Constant(Program& program, const char* name);
  using Tensor::operator=;
  std::string name;
};

/// One operation of the step: the path of its layer, `forward` or `backward`, and its name.
struct Operation {
  const char *module, *phase, *name;
};

/// Is told when an operation of the step is done.
class OperationListener {
 public:
  virtual ~OperationListener() = default;
  virtual void passed(std::size_t operation) = 0;
};

/// A network that runs step by step. An emitted program derives from it, declares its state as
/// members, which register themselves here, and defines `step`.
class Program {
 public:
  explicit Program(bool trains, at::ScalarType products = at::kFloat)
      : trains(trains), products(products) {
    if (products == at::kHalf) loss_scale.emplace();
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  virtual ~Program() = default;

  /// One forward pass; in training also loss, gradients and buffers, but not the optimizer.
  virtual void step(const Batch& batch, Result& result) = 0;

  /// The operation before each mark of `step`, in order; empty for a step without marks.
  virtual std::vector<Operation> operations() const { return {}; }

  /// Why a step has no marks.
  virtual std::string indivisible() const { return "the program has no marks"; }

  /// The digest of the only workload that it runs, whose weights it contains; empty if it takes the
  /// weights of any that it fits.
  virtual std::string workload() const { return ""; }

  /// What the program holds beyond the members below is again as it was at the start.
  virtual void reset(at::Device) {}

  /// Record the step, whose batches are all like this one; whether the program does so. The
  /// recording runs the step.
  virtual bool record(const Batch&, at::Device) { return false; }

  /// Whom `mark` tells of each operation; nullptr while nobody wants to know.
  OperationListener* listener = nullptr;

  const bool trains;
  const at::ScalarType products;  // in training, the dtype of convolutions and matrix products
  std::optional<LossScale> loss_scale;  // if the step scales its loss
  double steps = 0;  // of an optimizer that counts them, such as Adam
  bool random_layers = true;  // false switches dropout off
  bool casts_inputs = false;  // `step` takes inputs of another dtype than the state's
  std::vector<Parameter*> parameters;
  std::vector<Buffer*> buffers;
  std::vector<Constant*> constants;

 protected:
  /// The operation with this index is done. Costs one comparison while nobody listens.
  void mark(std::size_t operation) {
    if (listener != nullptr) listener->passed(operation);
  }
  /// The gradient of the loss, from which the backward pass starts.
  double seed() const { return loss_scale ? loss_scale->value : 1.0; }
  /// Dropout's probability, or 0 while random layers are off.
  double probability(double p) const { return random_layers ? p : 0.0; }
  /// The factor in dropout's backward, or 1 while random layers are off.
  double dropout_scale(double scale) const { return random_layers ? scale : 1.0; }
};

inline Parameter::Parameter(Program& program, const char* name) : name(name) {
  program.parameters.push_back(this);
}
inline Buffer::Buffer(Program& program, const char* name, BufferKind kind)
    : name(name), kind(kind) {
  program.buffers.push_back(this);
}
inline Constant::Constant(Program& program, const char* name) : name(name) {
  program.constants.push_back(this);
}

/// The network of program.cpp, before its tensors are loaded.
std::unique_ptr<Program> make_program();

}  // namespace golow
