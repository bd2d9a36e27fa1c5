"""What a party is asked, and what its relay says of it. Public: the engine's operator sees both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["CARRY", "END", "JOB", "OVER", "TASK", "Code", "Heard"]

TASK = "secure_fgl.envelopes"
"""The task that carries envelopes."""
END = "secure_fgl.end"
"""The task that says that the run is over, in the aggregator's signed words (`Charter.end`): a site
gives up its kept state then, and nobody else, the engine's operator included, can have it do so."""

JOB, CARRY, OVER = "job", "carry", "over"
"""Between the aggregator's process and its relay: a job began; carry this; the job is over."""


class Code(StrEnum):
    """How a site answered."""

    DONE = "done"
    """It answered."""
    UNREADABLE = "unreadable"
    """What came was not for it, not authentic, late, or there before; it changed nothing."""
    FAILED = "failed"
    """It could not answer; the reason stays at the site."""
    BUSY = "busy"
    """Its process is there and works on something else."""
    AWAY = "away"
    """Its process is gone, and nobody ended it: it comes back when its supervisor starts it."""
    LEFT = "left"
    """Its process was ended in order, or never started."""
    SILENT = "silent"
    """Nothing came from the site, not even from its relay."""


@dataclass(frozen=True)
class Heard:
    """What came from one site: a code, and envelopes with `Code.DONE` alone."""

    code: Code
    envelopes: Sequence[bytes] = ()
