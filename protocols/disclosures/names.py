"""What the receiver of a message is meant to learn."""

from __future__ import annotations

from enum import StrEnum


class Disclosure(StrEnum):
    """The nine things a message may disclose; the value is what stands in plans and policies."""

    SUM = "SUM"
    WEIGHTED_SUM = "WEIGHTED_SUM"
    SIMILARITY = "SIMILARITY"
    MATCH = "MATCH"
    MIXED = "MIXED"
    NOISED = "NOISED"
    SEALED = "SEALED"
    RELEASED = "RELEASED"
    PUBLIC = "PUBLIC"

    @property
    def meaning(self) -> str:
        """One sentence: what the receiver learns."""
        return _MEANING[self]


_MEANING = {
    Disclosure.SUM: "only the cohort's total",
    Disclosure.WEIGHTED_SUM: "each receiver its own weighted combination",
    Disclosure.SIMILARITY: "only the matrix of pairwise cosines",
    Disclosure.MATCH: "only which tags are equal",
    Disclosure.MIXED: "mixtures of several distinct records",
    Disclosure.NOISED: "each message after local noise",
    Disclosure.SEALED: "one named party opens it; a relay learns its size",
    Disclosure.RELEASED: "what was computed from already disclosed outputs",
    Disclosure.PUBLIC: "configuration, seeds and public keys",
}
