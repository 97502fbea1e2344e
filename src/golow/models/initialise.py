"""Initialisation from a seed, so that every level starts from the same weights.

The result depends only on the module's structure and the seed: not on torch's global generator,
which is restored, nor on the device or dtype of the parameters, since every draw is made in float32
on the CPU and copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

Draw = Callable[[Tensor, Generator], object]  # fills the tensor in place


def _pytorch_weight(weight: Tensor, generator: Generator) -> None:
    # PyTorch's form of uniform(-1 / sqrt(fan_in), 1 / sqrt(fan_in)); this call gives its bits.
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)


def _he_normal(weight: Tensor, generator: Generator) -> None:
    nn.init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu", generator=generator)


def _glorot_uniform(weight: Tensor, generator: Generator) -> None:
    nn.init.xavier_uniform_(weight, generator=generator)


def _small_normal(weight: Tensor, generator: Generator) -> None:
    nn.init.normal_(weight, 0.0, 0.01, generator=generator)


def _standard_normal(weight: Tensor, generator: Generator) -> None:
    nn.init.normal_(weight, generator=generator)


def _transformer_normal(weight: Tensor, generator: Generator) -> None:
    nn.init.normal_(weight, 0.0, 0.02, generator=generator)


def _zero_gamma(module: nn.Module) -> None:
    """Set to 0 the weights of the last batch norm of each residual block."""
    for block in _residual_blocks(module, "zero_gamma"):
        _end_of(block).zero_()


def _fixup(module: nn.Module) -> None:
    """Scale the m successive convolutions of each of L branches by L^(-1 / (2 m - 2)); the last
    layer of a branch, and the classifier, start at 0."""
    blocks = _residual_blocks(module, "fixup")
    for block in blocks:
        convolutions = [
            layer
            for name, layer in block.named_modules()
            if isinstance(layer, _ConvNd) and not name.startswith("downsample")
        ]
        for layer in convolutions if len(convolutions) > 1 else ():
            layer.weight *= len(blocks) ** (-1 / (2 * len(convolutions) - 2))
        _end_of(block).zero_()
    classifiers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    for classifier in classifiers[-1:]:
        classifier.weight.zero_()


def _residual_blocks(module: nn.Module, name: str) -> list[nn.Module]:
    blocks = [block for block in module.modules() if getattr(block, "zero_gamma_target", "")]
    if not blocks:
        raise ValueError(
            f"{name} needs residual blocks that name their last batch norm in an attribute "
            f"zero_gamma_target; {type(module).__name__} has none"
        )
    return blocks


def _end_of(block: nn.Module) -> Tensor:
    """The weights of the block's last batch norm."""
    return block.get_submodule(str(block.zero_gamma_target)).get_parameter("weight")


@dataclass(frozen=True)
class _Rule:
    """How the weights of convolutions and linear layers are drawn, and special treatment."""

    description: str
    convolution: Draw
    linear: Draw
    embedding: Draw = _standard_normal
    uniform_bias: bool = False  # uniform(-1 / sqrt(fan_in), 1 / sqrt(fan_in)), else 0
    finish: Callable[[nn.Module], None] | None = None  # applied to residual blocks afterwards


_RULES = {
    "default": _Rule(
        "as PyTorch's layers do: weights and biases uniform within 1 / sqrt(fan_in)",
        _pytorch_weight,
        _pytorch_weight,
        uniform_bias=True,
    ),
    "kaiming": _Rule(
        "convolutions normal with variance 2 / fan_out (He et al. 2015), linear normal(0, 0.01), "
        "biases 0",
        _he_normal,
        _small_normal,
    ),
    "xavier": _Rule(
        "uniform with variance 2 / (fan_in + fan_out) (Glorot & Bengio 2010), biases 0",
        _glorot_uniform,
        _glorot_uniform,
    ),
    # Goyal et al., "Accurate, large minibatch SGD: training ImageNet in 1 hour" (2017),
    # arXiv:1706.02677, section 5.1: each residual block begins as the identity.
    "zero_gamma": _Rule(
        "kaiming, and the last batch norm of each residual block scales by 0 (Goyal et al. 2017)",
        _he_normal,
        _small_normal,
        finish=_zero_gamma,
    ),
    # Zhang, Dauphin and Ma, "Fixup initialization: residual learning without normalization" (2019),
    # arXiv:1901.09321. The last layer of a branch here is a batch norm. Fixup's scalar biases and
    # multipliers would be additional layers and are omitted.
    "fixup": _Rule(
        "kaiming, convolutions of residual branches scaled by depth, the last layer of a branch "
        "and the classifier 0 (Zhang et al. 2019)",
        _he_normal,
        _small_normal,
        finish=_fixup,
    ),
    "normal": _Rule("weights normal(0, 0.01), biases 0", _small_normal, _small_normal),
    # Devlin et al. 2019 (BERT, truncated there) and Radford et al. 2018 (GPT).
    "transformer": _Rule(
        "weights and embeddings normal(0, 0.02), biases 0 (Radford et al. 2018)",
        _transformer_normal,
        _transformer_normal,
        embedding=_transformer_normal,
    ),
}

