"""The settings of a load test of texts, and the request for their model."""

from __future__ import annotations

from typing import get_args

from golow.programs.load.load_record import LoadPlan, TextPlan
from golow.records.errors import GolowError
from golow.records.text import TextPrecision
from golow.workload.generation.request import PROMPT, TOKENS, TextRequest
from golow.workload.request import Request

A_DAY = 86_400.0  # seconds: the longest limit, run and wait
TIMES = "above 0, up to a day"
TEXT_OPTIONS = "--ttft, --tpot, --prompt and --tokens"
UNUSED = (
    "example_inputs", "resolution", "sequence", "input_shape", "channels", "initialisation", "loss",
    "targets", "phase",
)  # fmt: skip
FLAGS = {"input_shape": "input", "initialisation": "init"}


def text_plan(
    prompt: int | tuple[int, int] | None,
    tokens: int | None,
    ttft: float | None,
    tpot: float | None,
) -> TextPlan | None:
    """Return the texts that these options ask for; None if none of them was given."""
    if (prompt, tokens, ttft, tpot) == (None, None, None, None):
        return None
    lengths = PROMPT if prompt is None else prompt
    return TextPlan(
        prompt=(lengths, lengths) if isinstance(lengths, int) else lengths,
        tokens=TOKENS if tokens is None else tokens,
        ttft=ttft,
        tpot=tpot,
    )


def require_text_settings(plan: LoadPlan, texts: TextPlan) -> None:
    """Raise `GolowError` for settings that do not apply to texts, with what to type instead."""
    if plan.latency is not None:
        raise GolowError(
            "--latency is for answers that arrive as a whole, not token by token",
            "use --ttft 200ms --tpot 20ms.",
            python_hint="use ttft=0.2, tpot=0.02.",
        )
    if plan.scenarios != ("server",):
        raise GolowError(
            "texts are tested in the server scenario only", "leave out --scenario, or use server."
        )
    if plan.lengths is not None:
        raise GolowError("--sequence is not for texts", "use --prompt 16..64.")
    if plan.url:
        raise GolowError("golow cannot test services that generate text", "leave out --url.")
    for option, limit in (("--ttft", texts.ttft), ("--tpot", texts.tpot)):
        if limit is not None and not 0 < limit <= A_DAY:
            raise GolowError(f"{option} must be {TIMES}", f"for example {option} 20ms.")
    if not 1 <= texts.prompt[0] <= texts.prompt[1]:
        shortest, longest = texts.prompt
        raise GolowError(
            f"no prompt has {shortest} to {longest} tokens", "for example --prompt 16..64."
        )
    if not plan.limits and not plan.rates:
        raise GolowError(
            "a load test of texts needs a rate, or limits to meet",
            "for example --ttft 200ms --tpot 20ms, or --rate 2,5.",
            python_hint="for example ttft=0.2, tpot=0.02, or rates=[2, 5].",
        )


def text_request(request: Request, plan: LoadPlan, texts: TextPlan) -> TextRequest:
    """Return the request for the model, with every batch size and the longest prompt. Raises
    `GolowError` for options that do not apply to texts."""
    for name in UNUSED:
        if getattr(request, name):
            option = FLAGS.get(name, name.replace("_", "-"))
            raise GolowError(
                f"--{option} is not for texts, and {TEXT_OPTIONS} ask for texts", "leave it out."
            )
    return TextRequest(
        request.model,
        batch=plan.buckets,
        prompt=texts.prompt[1],
        tokens=texts.tokens,
        precision=_precision(request),
        device=request.device,
        weights=request.weights,
        classes=request.classes,
        seed=request.seed,
        threads=request.threads,
        pretrained=request.pretrained,
        download=request.download,
    )


def _precision(request: Request) -> TextPrecision:
    known: tuple[TextPrecision, ...] = get_args(TextPrecision)
    for one in known:
        if one == request.precision:
            return one
    raise GolowError(
        f"texts cannot be generated in the precision {request.precision!r}",
        "leave out --precision: the default is float32.",
    )
