"""The guard of MATCH messages: how items become tags, and who stands in one cell (O24, O25)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from protocols.policy.guard import Guard, ValueStage

SMALLEST_CELL = 5
"""Clients that a cell holds at least, besides those that collude."""


class Match(Guard):
    """Compare tags in place of items, and open only what cells of users add up to.

    Attributes:
        mode: ``oprf``: two tag servers each hold a share of the key. ``hmac``: all clients hold one
            key, so that any of them, together with the matcher, opens every tag. ``deterministic``:
            as the field has it, under a public key, so that everybody opens every tag and every
            cell; only Unsafe chains have it.
        cap: how many tags every client sends, random ones among them: a power of two (O24).
        canaries: how many copies of the public text stand in a client's batch.
        popular: the most popular share of the catalogue, by public figures, that clients leave out.
        floor: how many clients hold an item at least, before anybody is told where; colluders are
            counted on top, who may put an item into their batches (O10).
        cell: how many clients stand in a cell, at least.
        form: ``cell_means``: clients read means over cells. ``published``: they read single others'
            vectors, clipped and noised before, without names; so does a matcher with any client.
            Only Unsafe chains have it.
        neighbours: in ``published``, how many others' vectors one item brings, at most.
        vectors: in ``published``, how many different ones a client gets, at most.
        epochs: how often a client has its items matched in one run, at most, whatever the
            aggregator asks for. Rounds that are lost count: its points have left (O24).
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.INTEGER, ValueStage.NOISED)
    gives: ClassVar[ValueStage] = ValueStage.MATCHED
    guard: Literal["match"] = "match"
    mode: Literal["oprf", "hmac", "deterministic"] = "oprf"
    cap: int = Field(default=128, ge=8, le=4096, strict=True)
    canaries: int = Field(default=8, ge=2, le=64, strict=True)
    popular: float = Field(default=0.01, ge=0, lt=1)
    floor: int = Field(default=3, ge=2, le=10_000, strict=True)
    cell: int = Field(default=SMALLEST_CELL, ge=SMALLEST_CELL, le=1000, strict=True)
    form: Literal["cell_means", "published"] = "cell_means"
    neighbours: int = Field(default=4, ge=1, le=100, strict=True)
    vectors: int = Field(default=64, ge=1, le=4096, strict=True)
    epochs: int = Field(default=3, ge=1, le=1000, strict=True)

    @property
    def unsafe(self) -> bool:
        """Whether only an Unsafe chain may hold this guard."""
        return self.mode == "deterministic" or self.form == "published"

    @property
    def servers(self) -> int:
        """How many tag servers there are."""
        return 2 if self.mode == "oprf" else 0

    def cells(self, clients: int) -> int:
        """Return how many cells there are at most."""
        return clients // self.cell

    def largest(self, clients: int) -> int:
        """Return how many clients stand in one cell at most."""
        return min(2 * self.cell - 1, clients)

    def found(self, catalogue: int) -> int:
        """Return how many vectors a client is told at most, over all its items."""
        return min(self.cap, catalogue) * (self.neighbours if self.form == "published" else 1)

    @property
    def places(self) -> int:
        """Points of a batch: a client's whole quota of an epoch."""
        return self.cap + self.canaries

    @model_validator(mode="after")
    def _cap_is_a_bucket(self) -> Match:
        if self.cap & (self.cap - 1):
            raise ValueError("cap: a power of two, so that it says little of the data (O28)")
        return self


GUARDS = (Match,)
