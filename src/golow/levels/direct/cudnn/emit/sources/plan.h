// A plan: pieces of memory, and steps that work on them, as plan_*.cpp write them down. It holds no
// addresses, so that several contexts run it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device.h"
#include "libraries.h"
#include "loading.h"

namespace golow {

/// A GPU with what the steps of all plans run on. It enqueues on one stream. One thread may use it at a
/// time.
struct Machine {
  /// constants: with modules and plans of libraries.
  Machine(const Device& device, const TensorFile& constants)
      : kernels(device, constants), libraries(stream.handle(), constants) {}
  Stream stream;
  Kernels kernels;
  Libraries libraries;
  std::set<std::string> own;  // names of the kernels
};

/// A tensor in memory: a piece of it, and bytes from its start.
struct Value {
  int piece;
  std::int64_t offset = 0;
};
inline Value operator+(Value value, std::int64_t bytes) { return {value.piece, value.offset + bytes}; }
constexpr Value absent = {-1};

/// What a step of loading has written.
inline Host made(Value value, Storage storage) {
  return [value, storage = std::move(storage)](const Sources& sources) {
    return sources.made(value.piece, value.offset, storage);
  };
}

/// kept: zero at first, and as an iteration leaves it in the next one of the same context. state: what
/// training changes, in memory that all plans of it share.
enum class Place { input, output, arena, once, constant, kept, state };

/// key: of a constant, which other plans of the network may have, too; of the state, the number of its
/// memory.
struct Piece {
  Place place;
  std::int64_t offset;
  std::size_t bytes;
  int key;
};

/// The content of a piece from loading on.
struct Fill {
  int piece;
  Storage storage;
  Host host;
};

using Addresses = std::vector<CUdeviceptr>;

/// One operation. run: enqueues it on its values.
struct Step {
  std::string name;
  std::vector<Value> values;
  std::function<void(Machine&, const Addresses&)> run;
};

class Plan {
 public:
  Plan(Machine& machine, int batch) : batch(batch), machine_(machine) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // ---------------------------------------------------------------- memory

  /// Bytes: of an iteration, of loading, of what loading leaves, and of what is kept.
  void memory(std::size_t arena, std::size_t once, std::size_t constant, std::size_t kept);
  Value input(int number, std::size_t bytes) { return piece(Place::input, number, bytes); }
  Value output(int number, std::size_t bytes) { return piece(Place::output, number, bytes); }
  Value arena(std::int64_t offset, std::size_t bytes) { return piece(Place::arena, offset, bytes); }
  Value once(std::int64_t offset, std::size_t bytes) { return piece(Place::once, offset, bytes); }
  Value kept(std::int64_t offset, std::size_t bytes) { return piece(Place::kept, offset, bytes); }
  Value constant(int key, std::int64_t offset, std::size_t bytes) {
    return piece(Place::constant, offset, bytes, key);
  }
  Value state(int memory, std::int64_t offset, std::size_t bytes) {
    return piece(Place::state, offset, bytes, memory);
  }
  /// A piece holds this from the first step on that reads it.
  void fill(Value piece, Storage storage, Host host) {
    fills.push_back({piece.piece, std::move(storage), std::move(host)});
  }

  // ---------------------------------------------------------------- steps

  /// The layer and operation that what follows is for.
  void layer(const char* name, const char* operation);

  /// Steps of each iteration, in their order. A kernel's pointers come before its numbers; a plan of
  /// cuDNN gets its operands; a product a, b[, bias][, c] and d, as absent where there is none.
  void run(const Kernel& kernel, const Launch& launch, std::initializer_list<Value> pointers,
           std::initializer_list<Scalar> numbers);
  void run(const LibraryPlan& plan, std::initializer_list<Value> operands, Value workspace);
  void run(const Product& product, std::initializer_list<Value> operands, Value workspace);
  /// Steps of loading, in their order.
  void load(const Kernel& kernel, const Launch& launch, std::initializer_list<Value> pointers,
            std::initializer_list<Scalar> numbers) {
    run(kernel, launch, pointers, numbers);
    move_to_loading();
  }
  template <typename Engine>
  void load(const Engine& engine, std::initializer_list<Value> operands, Value workspace) {
    run(engine, operands, workspace);
    move_to_loading();
  }

  /// What follows when a state was loaded: copies of parameters in half precision.
  void renew(const Kernel& kernel, const Launch& launch, std::initializer_list<Value> pointers,
             std::initializer_list<Scalar> numbers) {
    run(kernel, launch, pointers, numbers);
    renewing.push_back(std::move(steps.back()));
    steps.pop_back();
  }

  const int batch;
  std::size_t arena_bytes = 0, once_bytes = 0, constant_bytes = 0, kept_bytes = 0;
  std::vector<Piece> pieces;
  std::vector<Fill> fills;
  std::vector<Step> loading, renewing, steps;

 private:
  Value piece(Place place, std::int64_t offset, std::size_t bytes, int key = -1);
  void move_to_loading();

  Machine& machine_;
  std::string layer_;
};

/// Enqueues a step. at: where each piece of the plan is.
void enqueue(const Step& step, Machine& machine, const Addresses& at);

}  // namespace golow
