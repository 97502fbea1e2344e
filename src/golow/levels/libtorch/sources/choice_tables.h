// What makes an alternative, and what reads a choice, by their names in golow/levels/choices/.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace golow {

using Setters = std::map<std::string, std::function<void()>>;
using Readers = std::map<std::string, std::function<std::string()>>;

}  // namespace golow
