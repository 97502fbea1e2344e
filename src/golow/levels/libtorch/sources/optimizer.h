// The optimizers SGD, Adam, AdamW and RMSprop, in the order in which torch.optim computes them, so
// that parameters move as they do there. Also the unscaling of gradients for a scaled loss, as in
// torch.amp.GradScaler, and clipping by norm, as in torch.nn.utils.clip_grad_norm_.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "program.h"

namespace golow {

/// An optimizer's name (sgd, adam, adamw, rmsprop) and its settings; each uses its own.
struct Optimizer {
  std::string name = "sgd";
  double learning_rate = 0, momentum = 0, weight_decay = 0;
  bool nesterov = false;
  double first_beta = 0, second_beta = 0, smoothing = 0, epsilon = 0;
  std::optional<double> clip;  // the largest norm of all gradients together
};

using Parameters = std::vector<Parameter*>;

/// v <- momentum v + (g + weight_decay w);  w <- w - learning_rate v, or, in Nesterov's form,
/// w <- w - learning_rate (g + weight_decay w + momentum v).
inline void update(Parameter& parameter, const Optimizer& sgd) {
  Tensor change = parameter.gradient;
  if (sgd.weight_decay != 0) change = change.add(parameter, sgd.weight_decay);
  if (sgd.momentum != 0) {
    if (parameter.momentum.defined())
      parameter.momentum.mul_(sgd.momentum).add_(change, 1);
    else
      parameter.momentum = change.clone();
    change = sgd.nesterov ? change.add(parameter.momentum, sgd.momentum) : parameter.momentum;
  }
  parameter.add_(change, -sgd.learning_rate);
}

/// The same for many parameters in a few launches; one launch each would cost more than its work.
inline void update_together(const Parameters& parameters, const Optimizer& sgd) {
  std::vector<Tensor> weights, changes;
  for (const Parameter* parameter : parameters) {
    weights.push_back(*parameter);
    changes.push_back(parameter->gradient);
  }
  if (sgd.weight_decay != 0) changes = at::_foreach_add(changes, weights, sgd.weight_decay);
  if (sgd.momentum != 0) {
    std::vector<Tensor> momenta, all, added;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Tensor& momentum = parameters[i]->momentum;
      if (momentum.defined()) {
        momenta.push_back(momentum);
        added.push_back(changes[i]);
      } else {
        momentum = changes[i].clone();
      }
      all.push_back(momentum);
    }
    if (!momenta.empty()) {
      at::_foreach_mul_(momenta, sgd.momentum);
      at::_foreach_add_(momenta, added, 1);
    }
    changes = sgd.nesterov ? at::_foreach_add(changes, all, sgd.momentum) : all;
  }
  at::_foreach_add_(weights, changes, -sgd.learning_rate);
}

/// The parameters, their gradients, and what is kept of each, which is zero before the first step.
struct Kept {
  Kept(const Parameters& parameters, bool with_momentum) {
    for (Parameter* parameter : parameters) {
      weights.push_back(*parameter);
      gradients.push_back(parameter->gradient);
      if (!parameter->square.defined()) parameter->square = at::zeros_like(*parameter);
      squares.push_back(parameter->square);
      if (!with_momentum) continue;
      if (!parameter->momentum.defined()) parameter->momentum = at::zeros_like(*parameter);
      momenta.push_back(parameter->momentum);
    }
  }
  std::vector<Tensor> weights, gradients, momenta, squares;
};

