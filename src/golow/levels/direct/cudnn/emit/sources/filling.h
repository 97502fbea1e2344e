// What iterations of a plan do not change, from weights and constants.
#pragma once

#include <vector>

#include "forms.h"
#include "plan.h"
#include "tensor_file.h"

namespace golow {

/// Fills it: step by step what is computed from weights, where each is read when it is first needed;
/// then what iterations read as it is. at: where the plan's pieces are that stay; what only loading
/// needs is given back. forms: of the weights that plans read.
void fill(const Plan& plan, Addresses at, const std::vector<Form>& forms, const TensorFile& weights,
          const TensorFile& constants, Machine& machine);

}  // namespace golow
