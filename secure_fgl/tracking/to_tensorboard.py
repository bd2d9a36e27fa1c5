"""Metrics as TensorBoard's event files, by the writer that PyTorch brings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["TensorboardSink"]


class TensorboardSink:
    """Scalars of one run in a folder of its own, below the one that is given.

    The writer puts this machine's name and the process's number into the file's name. A run that
    was killed and goes on writes a second file there, from its first round: TensorBoard shows the
    rows of the newer one.

    Args:
        place: the folder that ``tensorboard --logdir`` is given.
        name: of the run.
        told: public facts, shown as a text.

    Raises:
        ImportError: tensorboard is not installed.
        OSError: the folder cannot be written to.
    """

    def __init__(self, place: str, name: str, told: Mapping[str, str]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = Path(place).expanduser() / name
        self._writer = SummaryWriter(str(folder), purge_step=0)
        table = "\n".join(f"| {key} | {value} |" for key, value in told.items())
        self._writer.add_text("run", f"| | |\n|---|---|\n{table}", 0)

    def write(self, round: int, numbers: Mapping[str, float]) -> None:
        """Add a scalar a metric, at the step `round`."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()

    def close(self, *, whole: bool) -> None:
        """Flush and close the event file."""
        self._writer.close()
