"""What a party is asked, and the codes with which its site replies. The broker sees both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["END", "TASK", "Code", "SiteReply"]

TASK = "envelopes"
"""The request that carries envelopes."""
END = "end"
"""The request that says that the run is over, signed by the aggregator (`Charter.end`): a site
gives up its kept state then, and nobody else, the server's operator included, can have it do so."""


class Code(StrEnum):
    """How a site replied."""

    DONE = "done"
    """It answered."""
    UNREADABLE = "unreadable"
    """The request was not for it, not authentic, late, or a repetition; it changed nothing."""
    FAILED = "failed"
    """It could not answer; the reason stays at the site."""
    BUSY = "busy"
    """Its process still works on another request."""
    AWAY = "away"
    """Its process or its carrier is gone and was not stopped: it comes back."""
    LEFT = "left"
    """Its process ended in order, or never started."""
    SILENT = "silent"
    """Nothing came from the site."""


@dataclass(frozen=True)
class SiteReply:
    """The reply of one site: a code, and envelopes with `Code.DONE` alone."""

    code: Code
    envelopes: Sequence[bytes] = ()
