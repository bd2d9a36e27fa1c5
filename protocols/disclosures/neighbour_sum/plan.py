"""The plan items of sums over neighbours: boxes up, boxes down, and nothing that opens them."""

from __future__ import annotations

from collections.abc import Sequence

from crypto.errors import OutOfRange
from protocols.disclosures._base.plan import Planning
from protocols.disclosures._base.words import NETWORK, words_of
from protocols.disclosures.names import Disclosure
from protocols.disclosures.neighbour_sum.layout import NeighbourGrid, grid_of
from protocols.disclosures.neighbour_sum.messages import NeighbourBoxes
from protocols.disclosures.neighbour_sum.words import SINGLE
from protocols.errors import PolicyError
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.plan.builder import UP, PlanBuilder, Times
from protocols.plan.steps import Step
from protocols.policy.guard import Guard


class NeighbourPlanning(Planning):
    """As many boxes as a client has neighbours, on either way."""

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add the boxes of an Ask."""
        grid, place = self._grid(plan, kinds), (name, self.disclosure, Step.UP, UP, kinds)
        size = grid.box_bytes * self._width(plan)
        plan.add(*place, self.disclosure, times, body=size, layout=grid.layout)

    def handed_down(self, kind: type[Message], chain: Sequence[Guard]) -> type[Message]:
        """Return what holds the neighbours' boxes."""
        return NeighbourBoxes

    def down(self, plan: PlanBuilder, exchange: Exchange, times: Times) -> dict[str, int]:
        """Return the size of all boxes that an Ask hands to one client."""
        kinds = tuple(k for k in exchange.given if k.disclosure is self.disclosure)
        return {"neighbour_boxes": self._grid(plan, kinds).box_bytes * self._width(plan)}

    def handed_said(self, plan: PlanBuilder) -> dict[str, str] | None:
        """Return who learns what of the boxes; in clear, everything."""
        if plan.topology is None:
            return None
        summed = words_of(self.disclosure).handed(True)
        return {"client": summed if plan.between_neighbours else SINGLE, "network": NETWORK}

    def _grid(self, plan: PlanBuilder, kinds: tuple[type[Message], ...]) -> NeighbourGrid:
        try:
            return grid_of(plan.topology, kinds, plan.policy.chain(self.disclosure), plan.dims)
        except OutOfRange as error:
            raise PolicyError(
                "The sum over a client's neighbours does not fit into 64 bits.",
                why=str(error),
                fix="use fewer bits in 'quantise', or a topology whose degrees are more alike",
            ) from error

    def _width(self, plan: PlanBuilder) -> int:
        return plan.topology.width if plan.topology is not None else 0


PLAN = NeighbourPlanning(Disclosure.NEIGHBOUR_SUM)
