// Files of tensors in the format of https://github.com/huggingface/safetensors: eight bytes of
// header length (little-endian), a JSON header, then the tensors' bytes without gaps.
//
// The header is not trusted: every offset is checked against the file before memory is allocated.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "json.h"

namespace golow::safetensors {

using Tensors = std::map<std::string, at::Tensor>;

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The official reader's limit on the header.
constexpr std::uint64_t kHeaderLimit = 100'000'000;

inline const std::vector<std::pair<std::string, at::ScalarType>>& dtypes() {
  static const std::vector<std::pair<std::string, at::ScalarType>> table = {
      {"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf}, {"BF16", at::kBFloat16},
      {"I64", at::kLong},   {"I32", at::kInt},   {"I16", at::kShort}, {"I8", at::kChar},
      {"U8", at::kByte},    {"BOOL", at::kBool}};
  return table;
}

// ---------------------------------------------------------------- reading

/// One tensor of the header: its dtype, its shape and its bytes after the header.
struct Entry {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;
};

inline std::int64_t byte_count(const Entry& entry) {
  std::int64_t bytes = static_cast<std::int64_t>(c10::elementSize(entry.dtype));
  for (const std::int64_t size : entry.shape) {
    if (size < 0) throw Error("the shape of " + entry.name + " has a negative size");
    if (__builtin_mul_overflow(bytes, size, &bytes))
      throw Error("the shape of " + entry.name + " is too large");
  }
  return bytes;
}

inline Entry read_entry(const std::string& name, const json::Value& description) {
  Entry entry;
  entry.name = name;
  const std::string& dtype = description.at("dtype").string();
  const auto known = std::find_if(dtypes().begin(), dtypes().end(),
                                  [&](const auto& pair) { return pair.first == dtype; });
  if (known == dtypes().end()) throw Error(name + " has the unknown dtype " + dtype);
  entry.dtype = known->second;
  for (const json::Value& size : description.at("shape").array())
    entry.shape.push_back(size.integer());
  const json::Array& offsets = description.at("data_offsets").array();
  if (offsets.size() != 2) throw Error(name + " does not have two offsets");
  entry.begin = offsets[0].integer();
  entry.end = offsets[1].integer();
  std::int64_t length = 0;
  if (entry.begin < 0 || __builtin_sub_overflow(entry.end, entry.begin, &length) ||
      length != byte_count(entry))
    throw Error("the offsets of " + name + " do not fit its shape");
  return entry;
}

/// The header's entries in the order of their bytes, which must cover the data exactly.
inline std::vector<Entry> read_header(std::ifstream& file, std::uint64_t file_size) {
  std::uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof length);
  if (!file || length > kHeaderLimit || length > file_size - sizeof length)
    throw Error("the header is cut off");
  std::string text(length, '\0');
  file.read(text.data(), static_cast<std::streamsize>(length));
  if (!file) throw Error("the header is cut off");
  std::vector<Entry> entries;
  const json::Value header = json::parse(text);
  for (const auto& [name, description] : header.object())
    if (name != "__metadata__") entries.push_back(read_entry(name, description));
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::int64_t position = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != position) throw Error("there is a hole or an overlap before " + entry.name);
    position = entry.end;
  }
  if (static_cast<std::uint64_t>(position) != file_size - sizeof length - length)
    throw Error("the file is not as long as its header states");
  return entries;
}

/// A file read up to its tensors' bytes, and the header's entries for them.
struct Opened {
  std::ifstream file;
  std::vector<Entry> entries;
};

/// Open the file. Throws Error, with its path, if it is damaged.
inline Opened open(const std::string& path) {
  Opened opened{std::ifstream(path, std::ios::binary | std::ios::ate), {}};
  if (!opened.file) throw Error(path + " cannot be opened");
  const auto file_size = static_cast<std::uint64_t>(opened.file.tellg());
  opened.file.seekg(0);
  try {
    if (file_size < sizeof(std::uint64_t)) throw Error("the header is cut off");
    opened.entries = read_header(opened.file, file_size);
    return opened;
  } catch (const json::Error& error) {
    throw Error(path + ": " + error.what());
  } catch (const Error& error) {
    throw Error(path + ": " + error.what());
  }
}

/// All tensors of the file, by name. Throws Error, with the file's path, if it is damaged.
inline Tensors read(const std::string& path) {
  Opened opened = open(path);
  Tensors tensors;
  for (const Entry& entry : opened.entries) {
    at::Tensor tensor = at::empty(entry.shape, entry.dtype);
    opened.file.read(static_cast<char*>(tensor.data_ptr()), entry.end - entry.begin);
    if (!opened.file) throw Error(path + ": the data of " + entry.name + " is cut off");
    tensors.emplace(entry.name, std::move(tensor));
  }
  return tensors;
}

// ---------------------------------------------------------------- writing

inline std::string dtype_name(const std::string& name, at::ScalarType dtype) {
  for (const auto& [text, type] : dtypes())
    if (type == dtype) return text;
  throw Error(name + " is " + c10::toString(dtype) + ", which safetensors cannot hold");
}

/// Write the tensors, those with the widest elements first, so that each is aligned for its dtype.
inline void write(const std::string& path, const Tensors& tensors) {
  std::vector<std::pair<std::string, at::Tensor>> ordered;
  for (const auto& [name, tensor] : tensors) ordered.emplace_back(name, tensor.contiguous());
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return a.second.element_size() > b.second.element_size();
  });
  json::Object header;
  std::int64_t position = 0;
  for (const auto& [name, tensor] : ordered) {
    const json::Array shape(tensor.sizes().begin(), tensor.sizes().end());
    const auto end = position + static_cast<std::int64_t>(tensor.nbytes());
    header.emplace_back(name, json::Object{{"dtype", dtype_name(name, tensor.scalar_type())},
                                           {"shape", shape},
                                           {"data_offsets", json::Array{position, end}}});
    position = end;
  }
  std::string text = json::dump(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file.write(text.data(), static_cast<std::streamsize>(length));
  for (const auto& [name, tensor] : ordered)
    file.write(static_cast<const char*>(tensor.const_data_ptr()),
               static_cast<std::streamsize>(tensor.nbytes()));
  file.close();
  if (!file) throw Error(path + " cannot be written");
}

}  // namespace golow::safetensors
