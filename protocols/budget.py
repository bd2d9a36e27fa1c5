"""The door to a site's privacy budget, which lies outside every run (O20)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from protocols.policy import Budget


class Reserve(Protocol):
    """Takes from the budget of one site's data set, durably and for good."""

    def __call__(
        self, *, dataset: str, run: str, rdp: Sequence[float], cap: Budget
    ) -> dict[str, str | int]:
        """Reserve what a whole run spends, before any noise is drawn.

        Args:
            dataset: the data set's id.
            run: the run's name.
            rdp: Renyi divergence of the run at `protocols.accounting.ORDERS`.
            cap: what all runs together may spend.

        Returns:
            Facts for the client's ledger: dataset, delta, entries, epsilon, head.

        Raises:
            BudgetExceeded: it does not fit; nothing was reserved.
            EvidenceError: the store is older than its last witnessed head, or was edited.
        """
