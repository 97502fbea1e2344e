"""Errors of PyTorch's tracers in golow's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from golow.records.errors import GolowError


class NotTracedError(GolowError):
    """A tracer of PyTorch does not take a model; another one may."""


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn an error of the tracer into a `NotTracedError` that quotes its first lines."""
    try:
        yield
    except GolowError:
        raise
    except Exception as error:
        if _packs_sequences(error):
            raise NotTracedError(
                f"torch could not capture {name}: it packs sequences (pack_padded_sequence), whose "
                "shapes depend on the lengths",
                "give the recurrent layer the padded batch and mask its output; the levels above "
                "the graph (eager, compile) may run the model as it is.",
            ) from error
        if "torch.classes.quantized" in str(error):
            raise NotTracedError(
                f"torch could not capture {name}: torch.ao has quantised its layers, which run "
                "only in kernels of PyTorch",
                'give the original module, and precision="int8"; eager runs the model as it is.',
            ) from error
        first = " ".join(line.strip() for line in str(error).strip().splitlines()[:3])
        raise NotTracedError(
            f"torch could not capture {name}: {type(error).__name__}: {first}",
            f"{_cause(error)}the levels above the graph (eager, torchscript, compile) may still "
            "run.",
        ) from error


def _cause(error: Exception) -> str:
    """Cause in the model, as far as the error shows it."""
    kind, text = type(error).__name__, str(error)
    if kind == "DynamicOutputShapeException":
        operator = text.removeprefix("aten.").partition(".")[0]
        return f"the shape of {operator}'s result depends on the content of its inputs; "
    if "modified by an inplace operation" in text:
        return "autograd needs a value that the model overwrites: change a copy, with clone(); "
    if "DataDependent" in kind or "data-dependent" in text or "_local_scalar_dense" in text:
        return "Python control flow that depends on a tensor's content cannot be captured; "
    return ""


def _packs_sequences(error: Exception) -> bool:
    """True if the tracer stopped at a packed sequence, or in a recurrent layer that got one."""
    frame = error.__traceback__
    while frame is not None:
        file = Path(frame.tb_frame.f_code.co_filename)
        recurrent = file.match("torch/nn/modules/rnn.py")
        if recurrent and frame.tb_frame.f_locals.get("batch_sizes") is not None:
            return True
        frame = frame.tb_next
    return "_pack_padded_sequence" in str(error) or "_pad_packed_sequence" in str(error)
