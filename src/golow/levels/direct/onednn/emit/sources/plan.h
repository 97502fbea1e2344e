// A plan: pieces of memory, and steps that work on them, as plan_*.cpp write them down. It holds no
// addresses, so that several contexts run it at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <dnnl.h>

#include "failure.h"
#include "kernels.h"

namespace golow {

using Layout = const_dnnl_memory_desc_t;
using Description = const_dnnl_primitive_desc_t;
constexpr Layout no_layout = nullptr;

/// Throws Failure if a call of the library failed. what: the layer that it is for.
void check(dnnl_status_t status, const std::string& what);

/// A tensor in memory: a piece of it, and bytes from its start.
struct Value {
  int piece;
  std::int64_t offset = 0;
};
inline Value operator+(Value value, std::int64_t bytes) { return {value.piece, value.offset + bytes}; }

/// DNNL_ARG_..., and the tensor in its layout.
struct Argument {
  int number;
  Value value;
  Layout layout;
};

// Arrays as the library takes them.
struct Dims {
  dnnl_dims_t values = {};
  int axes = 0;
  Dims(std::initializer_list<std::int64_t> given);
  operator const std::int64_t*() const { return values; }
};
struct Layouts {
  std::vector<Layout> values;
  operator const Layout*() const { return values.data(); }
};
struct Floats {
  std::vector<float> values;
  operator const float*() const { return values.data(); }
};

/// What a primitive does to its result before it is written.
struct PostOp {
  dnnl_primitive_kind_t kind;
  dnnl_alg_kind_t algorithm;
  float alpha, beta;
  Layout layout;
};
inline PostOp sum(float alpha) { return {dnnl_sum, dnnl_alg_kind_undef, alpha, 0, nullptr}; }
inline PostOp eltwise(dnnl_alg_kind_t algorithm, float alpha, float beta) {
  return {dnnl_eltwise, algorithm, alpha, beta, nullptr};
}
inline PostOp binary(dnnl_alg_kind_t algorithm, Layout layout) {
  return {dnnl_binary, algorithm, 0, 0, layout};
}

class Attributes {
 public:
  explicit Attributes(std::initializer_list<PostOp> after);
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  ~Attributes();
  const_dnnl_primitive_attr_t handle() const { return handle_; }

 private:
  dnnl_primitive_attr_t handle_ = nullptr;
  dnnl_post_ops_t chain_ = nullptr;
};

/// What the library answered when the plan was written: bytes, and strides and inner blocks, as axis
/// and size, unless only the library knows the layout.
struct Expected {
  std::size_t bytes;
  std::vector<std::int64_t> strides;
  std::vector<std::pair<int, int>> blocks;
};

using Pointers = void* const*;
using Function = std::function<void(Pointers)>;

enum class Place { input, output, arena, once, constant, state };

/// key: of a constant, which other plans of the network may have, too.
struct Piece {
  Place place;
  std::int64_t offset;
  std::size_t bytes;
  int key;
};

/// A piece of the state, its layout and the same row-major.
struct HeldPiece {
  int piece;
  Layout layout, plain;
};

/// One operation: a primitive, a generated kernel or a function.
struct Step {
  std::string name;
  dnnl_primitive_t primitive = nullptr;
  std::vector<Argument> arguments;
  Layout scratchpad = nullptr;
  Kernel kernel = nullptr;
  std::vector<long> numbers;
  Function function;
  std::vector<Value> values;
};

class Plan {
 public:
  Plan(dnnl_engine_t engine, int batch) : batch(batch), engine(engine) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan();

  // ---------------------------------------------------------------- memory

  /// Bytes: of an iteration, of loading, and of what loading leaves.
  void memory(std::size_t arena, std::size_t once, std::size_t constant);
  Value input(int number, std::size_t bytes) { return piece(Place::input, number, bytes); }
  Value output(int number, std::size_t bytes) { return piece(Place::output, number, bytes); }
  Value arena(std::int64_t offset, std::size_t bytes) { return piece(Place::arena, offset, bytes); }
  Value once(std::int64_t offset, std::size_t bytes) { return piece(Place::once, offset, bytes); }
  Value constant(int key, std::int64_t offset, std::size_t bytes) {
    return piece(Place::constant, offset, bytes, key);
  }
  /// What training changes: its number among all of that.
  Value state(int number, std::size_t bytes) { return piece(Place::state, number, bytes); }
  /// Layout of a tensor that training changes; plain: the same row-major. no_layout: it is row-major.
  void held(Value piece, Layout layout, Layout plain) { states.push_back({piece.piece, layout, plain}); }
  /// A piece holds this weight from the first step on that reads it, or this constant.
  void weight(Value piece, const char* name) { weights.push_back({piece.piece, name}); }
  void content(Value piece, const char* name) { contents.push_back({piece.piece, name}); }

  // ---------------------------------------------------------------- layouts

  Layout strided(dnnl_data_type_t type, const Dims& shape, const Dims& strides);
  Layout tagged(dnnl_data_type_t type, const Dims& shape, dnnl_format_tag_t tag);
  Layout reshaped(Layout base, const Dims& shape);
  Layout permuted(Layout base, const std::vector<int>& where);
  Layout part(Layout base, const Dims& shape, const Dims& offsets);
  /// What a primitive wants for an argument. Throws Failure if it is not what it was: the steps were
  /// written for those layouts.
  Layout asked(Description description, dnnl_query_t query, int index, const Expected& expected);

  // ---------------------------------------------------------------- steps

  /// The layer and operation that what follows is for.
  void layer(const char* name, const char* operation);

  /// A primitive, not made yet. given: the arguments of the library's function between the engine
  /// and the attributes.
  template <typename Create, typename... Given>
  Description describe(Create create, std::initializer_list<PostOp> after, const Given&... given) {
    const Attributes attributes(after);
    dnnl_primitive_desc_t made = nullptr;
    check(create(&made, engine, given..., attributes.handle()), layer_);
    descriptions_.push_back(made);
    return made;
  }
  Description reorder(Layout source, Layout target);
  /// The next implementation that the library has, so many times.
  void skip(Description description, int count);

  /// Steps of each iteration, in their order.
  void run(Description description, std::initializer_list<Argument> arguments);
  void run(Kernel kernel, std::initializer_list<Value> values, std::initializer_list<long> numbers);
  void run(Function function, std::initializer_list<Value> values);
  /// Steps of loading, in their order.
  void load(Description description, std::initializer_list<Argument> arguments);
  void load(Kernel kernel, std::initializer_list<Value> values, std::initializer_list<long> numbers);
  void load(Function function, std::initializer_list<Value> values);

  const int batch;
  const dnnl_engine_t engine;
  std::size_t arena_bytes = 0, once_bytes = 0, constant_bytes = 0;
  /// Of a scratchpad that is larger here than where the plan was written; steps share it.
  std::size_t scratch_bytes = 0;
  std::vector<Piece> pieces;
  std::vector<std::pair<int, std::string>> weights, contents;
  std::vector<HeldPiece> states;
  std::vector<Step> loading, steps;

 private:
  Value piece(Place place, std::int64_t offset, std::size_t bytes, int key = -1);
  Layout kept(dnnl_memory_desc_t made, dnnl_status_t status);
  Step of_primitive(Description description, std::initializer_list<Argument> arguments);
  Step named() const;

  std::string layer_;
  std::vector<dnnl_memory_desc_t> layouts_;
  std::vector<dnnl_primitive_desc_t> descriptions_;
};

struct PlanSource {
  int batch;
  void (*build)(Plan&);
};

}  // namespace golow
