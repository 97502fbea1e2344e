"""Builds a compiled generator: the model's step is captured for a few numbers of new tokens,
lowered, built over one cache, and compared with the module."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from golow.levels.called.assembly import NEAR, TINY
from golow.levels.called.building import target_for
from golow.levels.called.generation.encoder_decoder import (
    EncoderDecoder,
    distance,
    encoder_decoder_step,
)
from golow.levels.called.generation.forms import BEGINNING, Form
from golow.levels.called.generation.generation import Generation
from golow.levels.called.generation.generator import Generator, GeneratorParts
from golow.levels.called.generation.on_gpu import GeneratingGpu
from golow.levels.called.generation.on_processor import GeneratingProcessor
from golow.levels.called.gpu import OneGpu
from golow.levels.called.kept_graphs import KeptGraphs
from golow.levels.called.one_size import OneSize
from golow.levels.called.processor import Processor
from golow.levels.called.target import (
    Target,
    device_of,
    explained,
    require_inferring,
    roomy,
)
from golow.levels.called.wanted import Wanted
from golow.lower.analysis.liveness import state_outputs
from golow.lower.ir.graph import Graph, Node, Ref
from golow.lower.operators.cache_update import CacheUpdate
from golow.lower.operators.step_attention import StepAttention
from golow.observer import Observer
from golow.records.errors import GolowError
from golow.storage.cache import open_cache
from golow.workload.generation.encoder_decoder_step import EncoderDecoderStep
from golow.workload.generation.encoder_sources import is_encoder_decoder
from golow.workload.generation.own_positions import TRIED, takes_own_positions, unchanged
from golow.workload.generation.step_modules import (
    is_own_step,
    longest_text,
    require_step,
    step_of,
)

TOKENS, POSITION = 0, 1  # inputs of a step
FAR = 0.3  # from this distance on, of the largest logit, a plan computes something else


@torch.inference_mode(False)
@torch.no_grad()
def built_generator(
    module: nn.Module, inputs: object, generation: Generation, wanted: Wanted, observer: Observer
) -> Generator:
    """Build the plans. module: a step module, or a model that golow can turn into one. inputs: must
    be None; a step takes only tokens. Raises `GolowError` for what cannot be run, before anything
    is built."""
    _require_sense(inputs, generation, wanted)
    require_inferring(module)
    counts = generation.counts()
    step = _step(module, generation)
    reads_source = isinstance(step, EncoderDecoderStep)
    target = target_for(step, device_of(step, ()), wanted, generates=not reads_source)
    cache = open_cache(wanted.cache)
    form = _form(step, generation, target)
    if form.source:  # the decoder reads several tokens at once only where it begins with them
        begins = max(1, len(generation.start))
        counts = BEGINNING, *(count for count in counts if count <= begins)
    graphs = _Graphs(step, generation, form, target, cache, observer)
    name, near = type(module).__name__, NEAR[target.precision]
    made = _built(name, graphs.of(counts), step, generation, form, target, cache, observer)
    observer.stage("running the module on a text")
    off = _distance(made, step)
    if graphs.kept and not off <= near:
        # Something that the digest of a module does not see is another than when it was kept.
        made.close()
        again = graphs.of(counts, anew=True)
        made = _built(name, again, step, generation, form, target, cache, observer)
        off = _distance(made, step)
    if not off <= FAR:
        raise GolowError(
            f"the plans do not compute what the module computes: logits are off by {off:.0%}",
            "a module that keeps state in attributes or draws random numbers cannot be compiled.",
        )
    target.done()
    return made


def _step(module: nn.Module, generation: Generation) -> nn.Module:
    """Return the step module, with its caches."""
    if is_encoder_decoder(module):
        return encoder_decoder_step(module, generation)
    if (generation.source or generation.start) and not isinstance(module, EncoderDecoderStep):
        raise GolowError(
            f"{type(module).__name__} has no encoder",
            "leave out source= and start= in golow.Generation.",
        )
    if is_own_step(module):
        require_step(module)
    elif (most := longest_text(module)) is not None and generation.longest > most:
        raise GolowError(
            f"{type(module).__name__} has positions for {most} tokens, not {generation.longest}",
            "use a smaller longest in golow.Generation.",
        )
    return step_of(module, generation.batch, generation.longest).eval()


def _form(step: nn.Module, generation: Generation, target: Target) -> Form:
    """Return the form of a step: on a GPU, texts have one position, as those of a decoder have that
    attends to a source."""
    if isinstance(step, EncoderDecoderStep):
        return Form(generation.batch, own=False, source=tuple(step.source.shape))
    several = generation.batch > 1 and isinstance(target, Processor)
    own = several and takes_own_positions(step, generation.batch, generation.longest)
    return Form(generation.batch, own)


class _Graphs:
    """The lowered graphs of a step, by the number of new tokens. kept: whether one came from the
    cache."""

    def __init__(
        self,
        step: nn.Module,
        generation: Generation,
        form: Form,
        target: Target,
        cache: Path,
        observer: Observer,
    ) -> None:
        self._step, self._form, self._target = step, form, target
        self._observer, self.kept = observer, False
        further = "step", generation, form, target.level, target.precision, target.threads
        self._cached = KeptGraphs(cache, step, *further)

    def of(self, counts: Sequence[int], anew: bool = False) -> dict[int, OneSize]:
        """Capture or read them. anew: captures all of them."""
        return {count: self._one(count, anew) for count in counts}

    def _one(self, count: int, anew: bool) -> OneSize:
        size = self._form.batch, count
        found = None if anew else self._cached.read(size)
        if found is None:
            self._observer.stage(f"capturing a step of {_in_words(count)}")
            found = _lowered(self._step, self._form, count, self._target)
            self._cached.write(size, found)
        else:
            self.kept = True
        return found


def _built(
    name: str,
    sizes: Mapping[int, OneSize],
    step: nn.Module,
    generation: Generation,
    form: Form,
    target: Target,
    cache: Path,
    observer: Observer,
) -> Generator:
    _require_rows(sizes[1].graph, generation.longest)
    made, weights = _device(target, cache), step.state_dict()
    plans = {}
    for count, one in sizes.items():
        observer.stage(f"building the plan of {_in_words(count)}")
        with explained(target.level), roomy():
            plans[count] = made.add(count, one, weights, form.sample(count, target.device))
    vocabulary = _vocabulary(sizes[1].graph)
    runs, likeliest = made.running(generation, vocabulary)
    parts = GeneratorParts(
        name, target.level, generation, form, target.device, vocabulary, plans, runs, likeliest,
        made.clear, made.bytes, made.close,
    )  # fmt: skip
    if isinstance(step, EncoderDecoderStep):
        return EncoderDecoder(parts, generation.start or (step.start,))
    return Generator(parts)


def _require_sense(inputs: object, generation: Generation, wanted: Wanted) -> None:
    """Raise `GolowError` for options that do not apply with ``generation=``."""
    extra = {
        "inputs": inputs is not None,
        "batch=": wanted.batch is not None,
        "sequence=": wanted.sequence is not None,
        "tune=True": wanted.tune,
        "share=True": wanted.share,
    }
    found = next((name for name, given in extra.items() if given), None)
    if found is not None:
        raise GolowError(
            f"{found} does not go with generation=",
            "leave it out; sizes are those of golow.Generation(longest=..., batch=...).",
        )
    if not isinstance(generation, Generation):
        raise GolowError(
            f"generation= is {type(generation).__name__}", "give golow.Generation(longest=...)."
        )


def _in_words(count: int) -> str:
    if count == BEGINNING:
        return "1 new token after a source"
    return f"{count} new tokens" if count > 1 else "1 new token"


def _lowered(step: nn.Module, form: Form, count: int, target: Target) -> OneSize:
    from golow.levels.called.lowering import lowered_step

    sample = form.sample(count, target.device)
    shared = step.shared if isinstance(step, EncoderDecoderStep) else ()
    one = lowered_step(target.captured_as(step), target.captured_with(sample), target, shared)
    _require_step(one.graph, form.batch, shared)
    with explained(target.level):
        target.require_runnable(one.graph)
    return one


def _device(target: Target, cache: Path) -> GeneratingProcessor | GeneratingGpu:
    if isinstance(target, OneGpu):
        return GeneratingGpu(target, cache)
    assert isinstance(target, Processor)  # noqa: S101 - a target is one of the two
    return GeneratingProcessor(target, cache)


def _vocabulary(graph: Graph) -> int:
    values = graph.values()
    return next(values[o.name].shape[-1] for o in graph.outputs if o.kind == "output")


def _require_step(graph: Graph, batch: int, shared: Collection[str]) -> None:
    """Raise `GolowError` for a graph that is not a step of a language model: whose output is not
    logits, or that stores anything but rows of caches at the given position. shared: buffers that
    steps of a source store whole."""
    values = graph.values()
    made = [values[item.name] for item in graph.outputs if item.kind == "output"]
    if len(made) != 1 or len(made[0].shape) != 2 or made[0].shape[0] != batch:
        found = ", ".join(str(item) for item in made)
        raise GolowError(
            f"a step returns logits [batch, vocabulary], and this module returns {found}",
            "give a module with forward(tokens [batch, count], position) -> logits.",
        )
    position = next((i.value.name for i in graph.inputs if _is_input(i.kind, i.target)), "")
    makers = {value.name: node for node in graph.nodes for value in node.outputs if value}
    targets = {item.name: item.target for item in graph.outputs if item.kind == "buffer"}
    for name in state_outputs(graph):
        if targets.get(name) not in shared and not _writes_rows(makers.get(name), position):
            raise GolowError(
                f"the step changes its buffer {targets.get(name, name)} other than by writing "
                "the rows of the new tokens",
                "write caches by index_copy_ at position + arange(count).",
            )
    if not targets:
        raise GolowError(
            "the step keeps no state: it changes no buffer", "give its caches to register_buffer."
        )


def _require_rows(graph: Graph, longest: int) -> None:
    """Raise `GolowError` for a step whose own caches have fewer rows than a text has tokens: a plan
    would write behind them."""
    values = graph.values()
    makers = {value.name: node for node in graph.nodes for value in node.outputs if value}
    for item in graph.outputs:
        update = CacheUpdate.of(makers[item.name]) if item.name in makers else None
        axis = 2 if update is None else update.axis  # that of StepAttention
        if item.kind != "buffer" or (update is None and not _attends(makers.get(item.name))):
            continue
        if (rows := values[item.name].shape[axis]) < longest:
            raise GolowError(
                f"the buffer {item.target} has {rows} rows, and texts have up to {longest} tokens",
                f"use golow.Generation(longest={rows}), or give the module a larger cache.",
            )


def _attends(node: Node | None) -> bool:
    return node is not None and StepAttention.of(node) is not None


def _is_input(kind: str, target: str) -> bool:
    return kind == "input" and target == str(POSITION)


def _writes_rows(node: Node | None, position: str) -> bool:
    if node is None:
        return False
    update = CacheUpdate.of(node) or StepAttention.of(node)
    return update is not None and update.position == Ref(name=position)


def _distance(generator: Generator, step: nn.Module) -> float:
    """Distance of a text's logits from the module's, relative to the largest of these."""
    batch, length = generator.batch, min(TRIED, generator.longest)
    draws = torch.Generator().manual_seed(0)
    text = torch.randint(generator.vocabulary, (batch, length), generator=draws)
    text = text.to(generator.device)
    if isinstance(generator, EncoderDecoder) and isinstance(step, EncoderDecoderStep):
        return distance(generator, step, text)
    with unchanged(step):
        expected = step(text, torch.zeros((), dtype=torch.int64, device=generator.device))
    found = generator.prefill(text)
    off = (found - expected).abs().max() / expected.abs().max().clamp(min=TINY)
    generator.forget()
    return float(off)
