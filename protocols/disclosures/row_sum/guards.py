"""The guards of ROW_SUM messages: how rows are found, on how many clients they rest, and noise."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from protocols.disclosures.match.guards import Match
from protocols.disclosures.sum.guards import MAX_DELTA
from protocols.policy.budget import Budget, Unit
from protocols.policy.guard import Guard, ValueStage

WIDTH = "row_width"
"""The plan item's size that says how many integers a row has."""


class Rows(Guard):
    """Find rows by tags, and open only what the terms of enough other clients add up to.

    Attributes:
        form: ``thresholded``: a row reaches a receiver if at least the policy's `others` clients
            besides it, colluders on top, add to it, and each node enters one row at most.
            ``noised``: any row that somebody else adds to is told, under `row_noise`.
            ``published``: every client says its sums in clear; only Unsafe chains have it.
        threshold: in ``published``, how many clients besides the receiver add to a row at least;
            larger than the number of clients: no row is told.
        cap: tags that every client asks for, random ones among them: a power of two (O24).
        canaries: copies of the public text in a client's batch.
        links: terms that a client names at most, one a node and row: a power of two (O28).
        rows: rows that a client is told, and adds to, at most: a power of two (O28).
        accept_sums: of ``thresholded``: let rows be told without noise. A sum of a few sparse
            records, such as bags of words, can be parted by itself (A15); of dense features nothing
            of the kind is known, but where terms follow from a model that is handed out, a crafted
            one leaves a single node's of them.
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (
        ValueStage.VALUE,
        ValueStage.INTEGER,
        ValueStage.NOISED,
    )
    gives: ClassVar[ValueStage] = ValueStage.MATCHED
    guard: Literal["rows"] = "rows"
    form: Literal["thresholded", "noised", "published"] = "thresholded"
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

    @property
    def noised(self) -> bool:
        """Whether rows are told under `row_noise`."""
        return self.form == "noised"

    @cached_property
    def tags(self) -> Match:
        """How tags are made: those of `match` by two servers, once in a run, none left out."""
        return Match(cap=self.cap, canaries=self.canaries, popular=0.0, epochs=1)

    def within(self) -> tuple[Guard, ...]:
        """Return how tags are made, which tag servers and clients keep."""
        return (self.tags,)

    @model_validator(mode="after")
    def _buckets(self) -> Rows:
        if self.form != "published" and self.threshold != 1:
            raise ValueError(
                "threshold is of the form 'published'; else a row rests on minimum_cohort + "
                "colluders of the policy, or is noised"
            )
        for name in ("cap", "links", "rows"):
            if (size := getattr(self, name)) & (size - 1):
                raise ValueError(
                    f"{name}: a power of two, so that it says little of the data (O28)"
                )
        return self


class RowNoise(Guard):
    """Add discrete Gaussian noise to every row that a client adds to: its own, nobody else's.

    The unit is one node's features: they are there, or zeros stand in their place. Edges, which
    rows there are, who adds to them and of how many terms are not hidden.

    Attributes:
        releases: rows that one node enters in the run, at most; more rows are told, and each is
            noised more.
        epsilon, delta: for one node's features and the whole run; how many nodes there are is not
            public, so delta is at most 1e-4.
        budget: what all runs together may spend of one site's nodes (O20).
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.INTEGER,)
    gives: ClassVar[ValueStage] = ValueStage.NOISED
    guard: Literal["row_noise"] = "row_noise"
    releases: int = Field(default=4, ge=1, le=4096, strict=True)
    epsilon: float = Field(gt=0, le=64)
    delta: float = Field(gt=1e-10, le=MAX_DELTA)
    budget: Budget

    def budgets(self) -> Mapping[Unit, Budget]:
        """Return that of one node's features."""
        return {"node": self.budget}


GUARDS = (Rows, RowNoise)
