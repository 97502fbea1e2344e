"""Convolution forward and backward; bias, residual and activation are fused where possible."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from golow.levels.direct.cudnn.build.refusing import without_formula
from golow.levels.direct.cudnn.build.weights import is_cold, is_frozen
from golow.levels.direct.cudnn.engines.first_convolution import as_first, takes_first
from golow.levels.direct.cudnn.engines.golow_convolution import OwnConvolution, is_depthwise, takes
from golow.levels.direct.cudnn.problems import products
from golow.levels.direct.cudnn.problems.epilogue import activating, copy_ns, pass_ns
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.layouts import TENSOR_ALIGNMENT, Layout
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.cudnn.steps.elementwise import activated
from golow.levels.direct.cudnn.steps.patches import as_patches, fastest_ns, is_faster, patches
from golow.levels.direct.cudnn.steps.pixel_products import product_of_ranges
from golow.levels.direct.cudnn.steps.pixel_ranges import range_pitch, seen_range
from golow.levels.direct.cudnn.steps.sums import add_up
from golow.levels.direct.formulas.activation_formulas import NO_CLIP, clip_of
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.refusing import refuse_integers
from golow.lower.ir.graph import Ref
from golow.lower.operators.convolution import Convolution, ConvolutionBackward

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder
    from golow.levels.direct.cudnn.engines.engines import Engine

# Channels in one 16-byte load; an image of three channels is padded to this number.
PADDED = {"float32": 4, "bfloat16": 8, "float16": 8}
# Elements of a result that a large GPU computes at once: a few tiles of 128 x 128 on each of 132
# multiprocessors.
SMALL = 8_000_000


def convolution(build: Builder, arguments: Convolution) -> None:
    """activation(convolution(x, weight) + bias + residual)."""
    clip = clip_of(arguments.activation)
    whole = msgspec.structs.replace(
        _plain(build, arguments, build.current.output().shape),
        bias=arguments.bias is not None,
        residual=arguments.residual is not None,
        clip=NO_CLIP if clip is None else clip,
        activation=arguments.activation if clip is None else None,
        frozen=is_frozen(build, arguments.weight),
        cold=is_cold(build, arguments.weight),
    )
    first = _in_place(build, arguments, whole)
    if first is not None and _saves_time(build, first, whole):
        _read_in_place(build, arguments, first)
        return
    if (pixels := product_of_ranges(build, arguments, whole)) is not None:
        build.values.define(0, pixels)
        return
    image, pitch = _image(build, arguments.x, whole)
    whole = msgspec.structs.replace(whole, image_pitch=pitch)
    done, engine, result = _placed(build, whole)
    whole = msgspec.structs.replace(whole, output_pitch=done.output_pitch)
    problem = as_patches(done)
    if problem is not None and is_faster(build.engines, problem, done):
        image, engine = patches(build, image, done), build.engine_for(problem)
    reads = [image, _weight(build, arguments.weight, done)]
    if done.bias and arguments.bias is not None:
        # The libraries take the bias in the type of the products, golow's own kernels in float32.
        own = isinstance(engine, OwnConvolution)
        reads.append(build.values.wanted(arguments.bias, Layout("float32" if own else done.dtype)))
    residual, layout = arguments.residual, Layout(done.result, "channels_last", done.output[1])
    added = [] if residual is None else [build.values.wanted(residual, layout)]
    build.steps.engine(engine, [*reads, *(added if done.residual else [])], [result])
    if done.bias != whole.bias and arguments.bias is not None:
        added = [build.values.wanted(arguments.bias, Layout("float32")), *added]
    if done != whole:
        activated(build, [result, *added], result, arguments.activation)
    build.values.define(0, result)


def _placed(
    build: Builder, whole: products.Convolution
) -> tuple[products.Convolution, Engine, Tensor]:
    """As `_fused`, with the memory of the result: where it is joined, if one of golow's depthwise
    kernels writes it there and nothing follows."""
    value, layout = build.current.output(), Layout(whole.result, "channels_last", whole.output[1])
    there, pitch = _place(build, whole, 0, whole.output)
    if there is not None:
        placed = msgspec.structs.replace(whole, output_pitch=pitch)
        done, engine = _fused(build, placed)
        if done == placed:
            return done, engine, there
    done, engine = _fused(build, whole)
    return done, engine, build.memory.new(value.name, value.shape, layout)


def _place(
    build: Builder, operation: products.Convolution, index: int, shape: tuple[int, ...]
) -> tuple[Tensor | None, int]:
    """Where a result of a depthwise convolution is joined, with its pitch; None if it is not, or
    cannot be written there."""
    if not is_depthwise(operation):
        return None, 0
    layout = Layout(operation.result, "channels_last", shape[1])
    there = build.concatenations.tensor(build.current.output(index).name, shape, layout)
    pitch = None if there is None else range_pitch(there, shape, operation.result)
    return (there, pitch) if pitch else (None, 0)


class InPlace(NamedTuple):
    """A convolution of the model's input that reads the batches in place, forward and backward; a
    note for the gradient of its weight, which has the same layout as the weight."""

    forward: products.FirstConvolution
    backward: products.FirstConvolution


def _in_place(
    build: Builder, arguments: Convolution, whole: products.Convolution
) -> InPlace | None:
    """Return the operations that read the input's batches in place; None if there are none."""
    if whole.of_volumes or not build.current.is_input(arguments.x):
        return None
    shape, dtype = build.current.value(arguments.x).shape, build.inputs.dtype(arguments.x)
    first = InPlace(*(as_first(o, shape, dtype) for o in (whole, _of_weight(whole))))
    needed = first if build.current.trains else first[:1]
    found = all(takes_first(operation) and build.engines.choose(operation) for operation in needed)
    return first if found else None


