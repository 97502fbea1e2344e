#include "loading.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "failure.h"
#include "weight_arithmetic.h"

namespace golow {
namespace {

std::size_t product(const std::vector<std::int64_t>& sizes) {
  std::size_t all = 1;
  for (const std::int64_t size : sizes) all *= static_cast<std::size_t>(size);
  return all;
}

std::size_t item_bytes(Type type) {
  switch (type) {
    case Type::int64: return 8;
    case Type::float32:
    case Type::int32: return 4;
    case Type::bfloat16:
    case Type::float16: return 2;
    default: return 1;
  }
}

template <typename To, typename From>
To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "as many bytes");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// ---------------------------------------------------------------- 16-bit floats

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

float widened(BFloat16 value) { return bits<float>(static_cast<std::uint32_t>(value.bits) << 16); }

float widened(Float16 value) {
  const int exponent = value.bits >> 10 & 31, fraction = value.bits & 1023;
  float size = exponent == 0    ? std::ldexp(static_cast<float>(fraction), -24)
               : exponent == 31 ? (fraction == 0 ? std::numeric_limits<float>::infinity()
                                                 : std::numeric_limits<float>::quiet_NaN())
                                : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return value.bits >> 15 != 0 ? -size : size;
}

template <typename To>
struct Convert {
  template <typename From>
  static To from(From value) {
    return static_cast<To>(value);
  }
};

template <>
struct Convert<bool> {
  template <typename From>
  static bool from(From value) {
    return value != 0;
  }
};

template <>
struct Convert<BFloat16> {
  template <typename From>
  static BFloat16 from(From given) {
    const std::uint32_t all = bits<std::uint32_t>(static_cast<float>(given));
    if ((all & 0x7fffffff) > 0x7f800000) return {static_cast<std::uint16_t>(all >> 16 | 0x40)};  // NaN
    return {static_cast<std::uint16_t>((all + 0x7fff + (all >> 16 & 1)) >> 16)};
  }
};

template <>
struct Convert<Float16> {
  template <typename From>
  static Float16 from(From given) {
    const float value = static_cast<float>(given);
    const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
    const auto signed_bits = [&](std::uint32_t size) { return Float16{static_cast<std::uint16_t>(sign | size)}; };
    const float size = std::fabs(value);
    if (std::isnan(value)) return signed_bits(0x7e00);
    if (size >= 65520.0f) return signed_bits(0x7c00);  // it rounds to infinity
    if (size == 0) return signed_bits(0);
    int exponent = 0;
    std::frexp(size, &exponent);
    // The last place has this exponent; below the smallest normal number it does not shrink further.
    const int last = std::max(exponent - 11, -24);
    const auto places = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, -last)));
    // A fraction that rounds up to the next power of two carries into the exponent by itself.
    if (last == -24) return signed_bits(places);
    return signed_bits((static_cast<std::uint32_t>(last + 24) << 10) + places);
  }
};

// ---------------------------------------------------------------- layouts

/// Calls visit(index in row-major order, place in memory) for every element.
template <typename Visit>
void each_element(const Storage& storage, const Visit& visit) {
  const std::size_t count = product(storage.shape), axes = storage.shape.size();
  std::vector<std::int64_t> index(axes, 0);
  std::int64_t place = 0;
  for (std::size_t i = 0; i < count; ++i) {
    visit(i, static_cast<std::size_t>(place));
    for (std::size_t axis = axes; axis-- > 0;) {
      place += storage.strides[axis];
      if (++index[axis] < storage.shape[axis]) break;
      place -= index[axis] * storage.strides[axis];
      index[axis] = 0;
    }
  }
}

template <typename To, typename From>
void put(const Array& array, const Storage& storage, char* target) {
  const auto* const from = reinterpret_cast<const From*>(array.data());
  auto* const to = reinterpret_cast<To*>(target);
  each_element(storage, [&](std::size_t i, std::size_t place) { to[place] = Convert<To>::from(from[i]); });
}

template <typename From>
void put_from(const Array& array, const Storage& storage, char* target) {
  switch (storage.type) {
    case Type::float32: return put<float, From>(array, storage, target);
    case Type::bfloat16: return put<BFloat16, From>(array, storage, target);
    case Type::float16: return put<Float16, From>(array, storage, target);
    case Type::int64: return put<std::int64_t, From>(array, storage, target);
    case Type::int32: return put<std::int32_t, From>(array, storage, target);
    case Type::bool8: return put<bool, From>(array, storage, target);
    case Type::uint8: return put<std::uint8_t, From>(array, storage, target);
  }
}

template <typename Half>
void widen(const char* halves, std::size_t count, char* target) {
  for (std::size_t i = 0; i < count; ++i) {
    Half half;
    std::memcpy(&half, halves + i * sizeof half, sizeof half);
    const float value = widened(half);
    std::memcpy(target + i * sizeof value, &value, sizeof value);
  }
}

Type type_of(const StoredTensor& tensor) {
  const std::string& name = tensor.dtype;
  if (name == "F32" || name == "C64" || name == "BF16" || name == "F16") return Type::float32;
  if (name == "I64") return Type::int64;
  if (name == "I32") return Type::int32;
  if (name == "BOOL") return Type::bool8;
  if (name == "U8") return Type::uint8;
  throw Failure(Status::weights, tensor.name + " is " + name + ", which no plan reads");
}

}  // namespace

