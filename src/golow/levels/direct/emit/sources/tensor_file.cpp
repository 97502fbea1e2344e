#include "tensor_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"

namespace golow {
namespace {

struct Damage {
  std::string what;
};

/// Reads the header: an object of objects, whose values are texts or lists of whole numbers.
class Header {
 public:
  explicit Header(std::string_view text) : text_(text) {}

  /// begin and end of each tensor's bytes are in its data and bytes, as numbers from 0.
  std::vector<StoredTensor> tensors(const char* data, std::size_t size) {
    std::vector<StoredTensor> found;
    expect('{');
    if (!accept('}')) {
      do {
        std::string name = string();
        expect(':');
        if (name == "__metadata__")
          skip_texts();
        else
          found.push_back(tensor(std::move(name), data, size));
      } while (accept(','));
      expect('}');
    }
    space();
    if (at_ != text_.size()) throw Damage{"there is more behind its header"};
    return found;
  }

 private:
  StoredTensor tensor(std::string name, const char* data, std::size_t size) {
    StoredTensor made;
    made.name = std::move(name);
    std::vector<std::int64_t> ends;
    expect('{');
    do {
      const std::string key = string();
      expect(':');
      if (key == "dtype")
        made.dtype = string();
      else if (key == "shape")
        made.shape = numbers();
      else if (key == "data_offsets")
        ends = numbers();
      else
        throw Damage{made.name + " has an unknown entry " + key};
    } while (accept(','));
    expect('}');
    std::size_t bytes = element_bytes(made.dtype);
    if (bytes == 0) throw Damage{made.name + " has the unknown type " + made.dtype};
    for (const std::int64_t side : made.shape)
      if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(side), &bytes))
        throw Damage{made.name + " is too large"};
    if (ends.size() != 2 || ends[0] > ends[1] || static_cast<std::size_t>(ends[1]) > size)
      throw Damage{"it ends before the bytes of " + made.name};
    if (static_cast<std::size_t>(ends[1] - ends[0]) != bytes)
      throw Damage{"the bytes of " + made.name + " do not fit its shape"};
    made.data = data + ends[0];
    made.bytes = bytes;
    return made;
  }

  void skip_texts() {
    expect('{');
    if (accept('}')) return;
    do {
      string();
      expect(':');
      string();
    } while (accept(','));
    expect('}');
  }

  std::vector<std::int64_t> numbers() {
    std::vector<std::int64_t> found;
    expect('[');
    if (accept(']')) return found;
    do found.push_back(number());
    while (accept(','));
    expect(']');
    return found;
  }

  std::int64_t number() {
    space();
    std::int64_t value = 0;
    const std::size_t start = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
          __builtin_add_overflow(value, std::int64_t{text_[at_] - '0'}, &value))
        throw Damage{"a number of its header is too large"};
    if (at_ == start) throw damaged();
    return value;
  }

  std::string string() {
    expect('"');
    std::string found;
    while (at_ < text_.size() && text_[at_] != '"') {
      char next = text_[at_++];
      if (next == '\\') next = escaped(found);
      if (next != '\0') found.push_back(next);
    }
    if (at_++ >= text_.size()) throw damaged();
    return found;
  }

  /// The character behind a backslash; 0 for one that was appended already.
  char escaped(std::string& found) {
    if (at_ >= text_.size()) throw damaged();
    switch (const char kind = text_[at_++]) {
      case 'n': return '\n';
      case 't': return '\t';
      case 'r': return '\r';
      case 'b': return '\b';
      case 'f': return '\f';
      case 'u': append_utf8(found); return '\0';
      default: return kind;
    }
  }

  unsigned hexadecimal() {
    if (text_.size() - at_ < 4) throw damaged();
    unsigned value = 0;
    for (int i = 0; i < 4; ++i) {
      const char digit = text_[at_++];
      if (digit >= '0' && digit <= '9') value = value * 16 + static_cast<unsigned>(digit - '0');
      else if (digit >= 'a' && digit <= 'f') value = value * 16 + static_cast<unsigned>(digit - 'a') + 10;
      else if (digit >= 'A' && digit <= 'F') value = value * 16 + static_cast<unsigned>(digit - 'A') + 10;
      else throw damaged();
    }
    return value;
  }

  void append_utf8(std::string& found) {
    unsigned code = hexadecimal();
    if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
      at_ += 2;
      code = 0x10000 + ((code - 0xD800) << 10) + (hexadecimal() - 0xDC00);
    }
    const auto byte = [&](unsigned value) { found.push_back(static_cast<char>(value)); };
    if (code < 0x80) return byte(code);
    if (code < 0x800) {
      byte(0xC0 | code >> 6);
    } else {
      if (code < 0x10000) byte(0xE0 | code >> 12);
      else byte(0xF0 | (code >> 18 & 7)), byte(0x80 | (code >> 12 & 0x3F));
      byte(0x80 | (code >> 6 & 0x3F));
    }
    byte(0x80 | (code & 0x3F));
  }

  void space() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr && text_[at_] != '\0') ++at_;
  }
  bool accept(char wanted) {
    space();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) throw damaged();
  }
  Damage damaged() const { return {"its header is damaged at byte " + std::to_string(at_)}; }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::size_t element_bytes(std::string_view dtype) {
  static constexpr std::pair<std::string_view, std::size_t> known[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"U16", 2}, {"I16", 2}, {"F16", 2}, {"BF16", 2},
      {"U32", 4},  {"I32", 4}, {"F32", 4}, {"U64", 8}, {"I64", 8}, {"F64", 8}, {"C64", 8}};
  for (const auto& [name, bytes] : known)
    if (name == dtype) return bytes;
  return 0;
}

