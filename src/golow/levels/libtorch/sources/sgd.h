// SGD with momentum and weight decay, in the order in which torch.optim.SGD calculates it for one
// tensor, so that the parameters come out bit for bit the same.
#pragma once

#include "program.h"

namespace golow {

struct Rates {
  double learning_rate = 0, momentum = 0, weight_decay = 0;
};

/// v <- momentum v + (g + weight_decay w);  w <- w - learning_rate v.
inline void update(Parameter& parameter, const Rates& rates) {
  Tensor change = parameter.gradient;
  if (rates.weight_decay != 0) change = change.add(parameter, rates.weight_decay);
  if (rates.momentum != 0) {
    if (parameter.momentum.defined())
      parameter.momentum.mul_(rates.momentum).add_(change, 1);
    else
      parameter.momentum = change.clone();
    change = parameter.momentum;
  }
  parameter.add_(change, -rates.learning_rate);
}

/// Update every parameter that the last step gave a gradient.
inline void update_parameters(Program& program, const Rates& rates) {
  for (Parameter* parameter : program.parameters)
    if (parameter->gradient.defined()) update(*parameter, rates);
}

/// Release the gradients, as zero_grad(set_to_none=True) does.
inline void clear_gradients(Program& program) {
  for (Parameter* parameter : program.parameters) parameter->gradient.reset();
}

}  // namespace golow
