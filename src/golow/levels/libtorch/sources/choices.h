// The choices that this program can make otherwise, and those whose value it can read.
// golow/levels/choices/ has one file for each, with the words for its users.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "allocator.h"
#include "cpu_choices.h"
#include "gpu_choices.h"
#include "json.h"

namespace golow {

class Choices {
 public:
  /// Make these alternatives; called before every load.
  void choose(const std::vector<std::string>& names) {
    given_threads();  // read before anything changes it
    bool keeps = true;
    for (const std::string& name : names) {
      if (name == "malloc_return")
        keeps = false;
      else if (const auto found = cpu_setters().find(name); found != cpu_setters().end())
        found->second();
      else if (gpu_setters().count(name) == 0)  // these are made after the load
        throw std::runtime_error("this worker does not know the choice " + name);
    }
    if (keeps) keep_memory();
  }

  /// Make those that need a loaded workload; called after every load.
  void choose_loaded(const std::vector<std::string>& names) const {
    for (const std::string& name : names)
      if (const auto found = gpu_setters().find(name); found != gpu_setters().end())
        found->second();
  }

  /// The value in effect of each choice that this program can read, of those asked for.
  json::Object in_force(const std::vector<std::string>& names) const {
    json::Object found;
    for (const std::string& name : names)
      for (const Readers* readers : {&cpu_readers(), &gpu_readers()})
        if (const auto reader = readers->find(name); reader != readers->end())
          found.emplace_back(name, reader->second());
    return found;
  }
};

}  // namespace golow
