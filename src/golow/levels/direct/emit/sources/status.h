// Statuses of the C interface.
#pragma once

#include <new>
#include <string>

#include "failure.h"

namespace golow {

/// The text of this thread's last failure.
inline std::string& last_text() {
  thread_local std::string text;
  return text;
}
inline const char* last_error() { return last_text().c_str(); }

/// The status of what a function does. Nothing that it throws leaves it.
template <typename Action>
int status_of(const Action& action) {
  const auto failed = [](Status status, const char* text) {
    try {
      last_text() = text;
    } catch (...) {
      last_text().clear();
    }
    return static_cast<int>(status);
  };
  try {
    action();
    return 0;
  } catch (const Failure& failure) {
    return failed(failure.status, failure.what());
  } catch (const std::bad_alloc&) {
    return failed(Status::memory, "there is no memory left");
  } catch (const std::exception& error) {
    return failed(Status::internal, error.what());
  }
}

inline void require(bool fits, const char* what) {
  if (!fits) throw Failure(Status::call, what);
}

}  // namespace golow
