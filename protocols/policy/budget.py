"""The door to a site's privacy budget, which lies outside every run (O20)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from pydantic import Field

from crypto.merkle import Checkpoint
from crypto.signing import VerifyKey
from protocols.strict import Strict

__all__ = ["Budget", "Headed", "Reserve", "Unit", "budget_key", "budget_origin"]

Unit = Literal["client", "graph", "node"]
"""What a budget bounds: everything of one client, one graph of it, or one node's features."""


class Budget(Strict):
    """How much all runs together may spend of one site's data set: (epsilon, delta) per unit.

    Attributes:
        epsilon: at most, over all runs.
        delta: the probability for which epsilon need not hold.
    """

    epsilon: float = Field(gt=0, le=1e6)
    delta: float = Field(gt=0, lt=0.1)


def budget_key(dataset: str, unit: Unit) -> str:
    """Return under which name a site keeps the budget of a data set for this unit.

    Curves of two units bound two things and are never added up, so each unit has a store of its
    own. A client's keeps the data set's bare name.
    """
    return dataset if unit == "client" else f"{dataset}#{unit}"


_PLAIN = re.compile(rb"[A-Za-z0-9_.~-]")


def budget_origin(site: str, dataset: str) -> str:
    """Return the origin line of a budget's checkpoints; names are percent-encoded."""
    return f"secure-fgl/budget/{_percent(site)}/{_percent(dataset)}"


def _percent(text: str) -> str:
    """Percent-encode all but RFC 3986's unreserved characters, so that no slash is one of ours."""
    return "".join(chr(b) if _PLAIN.match(bytes([b])) else f"%{b:02X}" for b in text.encode())


@runtime_checkable
class Headed(Protocol):
    """A door to a site's budgets that also shows and keeps their heads."""

    def head(self, dataset: str) -> Checkpoint:
        """Return how far a budget has come; raises EvidenceError where it was cut or put back."""

    def keep(
        self, unit: str, dataset: str, run: str, note: str, signer: str, key: VerifyKey
    ) -> None:
        """Keep a head that another party signed, in the store and beside the run's ledger.

        Args:
            unit: of the budget, which the note's file is named by.
            dataset: the data set's id.
            run: the run's name.
            note: the signed note.
            signer: whose signature it bears.
            key: the signer's.

        Raises:
            EvidenceError: the note is of another budget, or older than what this run took.
        """


class Reserve(Protocol):
    """Takes from the budget of one site's data set, durably and for good."""

    def __call__(
        self, *, dataset: str, run: str, rdp: Sequence[float], cap: Budget
    ) -> dict[str, str | int]:
        """Reserve what a whole run spends, before any noise is drawn.

        Args:
            dataset: the data set's id, by :func:`budget_key`.
            run: the run's name.
            rdp: Renyi divergence of the run at `protocols.privacy.accounting.ORDERS`.
            cap: what all runs together may spend.

        Returns:
            Facts for the client's ledger: dataset, delta, entries, epsilon, head.

        Raises:
            BudgetExceeded: it does not fit; nothing was reserved.
            EvidenceError: the store is older than its last witnessed head, or was edited.
        """
