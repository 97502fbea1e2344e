// What went wrong, as a status and one line of text.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace golow {

/// In the order of the statuses of the network's header.
enum class Status { fine, file, weights, call, memory, library, internal };

class Failure : public std::exception {
 public:
  Failure(Status status, std::string text) : status(status), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  const Status status;

 private:
  std::string text_;
};

}  // namespace golow
