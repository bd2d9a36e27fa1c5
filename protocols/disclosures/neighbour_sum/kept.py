"""What of sums over neighbours stands in a session's kept state."""

from __future__ import annotations

from protocols.disclosures.neighbour_sum.client import Offered
from protocols.disclosures.neighbour_sum.view import NeighbourAnswers, Neighbourly, NeighbourView

KEPT = (NeighbourAnswers, Neighbourly, NeighbourView, Offered)
