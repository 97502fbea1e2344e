// A memory-mapped safetensors file: only the parts of its tensors that are used are read.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include "safetensors.h"

namespace golow::safetensors {

class MappedFile {
 public:
  /// Throws Error, with the file's path, if it is damaged.
  explicit MappedFile(const std::string& path) : path_(path) {
    Opened opened = open(path);
    entries_ = std::move(opened.entries);
    data_ = static_cast<std::int64_t>(opened.file.tellg());
    size_ = data_ + (entries_.empty() ? 0 : entries_.back().end);
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat found {};
    // The file may have been replaced meanwhile; nothing may be mapped beyond the end of a file.
    if (file >= 0 && fstat(file, &found) == 0 && found.st_size == size_)
      memory_ = mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (memory_ == MAP_FAILED) throw Error(path + " cannot be mapped");
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() { munmap(memory_, static_cast<std::size_t>(size_)); }

  bool has(const std::string& name) const { return find(name) != nullptr; }

  /// The tensor on the file's own bytes; valid while this object lives.
  at::Tensor tensor(const std::string& name, at::ScalarType dtype, std::size_t dimensions) const {
    const Entry* const entry = find(name);
    if (entry == nullptr) throw Error(path_ + " has no tensor " + name);
    if (entry->dtype != dtype || entry->shape.size() != dimensions)
      throw Error(path_ + ": " + name + " is not " + c10::toString(dtype) + " of " +
                  std::to_string(dimensions) + " dimensions");
    const std::int64_t place = data_ + entry->begin;
    if (place % static_cast<std::int64_t>(c10::elementSize(dtype)) != 0)
      throw Error(path_ + ": " + name + " is not aligned for its dtype");
    return at::from_blob(static_cast<char*>(memory_) + place, entry->shape, dtype);
  }

  const std::string& path() const { return path_; }

 private:
  const Entry* find(const std::string& name) const {
    for (const Entry& entry : entries_)
      if (entry.name == name) return &entry;
    return nullptr;
  }

  std::string path_;
  std::vector<Entry> entries_;
  std::int64_t data_ = 0, size_ = 0;
  void* memory_ = MAP_FAILED;
};

}  // namespace golow::safetensors
