"""What a charter needs of the engine: its sites, and without which of them nothing can go on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.transports.nvflare.charter import Charter

__all__ = ["Office"]


@dataclass(frozen=True)
class Office:
    """The administrator's kit, and the sites of the charter.

    Attributes:
        admin: the kit.
        sites: all but the aggregator's.
        mandatory: those without which nothing can be opened: of every role but the clients'.
        least: how many must be there: these, and the policy's smallest cohort.
    """

    admin: Path
    sites: Collection[str]
    mandatory: Collection[str]
    least: int

    @classmethod
    def of(cls, charter: Charter, admin: Path) -> Office:
        """Return what a charter needs of the engine."""
        sites = {name: site for name, site in charter.sites.items() if name != AGGREGATOR_NAME}
        clients = set(charter.roster.clients)
        mandatory = [site for name, site in sites.items() if name not in clients]
        least = len(mandatory) + charter.policy.smallest_cohort
        return cls(admin, list(sites.values()), mandatory, min(least, len(sites)))

    def missing(self, there: Collection[str]) -> list[str]:
        """Return who is not there, sorted."""
        return sorted(set(self.sites) - set(there))

    def enough(self, there: Collection[str]) -> bool:
        """Tell whether a run that has begun can go on with these."""
        found = set(self.sites) & set(there)
        return set(self.mandatory) <= found and len(found) >= self.least