def _saves_time(build: Builder, first: InPlace, whole: products.Convolution) -> bool:
    """True if they take less time than a copy of the batch, engines in both directions, and a pass
    for what the one forward leaves of ``whole``; without timing, they do."""
    engines = build.engines
    if not engines.times:
        return True
    done, _ = _fused(build, whole)
    before = copy_ns(engines, first.forward.operand_bytes[0] + done.operand_bytes[0])
    before += fastest_ns(engines, done) + (0.0 if done == whole else pass_ns(engines, whole))
    after = engines.time_of(first.forward)
    if build.current.trains:
        before += fastest_ns(engines, _of_weight(done))
        after += engines.time_of(first.backward)
    return after < before


def _read_in_place(build: Builder, arguments: Convolution, operations: InPlace) -> None:
    """The convolution by a kernel that reads the input's batches where they are stored."""
    done = operations.forward.convolution
    layout = Layout(done.result, "channels_last", done.output[1])
    result = build.memory.new(build.current.output().name, build.current.output().shape, layout)
    batches, position = build.inputs.batches(arguments.x)
    reads = [batches, _weight(build, arguments.weight, done)]
    if arguments.bias is not None:
        reads.append(build.values.wanted(arguments.bias, Layout("float32")))
    build.steps.engine(build.engine_for(operations.forward), [*reads, position], [result])
    build.values.define(0, result)
    if build.current.trains:
        build.current.note(_both(arguments), operations)


def _both(arguments: Convolution | ConvolutionBackward) -> str:
    return f"{arguments.x.name} {arguments.weight.name}"


