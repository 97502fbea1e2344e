// Reads and writes safetensors files (https://github.com/huggingface/safetensors): a header in JSON
// with type, shape and place of each tensor, and behind it their bytes, row-major.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace golow {

/// A tensor by its name. dtype: as the format has it, such as F32 or I64.
struct StoredTensor {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  const char* data = nullptr;
  std::size_t bytes = 0;
};

/// Bytes of an element; 0 for a type that the format does not have.
std::size_t element_bytes(std::string_view dtype);

/// Shapes in messages: 8x3x224x224.
std::string in_words(const std::vector<std::int64_t>& shape);

/// A file, mapped into memory while this object lives, or the same bytes elsewhere.
class TensorFile {
 public:
  /// Throws Failure, with the path, for a file that cannot be read or is damaged.
  explicit TensorFile(const std::string& path);
  /// Of bytes that must outlive it. name: for messages.
  TensorFile(const char* data, std::size_t size, const std::string& name);
  /// Of tensors whose data must outlive it.
  TensorFile(std::vector<StoredTensor> tensors, const std::string& name)
      : name_(name), tensors_(std::move(tensors)) {}
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;
  ~TensorFile();

  /// nullptr if there is none.
  const StoredTensor* find(std::string_view name) const;

  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::string& name() const { return name_; }

 private:
  void read(const char* data, std::size_t size);

  std::string name_;
  std::vector<StoredTensor> tensors_;
  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
};

/// Throws Failure if the file cannot be written.
void write_tensors(const std::string& path, const std::vector<StoredTensor>& tensors);

}  // namespace golow
