// The program of the level aotinductor: the package is called.

#include "package.h"

namespace golow {

std::unique_ptr<Program> make_program() { return std::make_unique<Package>(); }

}  // namespace golow