INITIALISATIONS: dict[str, str] = {name: rule.description for name, rule in _RULES.items()}
"""Every name that `initialise` accepts, with a one-line description.

They differ in convolutions and linear layers. In all of them norm layers start at weight 1, bias 0
and fresh running statistics, embeddings at normal(0, 1) unless the description states otherwise.
"""


def initialise(module: nn.Module, name: str, seed: int) -> None:
    """Set every parameter and running statistic of the module in place.

    Layers with parameters that golow does not know use their own ``reset_parameters`` under the
    seed; those without one, and weights that a parametrization computes, stay as constructed.

    Raises:
        ValueError: the name is unknown, or ``zero_gamma`` or ``fixup`` has no residual block, or a
            layer that needs its own ``reset_parameters`` is not on the CPU.
    """
    rule = _rule(name)
    generator = Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in _children_first(module):
            _initialise_layer(layer, rule, generator)
        if rule.finish is not None:
            rule.finish(module)


def _rule(name: str) -> _Rule:
    if name not in _RULES:
        raise ValueError(f"no initialisation named {name!r}; there are {', '.join(_RULES)}")
    return _RULES[name]


def _children_first(module: nn.Module) -> Iterator[nn.Module]:
    """Each module once, in the order in which constructors finish.

    A parent comes after its children because its own reset may change theirs, as in
    ``nn.MultiheadAttention``.
    """
    seen: set[nn.Module] = set()

    def visit(parent: nn.Module) -> Iterator[nn.Module]:
        if parent in seen:
            return
        seen.add(parent)
        for child in parent.children():
            yield from visit(child)
        yield parent

    return visit(module)


def _initialise_layer(layer: nn.Module, rule: _Rule, generator: Generator) -> None:
    """One module's own parameters, without those of its children."""
    match layer:
        case _ConvNd() if _owns_weight(layer):
            _weight_and_bias(layer, rule, rule.convolution, generator)
        case nn.Linear() if _owns_weight(layer):
            _weight_and_bias(layer, rule, rule.linear, generator)
        case _NormBase() | nn.LayerNorm() | nn.GroupNorm() | nn.RMSNorm():
            _norm(layer)
        case nn.Embedding() if _owns_weight(layer):
            _embedding(layer, rule, generator)
        case _:
            _own_reset(layer, generator)


def _owns_weight(layer: nn.Module) -> bool:
    """False if a parametrization computes the weight: values written to it would be lost."""
    return any(name == "weight" for name, _ in layer.named_parameters(recurse=False))


def _weight_and_bias(
    layer: _ConvNd | nn.Linear, rule: _Rule, draw: Draw, generator: Generator
) -> None:
    _fill(layer.weight, draw, generator)
    if layer.bias is None:
        return
    if rule.uniform_bias:
        bound = 1 / math.sqrt(layer.weight[0].numel())  # fan_in, as PyTorch counts it
        _fill(layer.bias, lambda bias, g: nn.init.uniform_(bias, -bound, bound, g), generator)
    else:
        layer.bias.zero_()


def _norm(layer: nn.Module) -> None:
    if isinstance(layer, _NormBase):
        layer.reset_running_stats()
    for name, parameter in layer.named_parameters(recurse=False):
        parameter.fill_(1.0 if name == "weight" else 0.0)


def _embedding(layer: nn.Embedding, rule: _Rule, generator: Generator) -> None:
    _fill(layer.weight, rule.embedding, generator)
    if layer.padding_idx is not None:
        layer.weight[layer.padding_idx].zero_()


def _fill(parameter: Tensor, draw: Draw, generator: Generator) -> None:
    values = torch.empty(parameter.shape, dtype=torch.float32)
    draw(values, generator)
    parameter.copy_(values)


def _own_reset(layer: nn.Module, generator: Generator) -> None:
    """The layer's own reset, with the global generator seeded for it and restored afterwards."""
    parameters = list(layer.parameters(recurse=False))
    # nn.MultiheadAttention has it under the second name.
    reset = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
    if not parameters or reset is None:
        return
    if any(parameter.device.type != "cpu" for parameter in parameters):
        raise ValueError(f"initialise the {type(layer).__name__} layer before it leaves the CPU")
    seed = int(torch.randint(2**62, (1,), generator=generator))
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which also seeds the accelerators, whose state is not saved here.
        torch.default_generator.manual_seed(seed)
        reset()