std::size_t Storage::bytes() const { return elements * item_bytes(type); }

Array::Array(Type type, std::vector<std::int64_t> shape) : type(type), shape(std::move(shape)) {
  own_.resize(elements() * item_bytes(type));
}

Array::Array(const StoredTensor& tensor) : type(type_of(tensor)), shape(tensor.shape) {
  if (tensor.dtype == "C64") shape.push_back(2);
  if (tensor.dtype != "BF16" && tensor.dtype != "F16") {
    borrowed_ = tensor.data;
    return;
  }
  own_.resize(elements() * sizeof(float));
  if (tensor.dtype == "BF16")
    widen<BFloat16>(tensor.data, elements(), own_.data());
  else
    widen<Float16>(tensor.data, elements(), own_.data());
}

std::size_t Array::elements() const { return product(shape); }

std::vector<char> stored(const Array& array, const Storage& storage) {
  if (array.elements() != product(storage.shape))
    throw Failure(Status::internal, "an array does not fit its storage");
  std::vector<char> target(storage.bytes());
  switch (array.type) {
    case Type::float32: put_from<float>(array, storage, target.data()); break;
    case Type::int64: put_from<std::int64_t>(array, storage, target.data()); break;
    case Type::int32: put_from<std::int32_t>(array, storage, target.data()); break;
    default: put_from<std::uint8_t>(array, storage, target.data());
  }
  return target;
}

Array unstored(const std::vector<char>& bytes, const Storage& storage) {
  const bool halves = storage.type == Type::bfloat16 || storage.type == Type::float16;
  const std::size_t item = item_bytes(storage.type);
  Array made(halves ? Type::float32 : storage.type, storage.shape);
  each_element(storage, [&](std::size_t i, std::size_t place) {
    const char* const from = bytes.data() + place * item;
    if (storage.type == Type::bfloat16)
      widen<BFloat16>(from, 1, made.data() + i * sizeof(float));
    else if (storage.type == Type::float16)
      widen<Float16>(from, 1, made.data() + i * sizeof(float));
    else
      std::memcpy(made.data() + i * item, from, item);
  });
  return made;
}

// ---------------------------------------------------------------- values

Host weight(const char* name) {
  return [=](const Sources& sources) { return Array(sources.weight(name)); };
}

Host constant(const char* name) {
  return [=](const Sources& sources) { return Array(sources.constant(name)); };
}

Host number(float value) {
  return [=](const Sources&) {
    Array made(Type::float32, {});
    std::memcpy(made.data(), &value, sizeof value);
    return made;
  };
}

namespace {

/// The arrays of values of which some may be absent.
class Given {
 public:
  Given(const std::vector<const Host*>& hosts, const Sources& sources) {
    for (const Host* host : hosts)
      arrays_.push_back(*host == nullptr ? Array(Type::float32, {0}) : (*host)(sources));
  }
  const Array& operator[](std::size_t i) const { return arrays_[i]; }
  const void* at(std::size_t i) const { return arrays_[i].elements() == 0 ? nullptr : arrays_[i].data(); }

 private:
  std::vector<Array> arrays_;
};

}  // namespace

Host folded_weight(Host weight, Host scale, Host variance, double epsilon) {
  return [=](const Sources& sources) {
    const Given given({&weight, &scale, &variance}, sources);
    Array made(Type::float32, given[0].shape);
    const std::int64_t rows = made.shape[0];
    const auto columns = static_cast<std::int64_t>(made.elements()) / rows;
    folded_weight(given.at(0), given.at(1), given.at(2), epsilon, rows, columns, made.data());
    return made;
  };
}

Host folded_bias(Host bias, Host scale, Host shift, Host mean, Host variance, double epsilon) {
  return [=](const Sources& sources) {
    const Given given({&bias, &scale, &shift, &mean, &variance}, sources);
    Array made(Type::float32, given[3].shape);
    const auto count = static_cast<std::int64_t>(made.elements());
    folded_bias(given.at(0), given.at(1), given.at(2), given.at(3), given.at(4), epsilon, count, made.data());
    return made;
  };
}

Host trimmed_weight(Host weight, std::pair<int, int> rows, std::pair<int, int> columns) {
  return [=](const Sources& sources) {
    const Array given = weight(sources);
    const std::vector<std::int64_t>& shape = given.shape;
    Array made(Type::float32, {shape[0], shape[1], rows.second - rows.first, columns.second - columns.first});
    trimmed_weight(given.data(), shape[0] * shape[1], shape[2], shape[3], rows.first, rows.second, columns.first,
                   columns.second, made.data());
    return made;
  };
}

Host joined_weight(std::vector<Host> parts) {
  return [=](const Sources& sources) {
    std::vector<Array> given;
    for (const Host& part : parts) given.push_back(part(sources));
    std::vector<std::int64_t> shape = given[0].shape;
    for (std::size_t i = 1; i < given.size(); ++i) shape[0] += given[i].shape[0];
    Array made(given[0].type, shape);
    char* target = made.data();
    for (const Array& part : given) {
      const std::size_t bytes = part.elements() * item_bytes(part.type);
      joined({{part.data(), bytes}}, target);
      target += bytes;
    }
    return made;
  };
}

}  // namespace golow
