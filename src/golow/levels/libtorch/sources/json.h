// JSON by RFC 8259: strict, with a limit on depth, and errors that give the position.
//
// Enough for the worker protocol, workload.json and the header of a safetensors file, and safe on
// any input: it throws json::Error and never reads past the end.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace golow::json {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Value;
using Array = std::vector<Value>;
using Object = std::vector<std::pair<std::string, Value>>;  // in the order of the text

class Value {
 public:
  Value() = default;
  Value(std::nullptr_t) {}
  Value(bool value) : content_(value) {}
  Value(int value) : content_(std::int64_t{value}) {}
  Value(std::int64_t value) : content_(value) {}
  Value(double value) : content_(value) {}
  Value(const char* value) : content_(std::string(value)) {}
  Value(std::string value) : content_(std::move(value)) {}
  Value(Array value) : content_(std::move(value)) {}
  Value(Object value) : content_(std::move(value)) {}

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(content_); }
  const Array& array() const { return get<Array>("an array"); }
  const Object& object() const { return get<Object>("an object"); }
  const std::string& string() const { return get<std::string>("a string"); }
  bool boolean() const { return get<bool>("true or false"); }
  std::int64_t integer() const { return get<std::int64_t>("an integer"); }
  double number() const {
    const auto* const whole = std::get_if<std::int64_t>(&content_);
    return whole != nullptr ? static_cast<double>(*whole) : get<double>("a number");
  }

  /// The member with that name; nullptr if the object has none.
  const Value* find(std::string_view name) const {
    for (const auto& [key, value] : object())
      if (key == name) return &value;
    return nullptr;
  }

  /// The member with that name; throws if the object has none.
  const Value& at(std::string_view name) const {
    if (const Value* found = find(name)) return *found;
    throw Error("there is no \"" + std::string(name) + "\" in the object");
  }

 private:
  friend std::string dump(const Value& value);

  template <typename Content>
  const Content& get(const char* what) const {
    if (const auto* found = std::get_if<Content>(&content_)) return *found;
    throw Error(std::string("expected ") + what);
  }

  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Array, Object> content_;
};

/// Bytes of the UTF-8 character at the start of the text; 0 if there is no valid one.
inline std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return 0;
  if (byte(0) < 0x80) return 1;
  const std::size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  const bool overlong = (byte(0) == 0xE0 && byte(1) < 0xA0) || (byte(0) == 0xF0 && byte(1) < 0x90);
  const bool surrogate = byte(0) == 0xED && byte(1) > 0x9F;
  const bool too_large = byte(0) == 0xF4 && byte(1) > 0x8F;
  return overlong || surrogate || too_large ? 0 : length;
}

