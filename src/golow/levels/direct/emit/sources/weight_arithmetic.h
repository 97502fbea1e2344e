// What is computed from weights alone, once, while they are loaded: in float64, rounded once. The
// arrays are row-major.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace golow {

/// weight * scale / sqrt(variance + epsilon), over the rows. scale and variance may be nullptr.
void folded_weight(const void* weight, const void* scale, const void* variance, double epsilon,
                   std::int64_t rows, std::int64_t columns, void* result);

/// (bias - mean) * scale / sqrt(variance + epsilon) + shift. All but mean may be nullptr.
void folded_bias(const void* bias, const void* scale, const void* shift, const void* mean,
                 const void* variance, double epsilon, std::int64_t count, void* result);

/// The taps of kernels in these ranges of rows and columns, of images of that many.
void trimmed_weight(const void* weight, std::int64_t images, std::int64_t rows, std::int64_t columns,
                    std::int64_t first_row, std::int64_t last_row, std::int64_t first_column,
                    std::int64_t last_column, void* result);

/// Arrays of so many bytes, one after the other.
struct Bytes {
  const void* data;
  std::size_t count;
};
void joined(std::initializer_list<Bytes> parts, void* result);

}  // namespace golow
