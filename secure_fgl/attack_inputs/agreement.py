"""Is what an audit computes again what a client said? Else its controls would be another run's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from crypto.samplers import Stream
from protocols.disclosures.sum.layout import SumLayout
from protocols.errors import EvidenceError
from protocols.messages import Message

__all__ = ["agree", "rounded"]

Arrays = Mapping[str, npt.NDArray[np.float64]]


def rounded(layout: SumLayout, messages: Sequence[Message], kind: type[Message]) -> Message:
    """Return a message as it leaves a client: clipped and on the grid, to within one step.

    The stream decides rounding only, so any will do.
    """
    integers, _ = layout.encode([m for m in messages if type(m) in layout.kinds], Stream(bytes(32)))
    return layout.decode(integers, 1)[kind]


def agree(
    layout: SumLayout,
    said: Sequence[Arrays],
    seen: Arrays,
    kind: type[Message],
    unknown: int = 0,
) -> None:
    """Raise EvidenceError unless what was seen is the sum of what was said.

    Args:
        layout: of the vector; its grids say how far rounding may be off.
        said: what every client that counts said, rounded.
        seen: their total; of one client its upload.
        kind: the message.
        unknown: how many more clients count, whose messages nobody can compute again. What is left
            for them must be something that so many clients can say: each of them could have said
            just that, so the total is one that the receiver may have read.

    Raises:
        EvidenceError: at step ``captured``.
    """
    for column in layout.columns:
        name = column.field.name
        if column.message != kind.__name__ or name not in seen:
            continue
        rest = seen[name] - np.sum([one[name] for one in said], axis=0)
        slack = 0.0 if column.grid is None else 2.0 * len(said) * column.grid.step
        if column.grid is not None:
            right = np.abs(rest) <= slack + unknown * column.grid.bound
        else:
            right = rest >= 0.0 if unknown else rest == 0.0
        if not np.all(right):
            raise EvidenceError(
                "captured",
                f"{kind.__name__}.{name}, computed again, is not what left; "
                "the data, the configuration or the code are other than in the run",
            )
