// What went wrong, as a status and one line of text.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include <dnnl.h>

namespace golow {

/// In the order of the statuses of the network's header.
enum class Status { fine, file, weights, call, memory, onednn, internal };

class Failure : public std::exception {
 public:
  Failure(Status status, std::string text) : status(status), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  const Status status;

 private:
  std::string text_;
};

inline const char* name_of(dnnl_status_t status) {
  switch (status) {
    case dnnl_success: return "success";
    case dnnl_out_of_memory: return "out of memory";
    case dnnl_invalid_arguments: return "invalid arguments";
    case dnnl_unimplemented: return "unimplemented";
    case dnnl_runtime_error: return "runtime error";
    default: return "not required";
  }
}

/// Throws if a call of the library failed. what: the layer that it is for.
inline void check(dnnl_status_t status, const std::string& what) {
  if (status == dnnl_success) return;
  throw Failure(status == dnnl_out_of_memory ? Status::memory : Status::onednn,
                what + ": oneDNN: " + name_of(status));
}

}  // namespace golow