// ---------------------------------------------------------------- reading

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Value parse_document() {
    Value value = parse_value(0);
    skip_space();
    if (position_ != text_.size()) fail("there is more after the end");
    return value;
  }

 private:
  // Deep enough for any real file, and far from the end of the stack.
  static constexpr int kDepthLimit = 64;

  [[noreturn]] void fail(const std::string& what) const {
    throw Error("not valid JSON at byte " + std::to_string(position_) + ": " + what);
  }

  bool at_end() const { return position_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[position_]; }

  void skip_space() {
    while (!at_end() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r'))
      ++position_;
  }

  bool take(char wanted) {
    if (at_end() || peek() != wanted) return false;
    ++position_;
    return true;
  }

  void expect(char wanted) {
    skip_space();
    if (!take(wanted)) fail(std::string("expected '") + wanted + "'");
  }

  Value parse_value(int depth) {
    if (depth > kDepthLimit) fail("nested deeper than " + std::to_string(kDepthLimit));
    skip_space();
    switch (peek()) {
      case '{': return parse_object(depth);
      case '[': return parse_array(depth);
      case '"': return parse_string();
      case 't': return parse_word("true", true);
      case 'f': return parse_word("false", false);
      case 'n': return parse_word("null", nullptr);
      default: return parse_number();
    }
  }

  Value parse_word(std::string_view word, Value value) {
    if (text_.substr(position_, word.size()) != word) fail("expected a value");
    position_ += word.size();
    return value;
  }

  Value parse_object(int depth) {
    expect('{');
    Object object;
    std::set<std::string> seen;
    skip_space();
    if (take('}')) return object;
    do {
      skip_space();
      if (peek() != '"') fail("expected the name of a member");
      std::string name = parse_string();
      if (!seen.insert(name).second) fail("the name \"" + name + "\" is there twice");
      expect(':');
      object.emplace_back(std::move(name), parse_value(depth + 1));
      skip_space();
    } while (take(','));
    expect('}');
    return object;
  }

  Value parse_array(int depth) {
    expect('[');
    Array array;
    skip_space();
    if (take(']')) return array;
    do {
      array.push_back(parse_value(depth + 1));
      skip_space();
    } while (take(','));
    expect(']');
    return array;
  }

  std::string parse_string() {
    expect('"');
    std::string result;
    while (!take('"')) {
      if (at_end()) fail("the string does not end");
      if (static_cast<unsigned char>(peek()) < 0x20) fail("a control character in a string");
      if (take('\\')) {
        append_escaped(result);
        continue;
      }
      const std::size_t length = utf8_length(text_.substr(position_));
      if (length == 0) fail("not valid UTF-8");
      result += text_.substr(position_, length);
      position_ += length;
    }
    return result;
  }

  void append_escaped(std::string& result) {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (take('u')) return append_utf8(result, parse_code_point());
    const std::size_t index = at_end() ? std::string_view::npos : kNames.find(peek());
    if (index == std::string_view::npos) fail("an unknown escape in a string");
    result += kMeanings[index];
    ++position_;
  }

  std::uint32_t parse_code_point() {
    const std::uint32_t high = parse_hex();
    if (high < 0xD800 || high > 0xDFFF) return high;
    // Beyond the first plane JSON writes a UTF-16 surrogate pair, the high half first.
    if (high > 0xDBFF || !take('\\') || !take('u')) fail("half a surrogate pair");
    const std::uint32_t low = parse_hex();
    if (low < 0xDC00 || low > 0xDFFF) fail("half a surrogate pair");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  std::uint32_t parse_hex() {
    std::uint32_t value = 0;
    const std::string_view digits = text_.substr(position_, 4);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 4 || end != digits.data() + 4) fail("expected four hexadecimal digits");
    position_ += 4;
    return value;
  }

  static void append_utf8(std::string& result, std::uint32_t point) {
    const auto tail = [&](int shift) {
      result += static_cast<char>(0x80 | ((point >> shift) & 0x3F));
    };
    if (point < 0x80) {
      result += static_cast<char>(point);
    } else if (point < 0x800) {
      result += static_cast<char>(0xC0 | (point >> 6));
      tail(0);
    } else if (point < 0x10000) {
      result += static_cast<char>(0xE0 | (point >> 12));
      tail(6), tail(0);
    } else {
      result += static_cast<char>(0xF0 | (point >> 18));
      tail(12), tail(6), tail(0);
    }
  }

  void take_digits() {
    const std::size_t start = position_;
    while (peek() >= '0' && peek() <= '9') ++position_;
    if (position_ == start) fail("expected a value");
  }

  Value parse_number() {
    const std::size_t start = position_;
    take('-');
    if (!take('0')) take_digits();
    bool whole = true;
    if (take('.')) take_digits(), whole = false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      take_digits(), whole = false;
    }
    const char* const first = text_.data() + start;
    const char* const last = text_.data() + position_;
    std::int64_t integer = 0;
    if (whole && std::from_chars(first, last, integer).ec == std::errc()) return integer;
    double number = 0;
    if (std::from_chars(first, last, number).ec != std::errc()) fail("the number is too large");
    return number;
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

/// The value that the text describes; throws json::Error unless it is exactly one.
inline Value parse(std::string_view text) { return Parser(text).parse_document(); }

// ---------------------------------------------------------------- writing

inline std::string quote(std::string_view text) {
  std::string result = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char first = text.front();
    if (length == 0) {
      result += "\\ufffd";  // a message may contain any bytes; the line must stay valid
    } else if (first == '"' || first == '\\') {
      result += {'\\', first};
    } else if (static_cast<unsigned char>(first) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(first));
      result += escape;
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result + "\"";
}

/// The value as one line of JSON. Infinity and NaN, which JSON cannot express, become null.
inline std::string dump(const Value& value) {
  const auto joined = [](const auto& items, char open, char close, const auto& text) {
    std::string result(1, open);
    for (const auto& item : items) result += (result.size() > 1 ? ", " : "") + text(item);
    return result + close;
  };
  struct Writer {
    decltype(joined)& join;
    std::string operator()(std::nullptr_t) const { return "null"; }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::int64_t number) const { return std::to_string(number); }
    std::string operator()(double number) const {
      if (!std::isfinite(number)) return "null";
      char text[32];
      const auto end = std::to_chars(text, text + sizeof text, number).ptr;
      return std::string(text, end);
    }
    std::string operator()(const std::string& text) const { return quote(text); }
    std::string operator()(const Array& array) const { return join(array, '[', ']', dump); }
    std::string operator()(const Object& object) const {
      return join(object, '{', '}', [](const auto& member) {
        return quote(member.first) + ": " + dump(member.second);
      });
    }
  };
  return std::visit(Writer{joined}, value.content_);
}

}  // namespace golow::json
