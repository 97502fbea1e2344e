#include "weight_arithmetic.h"

#include <cmath>
#include <cstring>

namespace golow {
namespace {

const float* floats(const void* data) { return static_cast<const float*>(data); }
float* floats(void* data) { return static_cast<float*>(data); }

double factor_of(const void* scale, const void* variance, double epsilon, std::int64_t row) {
  const double deviation =
      variance == nullptr ? 1.0 : std::sqrt(static_cast<double>(floats(variance)[row]) + epsilon);
  const double factor = 1 / deviation;
  return scale == nullptr ? factor : factor * static_cast<double>(floats(scale)[row]);
}

}  // namespace

void folded_weight(const void* weight, const void* scale, const void* variance, double epsilon,
                   std::int64_t rows, std::int64_t columns, void* result) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const double factor = factor_of(scale, variance, epsilon, row);
    for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i)
      floats(result)[i] = static_cast<float>(static_cast<double>(floats(weight)[i]) * factor);
  }
}

void folded_bias(const void* bias, const void* scale, const void* shift, const void* mean,
                 const void* variance, double epsilon, std::int64_t count, void* result) {
  for (std::int64_t i = 0; i < count; ++i) {
    const double given = bias == nullptr ? 0.0 : static_cast<double>(floats(bias)[i]);
    const double centred = given - static_cast<double>(floats(mean)[i]);
    double found = centred * factor_of(scale, variance, epsilon, i);
    if (shift != nullptr) found += static_cast<double>(floats(shift)[i]);
    floats(result)[i] = static_cast<float>(found);
  }
}

void trimmed_weight(const void* weight, std::int64_t images, std::int64_t rows, std::int64_t columns,
                    std::int64_t first_row, std::int64_t last_row, std::int64_t first_column,
                    std::int64_t last_column, void* result) {
  float* target = floats(result);
  const std::int64_t width = last_column - first_column;
  for (std::int64_t image = 0; image < images; ++image)
    for (std::int64_t row = first_row; row < last_row; ++row, target += width)
      std::memcpy(target, floats(weight) + (image * rows + row) * columns + first_column,
                  static_cast<std::size_t>(width) * sizeof(float));
}

void joined(std::initializer_list<Bytes> parts, void* result) {
  char* target = static_cast<char*>(result);
  for (const Bytes& part : parts) {
    std::memcpy(target, part.data, part.count);
    target += part.count;
  }
}

}  // namespace golow
