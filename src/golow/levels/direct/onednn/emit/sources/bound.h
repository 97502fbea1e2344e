// The steps of a plan at addresses.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <dnnl.h>

#include "plan.h"

namespace golow {

/// Throws Failure on a CPU that the kernels were not compiled for, and for another oneDNN.
void require_machine();

/// The steps of a plan, bound to the addresses of its pieces. What has the address of an input or an
/// output is pointed at each call's.
class Bound {
 public:
  Bound(const Plan& plan, const std::vector<Step>& steps, const std::vector<char*>& at, char* scratch);
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;
  ~Bound() { release(); }

  void point(const void* const* inputs, void* const* outputs);

  /// A stream of a CPU runs each primitive before its call returns.
  void run() const {
    for (const Call& call : calls_) one(call);
  }
  void run(std::size_t step) const { one(calls_[step]); }

 private:
  struct Call {
    const Step* step;
    std::vector<dnnl_exec_arg_t> arguments;
    std::vector<void*> pointers;
  };
  struct Given {
    Value value;
    dnnl_memory_t memory;
    std::size_t call, position;
  };

  void one(const Call& call) const;
  const Piece& piece_of(Value value) const { return plan_.pieces[static_cast<std::size_t>(value.piece)]; }
  bool is_given(Value value) const {
    const Place place = piece_of(value).place;
    return place == Place::input || place == Place::output;
  }
  char* address(Value value) const {
    return is_given(value) ? nullptr : at_[static_cast<std::size_t>(value.piece)] + value.offset;
  }
  void bind(const Step& step);
  dnnl_memory_t memory(Layout layout, char* at, const std::string& name);
  void release();

  const Plan& plan_;
  const std::vector<char*> at_;
  char* const scratch_;
  dnnl_stream_t stream_ = nullptr;
  std::vector<Call> calls_;
  std::vector<dnnl_memory_t> memories_;
  std::vector<Given> given_;
};

}  // namespace golow
