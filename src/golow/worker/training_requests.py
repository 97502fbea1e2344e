"""The parent's side of the protocol: the requests of a training run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from golow.worker.conversation import Conversation
from golow.worker.protocol import Checksum, EpochReport, PredictReport


class TrainingRequests(Conversation):
    """Requests that train on a data set, keep the state, and evaluate it. They raise `Unsupported`
    if the worker does not know the request or the level cannot do it; the worker stays alive."""

    def epoch(
        self,
        data: Path,
        order: Path,
        rates: Sequence[float],
        *,
        scale: Sequence[float],
        shift: Sequence[float],
        first: int = 0,
        checksum: Checksum = 0,
    ) -> EpochReport:
        """Train on the order's batches from ``first`` on, each with its own learning rate."""
        request = {
            "do": "epoch",
            "data": str(data),
            "order": str(order),
            "first": first,
            "rates": list(rates),
            "scale": list(scale),
            "shift": list(shift),
            "checksum": checksum,
        }
        report = self.convert(self.ask_optionally(request, self.limits.epoch), EpochReport)
        if len(report.losses) != len(rates) or report.nanoseconds <= 0:
            self.fail(
                "protocol",
                f"the request was to train on {len(rates)} batches; it gave {len(report.losses)} "
                "losses, or a time that is not positive",
            )
        return report

    def save(self, file: Path) -> None:
        """Write the state of the training run to the file."""
        self.ask_optionally({"do": "save", "file": str(file)}, self.limits.epoch)
        self.require_written(file)

    def restore(self, file: Path) -> None:
        """Continue from a state that `save` wrote, or infer with its weights."""
        self.ask_optionally({"do": "restore", "file": str(file)}, self.limits.load)

    def predict(
        self,
        data: Path,
        file: Path,
        *,
        first: int,
        batches: int,
        scale: Sequence[float],
        shift: Sequence[float],
    ) -> PredictReport:
        """Write the outputs of that many batches of the data set to the file."""
        request = {
            "do": "predict",
            "data": str(data),
            "first": first,
            "batches": batches,
            "scale": list(scale),
            "shift": list(shift),
            "file": str(file),
        }
        report = self.convert(self.ask_optionally(request, self.limits.epoch), PredictReport)
        self.require_written(file)
        return report
