"""What a plan says of who reads sums over its neighbours: edges, weights, and the floor (O5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

from crypto.graph import COMPLETE_BELOW
from protocols.disclosures.names import Disclosure
from protocols.errors import PolicyError
from protocols.neighbourhoods.floor import Thinnest, thinnest
from protocols.neighbourhoods.topology import Kind, Topology, Weights, edges_of, metropolis
from protocols.policy.guard import find
from protocols.policy.policy import PrivacyPolicy
from protocols.strict import Strict

__all__ = ["TopologyPlan"]


class TopologyPlan(Strict):
    """Who reads a sum over whom, with which weights, and on how many others combinations rest.

    Attributes:
        kind, degree: as the form says; see `protocols.neighbourhoods.topology.Topology`.
        edges: pairs of clients, sorted.
        whole: the denominator of all weights.
        shares: by client and neighbour, sorted, `whole` times W_ij.
        together: up to how many receivers were taken to work together: one, and the policy's
            colluders.
        fewest: others that any combination of what they read rests on, at least.
        thinnest: a combination that rests on so few, in words.
        floor: ``checked``: `fewest` is the policy's minimum_cohort or more; ``unsafe``: the policy
            lets it be less, and it is.
    """

    kind: Kind
    degree: int
    edges: tuple[tuple[str, str], ...]
    whole: int
    shares: dict[str, dict[str, int]]
    together: int
    fewest: int
    thinnest: str
    floor: Literal["checked", "unsafe"]

    @classmethod
    def of(cls, topology: Topology, clients: Sequence[str], policy: PrivacyPolicy) -> TopologyPlan:
        """Return the topology of these clients.

        Raises:
            PolicyError: there is no such graph, a combination of sums rests on too few, or masks
                would hide nothing.
        """
        names = tuple(sorted(clients))
        if len(names) >= COMPLETE_BELOW:
            raise PolicyError(
                f"Neighbourhoods need a secret for every pair; with {len(names)} clients not all "
                "pairs have one.",
                fix=f"take fewer than {COMPLETE_BELOW} clients",
            )
        together = 1 + policy.colluders
        try:
            edges, weights, found = _found(topology, len(names), together)
        except ValueError as error:
            raise PolicyError(
                "The topology of this run cannot be used.", why=str(error),
                fix="choose another topology (algorithm.options)",
            ) from error  # fmt: skip
        lonely = [names[i] for i, row in enumerate(weights.rows) if len(row) == 1]
        if lonely and find(policy.rules.get(Disclosure.NEIGHBOUR_SUM, ()), "mask_neighbours"):
            raise PolicyError(
                f"{lonely[0]} has one neighbour, whose vector no mask would hide.",
                why="masks are shared among a client's neighbours, and there is no pair of them",
                fix="give every client two neighbours or more; topology_floor does not change this",
            )
        thin = len(found.others) < policy.minimum_cohort
        if thin and policy.topology_floor == "checked":
            raise PolicyError(
                f"In this topology too few clients hide each other: {_words(found, names)}.",
                why=f"policy {policy.name!r} asks that no combination of what up to {together} "
                f"clients read rests on fewer than {policy.minimum_cohort} others (O5)",
                fix="give every client more neighbours (topology: regular with a higher degree, or "
                "complete); for baselines on data that may be seen: topology_floor: unsafe",
            )
        shares = {
            name: {names[j]: share for j, share in sorted(weights.rows[i].items())}
            for i, name in enumerate(names)
        }
        return cls(
            kind=topology.kind,
            degree=topology.degree,
            edges=tuple((names[a], names[b]) for a, b in edges),
            whole=weights.whole,
            shares=shares,
            together=together,
            fewest=len(found.others),
            thinnest=_words(found, names),
            floor="unsafe" if thin else "checked",
        )

    def again(self, policy: PrivacyPolicy) -> TopologyPlan:
        """Return what every party computes anew from this topology's clients and edges."""
        names = tuple(sorted(self.shares))
        place = {name: number for number, name in enumerate(names)}
        listed = [(place.get(a, -1), place.get(b, -1)) for a, b in self.edges]
        edges = tuple(listed) if self.kind == "edges" else ()
        return TopologyPlan.of(Topology(self.kind, self.degree, edges), names, policy)

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Return whose vectors a client's sum is of, sorted; they read its vector in theirs."""
        return tuple(sorted(self.shares[name]))

    def own(self, name: str) -> int:
        """Return `whole` times the weight of a client's own vector in its mixture."""
        return self.whole - sum(self.shares[name].values())

    @property
    def width(self) -> int:
        """The most neighbours that a client has; messages have room for so many."""
        return max(len(row) for row in self.shares.values())

    @property
    def words(self) -> str:
        """What a reader of the plan is told."""
        degrees = sorted({len(row) for row in self.shares.values()})
        each = " to ".join(str(n) for n in dict.fromkeys((degrees[0], degrees[-1])))
        kind = "listed edges" if self.kind == "edges" else f"topology {self.kind}"
        return (
            f"{kind}: {each} neighbours each, the same in every round; what up to {self.together} "
            f"of them read rests, however they combine it, on {self.fewest} other clients or more"
        )


@lru_cache(maxsize=32)
def _found(
    topology: Topology, count: int, together: int
) -> tuple[tuple[tuple[int, int], ...], Weights, Thinnest]:
    edges = edges_of(topology, count)
    weights = metropolis(edges, count)
    return edges, weights, thinnest(weights, together)


def _words(found: Thinnest, names: Sequence[str]) -> str:
    """Return a combination in words: who reads what, how it is combined, and on whom it rests."""
    terms: Mapping[str, int] = {
        names[r]: factor for r, factor in zip(found.receivers, found.factors, strict=True) if factor
    }
    # Signs are up to the size of the whole: the first one is positive.
    sign = -1 if next(iter(terms.values())) < 0 else 1
    sums = [f"{sign * factor:+d} x the sum of {name}" for name, factor in terms.items()]
    others = ", ".join(names[place] for place in found.others)
    said = " ".join(sums).removeprefix("+")
    said += f" modulo {found.modulus}" if found.modulus else ""
    readers = ", ".join(names[r] for r in found.receivers)
    return f"{readers} can compute {said}, less their own models, which rests on {others} alone"