/// m <- first_beta m + (1 - first_beta) g;  s <- second_beta s + (1 - second_beta) g^2, and
/// w <- w - rate m / (sqrt(s) / root + epsilon), where rate and root correct for the zeros at the
/// beginning. AdamW first shrinks w; Adam adds the weight decay to g.
inline void adam(const Parameters& parameters, const Optimizer& settings, double step) {
  Kept kept(parameters, /*with_momentum=*/true);
  if (settings.weight_decay != 0) {
    if (settings.name == "adamw")
      at::_foreach_mul_(kept.weights, 1 - settings.learning_rate * settings.weight_decay);
    else
      kept.gradients = at::_foreach_add(kept.gradients, kept.weights, settings.weight_decay);
  }
  at::_foreach_lerp_(kept.momenta, kept.gradients, 1 - settings.first_beta);
  at::_foreach_mul_(kept.squares, settings.second_beta);
  at::_foreach_addcmul_(kept.squares, kept.gradients, kept.gradients, 1 - settings.second_beta);
  const double rate = settings.learning_rate / (1 - std::pow(settings.first_beta, step));
  const double root = std::sqrt(1 - std::pow(settings.second_beta, step));
  const std::vector<Tensor> divisors = at::_foreach_sqrt(kept.squares);
  at::_foreach_div_(divisors, root);
  at::_foreach_add_(divisors, settings.epsilon);
  at::_foreach_addcdiv_(kept.weights, kept.momenta, divisors, -rate);
}

/// s <- smoothing s + (1 - smoothing) g^2;  w <- w - learning_rate g / (sqrt(s) + epsilon), with
/// momentum over the quotient if there is one.
inline void rmsprop(const Parameters& parameters, const Optimizer& settings) {
  Kept kept(parameters, settings.momentum != 0);
  if (settings.weight_decay != 0)
    kept.gradients = at::_foreach_add(kept.gradients, kept.weights, settings.weight_decay);
  at::_foreach_mul_(kept.squares, settings.smoothing);
  at::_foreach_addcmul_(kept.squares, kept.gradients, kept.gradients, 1 - settings.smoothing);
  const std::vector<Tensor> divisors = at::_foreach_sqrt(kept.squares);
  at::_foreach_add_(divisors, settings.epsilon);
  if (settings.momentum == 0) {
    at::_foreach_addcdiv_(kept.weights, kept.gradients, divisors, -settings.learning_rate);
    return;
  }
  at::_foreach_mul_(kept.momenta, settings.momentum);
  at::_foreach_addcdiv_(kept.momenta, kept.gradients, divisors, 1);
  at::_foreach_add_(kept.weights, kept.momenta, -settings.learning_rate);
}

/// Scale the gradients down until the norm of all together is at most `norm`.
inline void clip(const Parameters& parameters, double norm) {
  std::vector<Tensor> gradients;
  for (const Parameter* parameter : parameters) gradients.push_back(parameter->gradient);
  const Tensor found = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients)));
  const Tensor factor = found.add(1e-6).reciprocal().mul(norm).clamp_max(1);
  gradients = at::_foreach_mul(gradients, factor);
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i]->gradient = gradients[i];
}

/// Divide the gradients by the scale; returns whether they are finite. The scale is halved if they
/// are not, and doubled when they have been finite for 2000 steps.
inline bool unscale(const Parameters& parameters, LossScale& scale) {
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
inline void update_parameters(Program& program, const Optimizer& optimizer) {
  Parameters trained;
  for (Parameter* parameter : program.parameters)
    if (parameter->gradient.defined()) trained.push_back(parameter);
  if (trained.empty()) return;
  if (program.loss_scale && !unscale(trained, *program.loss_scale)) return;
  if (optimizer.clip) clip(trained, *optimizer.clip);
  if (optimizer.name == "rmsprop") return rmsprop(trained, optimizer);
  if (optimizer.name != "sgd") return adam(trained, optimizer, ++program.steps);
  if (trained.front()->is_cuda()) return update_together(trained, optimizer);
  for (Parameter* parameter : trained) update(*parameter, optimizer);
}

/// Release the gradients, as zero_grad(set_to_none=True) does.
inline void clear_gradients(Program& program) {
  for (Parameter* parameter : program.parameters) parameter->gradient.reset();
}

}  // namespace golow
