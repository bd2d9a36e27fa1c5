"""The guard of ROW_SUM messages: how rows are found, and on how many clients they rest."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from protocols.disclosures.match.guards import Match
from protocols.policy.guard import Guard, ValueStage


class Rows(Guard):
    """Find rows by tags, and open only what the terms of enough other clients add up to.

    Attributes:
        form: ``thresholded``: a row reaches a receiver if at least the policy's `others` clients
            besides it, colluders on top, add to it, and each node enters one row at most.
            ``published``: every client says its sums in clear; only Unsafe chains have it.
        threshold: in ``published``, how many clients besides the receiver add to a row at least;
            larger than the number of clients: no row is told.
        cap: tags that every client asks for, random ones among them: a power of two (O24).
        canaries: copies of the public text in a client's batch.
        links: terms that a client names at most, one a node and row: a power of two (O28).
        rows: rows that a client is told, and adds to, at most: a power of two (O28).
        accept_sums: let rows be told without noise. A sum of a few sparse records, such as bags of
            words, can be parted by itself (A15); of dense features nothing of the kind is known.
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.VALUE, ValueStage.INTEGER)
    gives: ClassVar[ValueStage] = ValueStage.MATCHED
    guard: Literal["rows"] = "rows"
    form: Literal["thresholded", "published"] = "thresholded"
    threshold: int = Field(default=1, ge=1, le=1_000_000, strict=True)
    cap: int = Field(default=2048, ge=8, le=4096, strict=True)
    canaries: int = Field(default=8, ge=2, le=64, strict=True)
    links: int = Field(default=8192, ge=8, le=65536, strict=True)
    rows: int = Field(default=256, ge=1, le=4096, strict=True)
    accept_sums: bool = False

    @property
    def unsafe(self) -> bool:
        """Whether only an Unsafe chain may hold this guard."""
        return self.form == "published"

    @cached_property
    def tags(self) -> Match:
        """How tags are made: those of `match` by two servers, once in a run, none left out."""
        return Match(cap=self.cap, canaries=self.canaries, popular=0.0, epochs=1)

    def within(self) -> tuple[Guard, ...]:
        """Return how tags are made, which tag servers and clients keep."""
        return (self.tags,)

    @model_validator(mode="after")
    def _buckets(self) -> Rows:
        if self.form == "thresholded" and self.threshold != 1:
            raise ValueError(
                "threshold is of the form 'published'; else a row rests on minimum_cohort + "
                "colluders of the policy"
            )
        for name in ("cap", "links", "rows"):
            if (size := getattr(self, name)) & (size - 1):
                raise ValueError(
                    f"{name}: a power of two, so that it says little of the data (O28)"
                )
        return self


GUARDS = (Rows,)
