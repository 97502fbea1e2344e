// What a plan reads of weights: arrays on the host, and how they are stored on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tensor_file.h"

namespace golow {

enum class Type { float32, bfloat16, float16, int64, int32, bool8, uint8 };

/// Elements in the device's memory: so many in all, with these strides from index to index, in
/// elements. What is between them is zero.
struct Storage {
  Type type;
  std::vector<std::int64_t> shape, strides;
  std::size_t elements;
  std::size_t bytes() const;
};

/// A row-major array. Its bytes are owned, or a file's.
class Array {
 public:
  Array(Type type, std::vector<std::int64_t> shape);
  /// Of a tensor of a file, which must live as long; 16-bit floats become float32, and complex numbers
  /// pairs.
  explicit Array(const StoredTensor& tensor);
  std::size_t elements() const;
  const char* data() const { return borrowed_ != nullptr ? borrowed_ : own_.data(); }
  char* data() { return own_.data(); }

  Type type;
  std::vector<std::int64_t> shape;

 private:
  const char* borrowed_ = nullptr;
  std::vector<char> own_;
};

/// The bytes of an array in a storage of as many elements; floats are rounded to the nearest, ties to
/// even.
std::vector<char> stored(const Array& array, const Storage& storage);
/// Inverts it; 16-bit floats become float32.
Array unstored(const std::vector<char>& bytes, const Storage& storage);

/// Where values come from while a plan is loaded.
class Sources {
 public:
  virtual ~Sources() = default;
  virtual const StoredTensor& weight(const char* name) const = 0;
  virtual const StoredTensor& constant(const char* name) const = 0;
  /// What a step of loading has written to a piece of the plan's memory.
  virtual Array made(int piece, std::int64_t offset, const Storage& storage) const = 0;
};

/// A value that is computed when it is first needed.
using Host = std::function<Array(const Sources&)>;

Host weight(const char* name);
Host constant(const char* name);
Host number(float value);
/// As in weight_arithmetic.h. An absent one is nullptr.
Host folded_weight(Host weight, Host scale, Host variance, double epsilon);
Host folded_bias(Host bias, Host scale, Host shift, Host mean, Host variance, double epsilon);
Host trimmed_weight(Host weight, std::pair<int, int> rows, std::pair<int, int> columns);
/// Along the first axis.
Host joined_weight(std::vector<Host> parts);

}  // namespace golow