def _fused(build: Builder, whole: products.Convolution) -> tuple[products.Convolution, Engine]:
    """Return the largest part of the operation that one engine can do, and that engine; the rest
    follows."""
    rest = msgspec.structs.replace(whole, residual=False, clip=NO_CLIP, activation=None)
    # Without timing, only golow's own kernels have an activation that does more than clip.
    possible = whole.activation is None or takes(whole)
    # Without tensor cores, the library's kernel with a fused residual is thirty times slower.
    slow = whole.residual and whole.arithmetic == "ieee"
    if whole.depthwise and not whole.of_ranges and (bare := _bare(build, whole)) is not None:
        return bare
    inside = not slow and not whole.depthwise
    if inside and (engine := activating(build.engines, whole, rest)) is not None:
        return whole, engine
    if possible and not slow and (engine := build.engines.choose(whole)) is not None:
        return whole, engine
    if rest != whole and (engine := build.engines.choose(rest)) is not None:
        return rest, engine
    if takes(whole):
        return whole, OwnConvolution(whole, build.engines.gpu)
    if whole.of_volumes and rest.bias:
        rest = msgspec.structs.replace(rest, bias=False)
    return rest, _engine(build, rest)


def _bare(
    build: Builder, whole: products.Convolution
) -> tuple[products.Convolution, Engine] | None:
    """Return the convolution alone, if a library's engine for it and a pass over its result are
    faster than a kernel that does everything; None if it is not, or nothing was timed. cuDNN's best
    depthwise engine takes neither bias nor activation."""
    bare = msgspec.structs.replace(whole, bias=False, residual=False, clip=NO_CLIP, activation=None)
    engines = build.engines
    if bare == whole or not engines.times:
        return None
    together, alone = engines.time_of(whole), engines.time_of(bare)
    if alone + pass_ns(engines, whole) >= together:
        return None
    engine = engines.choose(bare)
    return None if engine is None else (bare, engine)


def convolution_backward(build: Builder, arguments: ConvolutionBackward) -> None:
    """Define those gradients of x, weight and bias that are read."""
    plain = _plain(build, arguments, build.current.value(arguments.gradient).shape)
    outer, pitch = _range(build, arguments.gradient, plain, plain.output)
    plain = msgspec.structs.replace(plain, output_pitch=pitch)
    of_x, of_weight, of_bias = (
        wanted and build.current.is_read(index) for index, wanted in enumerate(arguments.wanted)
    )
    if of_weight:
        _gradient_of_weight(build, arguments, plain, outer)
    if of_x and arguments.compact:
        _gradient_of_some_pixels(build, arguments, plain, outer)
    elif of_x:
        value, layout = (
            build.current.output(),
            Layout(plain.result, "channels_last", plain.image[1]),
        )
        result, place = _place(build, plain, 0, value.shape)
        done = msgspec.structs.replace(plain, direction="backward_data", image_pitch=place)
        if result is None:
            result = build.memory.new(value.name, value.shape, layout)
        reads = [outer, _weight(build, arguments.weight, done)]
        build.steps.engine(_engine(build, done), reads, [result], "convolution_backward_data")
        build.values.define(0, result)
    if of_bias:
        pixels = outer.elements // outer.shape[1]
        add_up(build, outer, (1, pixels, outer.shape[1]), 2, pitch=pitch or None)


def _gradient_of_some_pixels(
    build: Builder, arguments: ConvolutionBackward, plain: products.Convolution, outer: Tensor
) -> None:
    """The gradient of those pixels of x that windows of one pixel read, as a matrix product."""
    value, (images, filters, *pixels) = build.current.output(0), plain.output
    channels = value.shape[1]
    problem = Problem(
        m=images * math.prod(pixels), n=channels, k=filters, dtype=plain.dtype, result=plain.result,
        arithmetic=plain.arithmetic, alignment=TENSOR_ALIGNMENT,
    )  # fmt: skip
    weight = build.values.wanted(arguments.weight, Layout(plain.dtype, "channels_last", channels))
    layout, engine = Layout(plain.result, "channels_last", channels), build.engine_for(problem)
    result = build.memory.new(value.name, value.shape, layout)
    build.steps.engine(engine, [outer, weight], [result], "convolution_backward_data")
    build.values.define(0, result)


