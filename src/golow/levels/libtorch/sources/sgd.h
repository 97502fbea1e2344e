// SGD with momentum and weight decay, in the order in which torch.optim.SGD computes it, so that
// the parameters are bit for bit the same: tensor by tensor on a CPU, all at once on a GPU. Also
// the unscaling of gradients for a scaled loss, as in torch.amp.GradScaler.
#pragma once

#include <algorithm>
#include <vector>

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

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

/// The same for many parameters in a few launches; one launch each would cost more than its work.
inline void update_together(const std::vector<Parameter*>& parameters, const Rates& rates) {
  std::vector<Tensor> weights, changes;
  for (const Parameter* parameter : parameters) {
    weights.push_back(*parameter);
    changes.push_back(parameter->gradient);
  }
  if (rates.weight_decay != 0) changes = at::_foreach_add(changes, weights, rates.weight_decay);
  if (rates.momentum != 0) {
    std::vector<Tensor> momenta, added;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Tensor& momentum = parameters[i]->momentum;
      if (momentum.defined()) {
        momenta.push_back(momentum);
        added.push_back(changes[i]);
      } else {
        momentum = changes[i].clone();
      }
      changes[i] = momentum;
    }
    if (!momenta.empty()) {
      at::_foreach_mul_(momenta, rates.momentum);
      at::_foreach_add_(momenta, added, 1);
    }
  }
  at::_foreach_add_(weights, changes, -rates.learning_rate);
}

/// Divide the gradients by the scale; returns whether they are finite. The scale is halved if they
/// are not, and doubled when they have been finite for 2000 steps.
inline bool unscale(const std::vector<Parameter*>& parameters, LossScale& scale) {
  std::vector<Tensor> gradients;
  for (const Parameter* parameter : parameters) gradients.push_back(parameter->gradient);
  const auto options = gradients.front().options().dtype(at::kFloat);
  Tensor infinite = at::zeros({1}, options);
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, infinite,
                                                 at::full({1}, 1 / scale.value, options));
  if (infinite.item().toDouble() != 0) {
    scale = {scale.value / 2, 0};
    return false;
  }
  if (++scale.good_steps == 2000) scale = {scale.value * 2, 0};
  return true;
}

/// Update every parameter that has a gradient from the last step. A step whose scaled gradients are
/// not finite is skipped.
inline void update_parameters(Program& program, const Rates& rates) {
  std::vector<Parameter*> trained;
  for (Parameter* parameter : program.parameters)
    if (parameter->gradient.defined()) trained.push_back(parameter);
  if (trained.empty()) return;
  if (program.loss_scale && !unscale(trained, *program.loss_scale)) return;
  if (trained.front()->is_cuda()) return update_together(trained, rates);
  for (Parameter* parameter : trained) update(*parameter, rates);
}

/// Release the gradients, as zero_grad(set_to_none=True) does.
inline void clear_gradients(Program& program) {
  for (Parameter* parameter : program.parameters) parameter->gradient.reset();
}

}  // namespace golow
