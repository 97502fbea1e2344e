// The input of an epoch: a prepared part of a data set, mapped into memory, and the order of its
// rows. Batches are gathered on the host and sent to the device without waiting for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>

#include "checksum.h"
#include "mapped_file.h"
#include "placement.h"

namespace golow {

using Rows = at::ArrayRef<std::int64_t>;

inline std::string shape_text(at::IntArrayRef shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

/// Samples on the host, in memory from which they are sent to a device: uint8 pixels [n, channels,
/// height, width] and int64 labels [n], or of a text int64 tokens and labels [n, sequence].
struct Samples {
  Tensor pixels, labels;

  std::uint32_t checksum(std::uint32_t before) const {
    const std::uint32_t pixels_too = crc32(before, pixels.const_data_ptr(), pixels.nbytes());
    return crc32(pixels_too, labels.const_data_ptr(), labels.nbytes());
  }
};

/// A prepared part of a data set: uint8 `images` [rows, channels, height, width] and int64 `labels`
/// [rows], or of a text int64 `tokens` and `labels` [rows, sequence].
class Data {
 public:
  explicit Data(const std::string& path)
      : file_(path), images_(file_.has("tokens") ? file_.tensor("tokens", at::kLong, 2)
                                                 : file_.tensor("images", at::kByte, 4)),
        labels_(file_.tensor("labels", at::kLong, file_.has("tokens") ? 2 : 1)) {
    if (images_.size(0) != labels_.size(0))
      throw std::runtime_error(path + " has " + std::to_string(images_.size(0)) + " images and " +
                               std::to_string(labels_.size(0)) + " labels");
  }

  std::int64_t rows() const { return images_.size(0); }
  /// Of images; 0 of a text, whose tokens are inputs as they are.
  std::int64_t channels() const { return images_.dim() == 4 ? images_.size(1) : 0; }
  const std::string& path() const { return file_.path(); }

  /// Throws unless samples have that shape.
  void require_sample(at::IntArrayRef shape) const {
    const at::IntArrayRef found = images_.sizes().slice(1);
    if (found != shape)
      throw std::runtime_error(path() + " has samples of " + shape_text(found) +
                               ", the workload takes " + shape_text(shape));
  }

  /// The samples of these rows, which must exist.
  Samples gather(Rows rows, const Placement& placement) const {
    return {gathered(images_, rows, placement), gathered(labels_, rows, placement)};
  }

 private:
  static Tensor gathered(const Tensor& from, Rows rows, const Placement& placement) {
    std::vector<std::int64_t> shape = from.sizes().vec();
    shape[0] = static_cast<std::int64_t>(rows.size());
    const Tensor into = at::empty(shape, placement.host(from.scalar_type()));
    const std::size_t bytes = rows.empty() ? 0 : into.nbytes() / rows.size();
    const auto* const source = static_cast<const char*>(from.const_data_ptr());
    auto* target = static_cast<char*>(into.data_ptr());
    for (const std::int64_t row : rows) {
      std::memcpy(target, source + static_cast<std::size_t>(row) * bytes, bytes);
      target += bytes;
    }
    return into;
  }

  safetensors::MappedFile file_;
  Tensor images_, labels_;
};

/// The rows of an epoch in order; with augmentation, for each row how its picture is moved (dy, dx)
/// and whether it is flipped.
class Order {
 public:
  Order(const std::string& path, const Data& data)
      : file_(path), rows_(file_.tensor("rows", at::kLong, 1)) {
    for (const std::int64_t row : rows())
      if (row < 0 || row >= data.rows())
        throw std::out_of_range(path + " names row " + std::to_string(row) + ", " + data.path() +
                                " has " + std::to_string(data.rows()));
    const std::int64_t count = rows_.size(0);
    if (file_.has("shifts")) shifts_ = shaped(file_.tensor("shifts", at::kChar, 2), {count, 2});
    if (file_.has("flips")) flips_ = shaped(file_.tensor("flips", at::kByte, 1), {count});
    if (!shifts_.defined() || count == 0) return;
    reach_ = shifts_.to(at::kLong).abs().max().item().toLong();  // wider: 128 is not an int8
  }

  Rows rows() const {
    return {rows_.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(rows_.numel())};
  }
  /// int8 [n, 2] of `count` rows from `from` on; undefined if no picture is moved.
  Tensor shifts(std::size_t from, std::size_t count) const { return part(shifts_, from, count); }
  /// uint8 [n]; undefined if no picture is flipped.
  Tensor flips(std::size_t from, std::size_t count) const { return part(flips_, from, count); }
  /// The largest distance by which a picture is moved.
  std::int64_t reach() const { return reach_; }

 private:
  Tensor shaped(const Tensor& tensor, at::IntArrayRef shape) const {
    if (tensor.sizes() == shape) return tensor;
    throw std::runtime_error(file_.path() + " has " + shape_text(tensor.sizes()) +
                             ", but its rows need " + shape_text(shape));
  }

  static Tensor part(const Tensor& tensor, std::size_t from, std::size_t count) {
    const auto start = static_cast<std::int64_t>(from), length = static_cast<std::int64_t>(count);
    return tensor.defined() ? tensor.narrow(0, start, length) : tensor;
  }

  safetensors::MappedFile file_;
  Tensor rows_, shifts_, flips_;
  std::int64_t reach_ = 0;
};

}  // namespace golow