std::string in_words(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t side : shape) text += (text.empty() ? "" : "x") + std::to_string(side);
  return text.empty() ? "one number" : text;
}

TensorFile::TensorFile(const std::string& path) : name_(path) {
  const auto unreadable = [&] {
    return Failure(Status::file, path + " cannot be read: " + std::strerror(errno));
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw unreadable();
  struct stat found {};
  if (fstat(file, &found) == 0 && found.st_size > 0 && S_ISREG(found.st_mode)) {
    mapped_bytes_ = static_cast<std::size_t>(found.st_size);
    mapped_ = mmap(nullptr, mapped_bytes_, PROT_READ, MAP_PRIVATE, file, 0);
  }
  const bool failed = mapped_ == MAP_FAILED;
  const Failure why = unreadable();
  close(file);
  if (failed) throw why;
  try {
    read(static_cast<const char*>(mapped_), mapped_bytes_);
  } catch (...) {  // no destructor runs
    if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
    throw;
  }
}

TensorFile::TensorFile(const char* data, std::size_t size, const std::string& name) : name_(name) {
  read(data, size);
}

TensorFile::~TensorFile() {
  if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
}

void TensorFile::read(const char* data, std::size_t size) {
  try {
    std::uint64_t length = 0;
    if (size < sizeof length) throw Damage{"it is too short for its header"};
    std::memcpy(&length, data, sizeof length);
    if (length > size - sizeof length) throw Damage{"it is too short for its header"};
    const char* const start = data + sizeof length + length;
    tensors_ = Header({data + sizeof length, length}).tensors(start, size - sizeof length - length);
  } catch (const Damage& damage) {
    throw Failure(Status::file, name_ + " is not a complete safetensors file: " + damage.what);
  }
}

const StoredTensor* TensorFile::find(std::string_view name) const {
  for (const StoredTensor& tensor : tensors_)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

void write_tensors(const std::string& path, const std::vector<StoredTensor>& tensors) {
  std::string header = "{";
  std::size_t end = 0;
  for (const StoredTensor& tensor : tensors) {
    std::string shape;
    for (const std::int64_t side : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(side);
    header += (end == 0 && header.size() == 1 ? "\"" : ",\"") + tensor.name + "\":{\"dtype\":\"" +
              tensor.dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(end);
    end += tensor.bytes;
    header += "," + std::to_string(end) + "]}";
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = header.size();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file.write(header.data(), static_cast<std::streamsize>(length));
  for (const StoredTensor& tensor : tensors)
    file.write(tensor.data, static_cast<std::streamsize>(tensor.bytes));
  file.close();
  if (!file) throw Failure(Status::file, path + " cannot be written: " + std::strerror(errno));
}

}  // namespace golow