def _gradient_of_weight(
    build: Builder, arguments: ConvolutionBackward, plain: products.Convolution, outer: Tensor
) -> None:
    if (in_place := build.current.found_note(_both(arguments), InPlace)) is not None:
        done = in_place.backward.convolution
        batches, position = build.inputs.batches(arguments.x)
        reads, engine = [batches, outer, position], build.engine_for(in_place.backward)
        dtype = done.result
    else:
        image, pitch = _image(build, arguments.x, plain)
        done = msgspec.structs.replace(_of_weight(plain), image_pitch=pitch)
        engine = _engine(build, done)
        dtype = "float32" if isinstance(engine, OwnConvolution) else done.result
        reads = [image, outer]
        problem = as_patches(done) if outer.layout.channels == outer.shape[1] else None
        if problem is not None and is_faster(build.engines, problem, done):
            reads, engine = [outer, patches(build, image, done)], build.engine_for(problem)
            dtype = problem.result
    result = build.values.result(1, Layout(dtype, "channels_last", done.weight[1]))
    build.steps.engine(engine, reads, [result], "convolution_backward_weight", _leaves_room(done))
    build.values.define(1, result)


def _of_weight(operation: products.Convolution) -> products.Convolution:
    """Return the gradient of its weight."""
    return msgspec.structs.replace(
        operation, direction="backward_weight", bias=False, residual=False, clip=NO_CLIP,
        activation=None, frozen=False, cold=False,
    )  # fmt: skip


def _leaves_room(operation: products.Convolution) -> bool:
    """True if later steps find idle multiprocessors beside it. A weight's gradient is needed only
    at the end of the iteration."""
    return math.prod(operation.output) < SMALL


def _engine(build: Builder, operation: products.Convolution) -> Engine:
    """Return a library's engine if there is one, otherwise golow's own kernels."""
    engine = build.engines.choose(operation)
    if engine is None and takes(operation):
        engine = OwnConvolution(operation, build.engines.gpu)
    if engine is None:
        raise build.current.unsupported(f"{build.current.node.op} of these shapes")
    return engine


def _plain(
    build: Builder, layer: Convolution | ConvolutionBackward, output: tuple[int, ...]
) -> products.Convolution:
    """Describe the convolution without fusion; the image has its channels as in memory."""
    images, own_channels, *size = build.current.value(layer.x).shape
    filters, _, *kernel = build.current.value(layer.weight).shape
    channels, each = own_channels, PADDED[build.types.computed]
    if build.current.is_input(layer.x):
        if layer.groups == 1 and filters % 4 == 0:
            channels = -(-channels // each) * each
    elif layer.groups == 1:
        channels = max(channels, build.values.channels(layer.x))
    return products.Convolution(
        direction="forward",
        image=(images, channels, *size),
        output=(images, filters, *output[2:]),
        kernel=tuple(kernel),
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        groups=layer.groups,
        dtype=build.types.computed,
        result=build.types.computed,
        arithmetic=build.types.convolutions,
    )


def _image(build: Builder, x: Ref, operation: products.Convolution) -> tuple[Tensor, int]:
    """The operand of a convolution, as `_range`."""
    return _range(build, x, operation, operation.image)


def _range(
    build: Builder, reference: Ref, operation: products.Convolution, shape: tuple[int, ...]
) -> tuple[Tensor, int]:
    """An image of a convolution, and its pitch if it is a range of a wider one that golow's
    depthwise kernel reads there; otherwise 0."""
    found = (
        seen_range(build, reference, shape, operation.dtype) if is_depthwise(operation) else None
    )
    if found is not None and found[1]:
        return found
    return build.values.wanted(reference, Layout(operation.dtype, "channels_last", shape[1])), 0


def _weight(build: Builder, weight: Ref, operation: products.Convolution) -> Tensor:
    layout = Layout(operation.dtype, "channels_last", operation.weight[1])
    return build.values.wanted(weight, layout)


def _refuse(arguments: Convolution, question: Question) -> str:
    integers = refuse_integers(arguments, question)
    return integers or without_formula(question, arguments.activation)


IMPLEMENTATIONS = (
    Implementation(Convolution, convolution, _refuse),
    Implementation(ConvolutionBackward, convolution_backward, refuse_integers),
)
