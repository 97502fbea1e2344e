// Turns pixels into a network's input with ATen's operators on the device: augmentation on bytes,
// then normalisation in float32. golow/worker/feed.py has the same arithmetic.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/index.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include "placement.h"

namespace golow {

/// The pictures [n, channels, height, width], each moved by its shift (int8 [n, 2], at most
/// `reach`) and padded with zeros, out[y][x] = in[y + dy][x + dx], then mirrored left to right if
/// its flip (uint8 [n]) is 1. Either may be undefined.
inline Tensor augmented(const Tensor& pictures, const Tensor& shifts, const Tensor& flips,
                        std::int64_t reach) {
  if (!shifts.defined() && !flips.defined()) return pictures;
  const auto index = at::TensorOptions(at::kLong).device(pictures.device());
  const auto numbers = [&](std::int64_t dimension, at::IntArrayRef shape) {
    return at::arange(pictures.size(dimension), index).view(shape);
  };
  Tensor rows = numbers(2, {1, 1, -1, 1}), columns = numbers(3, {1, 1, 1, -1});
  if (flips.defined())
    columns = at::where(flips.ne(0).view({-1, 1, 1, 1}), columns.flip(3), columns);
  Tensor source = pictures;
  if (shifts.defined()) {
    source = at::constant_pad_nd(pictures, {reach, reach, reach, reach});
    const Tensor origins = shifts.to(at::kLong).add(reach);
    rows = rows.add(origins.select(1, 0).view({-1, 1, 1, 1}));
    columns = columns.add(origins.select(1, 1).view({-1, 1, 1, 1}));
  }
  return at::index(source, {numbers(0, {-1, 1, 1, 1}), numbers(1, {1, -1, 1, 1}), rows, columns});
}

/// Pixels to float32: x * scale + shift, with one factor and one summand per channel. Tokens stay.
class Normalisation {
 public:
  Normalisation(const std::vector<float>& scale, const std::vector<float>& shift,
                const Placement& placement)
      : scale_(placement.moved(at::tensor(scale)).unsqueeze(1).unsqueeze(2)),
        shift_(placement.moved(at::tensor(shift)).unsqueeze(1).unsqueeze(2)) {}

  /// Two operators, so that the product is rounded before the sum.
  Tensor operator()(const Tensor& pixels) const {
    if (pixels.scalar_type() != at::kByte) return pixels;
    return pixels.to(at::kFloat).mul_(scale_).add_(shift_);
  }

  /// Throws unless there are as many factors and summands as channels.
  void require_channels(std::int64_t channels) const {
    if (scale_.size(0) != channels || shift_.size(0) != channels)
      throw std::runtime_error("scale and shift need one number for each channel, there are " +
                               std::to_string(channels));
  }

 private:
  Tensor scale_, shift_;
};

}  // namespace golow
