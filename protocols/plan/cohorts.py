"""What a plan states of cohorts: drawn by lot, split into clusters, summed over neighbours (O5)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeVar

from crypto.graph import COMPLETE_BELOW, most_in_any, part_of, partition
from crypto.signing import canonical
from protocols.clusters import CutGuard, CutRule
from protocols.disclosures._evaluated.guards import evaluated
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import Mask
from protocols.errors import PolicyError
from protocols.forms import Form
from protocols.neighbourhoods import (
    Kind,
    Thinnest,
    Topology,
    Weights,
    edges_of,
    metropolis,
    thinnest,
)
from protocols.policy.guard import find
from protocols.policy.policy import PrivacyPolicy
from protocols.strict import Strict

# --- Cohorts drawn by lot: how many, of how many clients, and how many colluders fall into one ---
#
# The clients of a run are cut into disjoint cohorts of about equal size, once, and rounds take them
# in turn. A partition and not a new draw a round: totals over cohorts that overlap can be combined
# into one of few clients (ADR 0030), totals over disjoint ones cannot. Who may collude falls into
# cohorts by lot as well, so a cohort may hold more of them than its share. How many it holds at
# most is a tail of the hypergeometric distribution, times the number of cohorts (ADR 0045).

_T = TypeVar("_T")

CHANCE_BITS = 40
"""No cohort of a run holds more colluders than the plan says, but for a chance of 2^-40."""


class DrawnPlan(Strict):
    """What a plan says of cohorts that are drawn by lot.

    Attributes:
        size: of how many clients a cohort is to be at least.
        cohorts: how many there are.
        smallest, largest: clients of a cohort, if all clients are there when lots are drawn.
        colluders: how many clients of the run are assumed to work together.
        within: of these, in any one cohort, but for a chance of 2^-40 in the run.
        least: clients that a cohort must hold: the policy's minimum of others, one, and `within`;
            never fewer than the policy's smallest cohort.
        by_lot: whether clients and aggregator draw the seed together. Where sums leave in clear it
            is the plan's public seed, so that such a run can be repeated.
    """

    size: int
    cohorts: int
    smallest: int
    largest: int
    colluders: int
    within: int
    least: int
    by_lot: bool

    @property
    def words(self) -> str:
        """What a reader of the plan is told."""
        if self.cohorts == 1:
            return (
                f"one, of all {self.largest} clients: cohorts of {self.size} or more fit only once "
                f"into {self.largest}, so every round asks all of them"
            )
        sizes = (
            f"{self.smallest}"
            if self.smallest == self.largest
            else (f"{self.smallest} or {self.largest}")
        )
        seed = "a seed that all parties draw together" if self.by_lot else "the plan's public seed"
        return (
            f"{self.cohorts} disjoint cohorts of {sizes} clients, drawn once from {seed}; rounds "
            f"take them in turn. Of {self.colluders} assumed colluders no more than {self.within} "
            f"are in any one, but for a chance of 2^-{CHANCE_BITS}; each holds {self.least} "
            "clients or more: the policy's minimum of others, one, and those, or its smallest "
            "cohort if that is more"
        )

    @classmethod
    def of(cls, size: int, clients: int, policy: PrivacyPolicy) -> DrawnPlan:
        """Return how so many clients are cut into cohorts of at least `size`.

        Raises:
            PolicyError: a cohort could hold too few clients beside its colluders.
        """
        count = max(1, clients // size)
        colluders = _colluders(clients, policy)
        found = cls._of(size, clients, count, policy, colluders)
        if found.smallest < found.least:
            raise PolicyError(
                f"A cohort of {found.smallest} drawn from {clients} clients is too small: policy "
                f"{policy.name!r} asks for {found.least} (minimum_cohort {policy.minimum_cohort} "
                f"others and one, beside {found.within} of {found.colluders} colluders that may be "
                f"in one of {count} cohorts with a chance above 2^-{CHANCE_BITS}).",
                why="the total of a small group tells its members about each other",
                fix=_nearest(clients, policy),
            )
        return found

    @classmethod
    def _of(
        cls, size: int, clients: int, count: int, policy: PrivacyPolicy, colluders: int
    ) -> DrawnPlan:
        chain = policy.rules.get(Disclosure.SUM, ())
        smallest, largest = clients // count, -(-clients // count)
        within = most_in_any(clients, min(colluders, clients), largest, count, CHANCE_BITS)
        return cls(
            size=size,
            cohorts=count,
            smallest=smallest,
            largest=largest,
            colluders=colluders,
            within=within,
            least=max(policy.smallest_cohort, policy.minimum_cohort + 1 + within),
            by_lot=find(chain, "unsafe_clear") is None,
        )

    def left(self, clients: int, policy: PrivacyPolicy) -> DrawnPlan:
        """Return the same number of cohorts of those clients that took part in the draw.

        Raises:
            PolicyError: they are too few for so many cohorts.
        """
        found = self._of(self.size, clients, self.cohorts, policy, self.colluders)
        if found.smallest < found.least:
            raise PolicyError(
                f"Of {clients} clients that drew lots no {self.cohorts} cohorts of {found.least} "
                "clients each can be made.",
                why="clients were away when lots were drawn",
                fix="start the run again when enough clients are there",
            )
        return found


def _colluders(clients: int, policy: PrivacyPolicy) -> int:
    """Return how many of a run's clients are assumed to work together."""
    mask = find(policy.rules.get(Disclosure.SUM, ()), "mask")
    if isinstance(mask, Mask) and clients >= COMPLETE_BELOW:
        return max(policy.colluders, part_of(clients, mask.corrupt))
    return policy.colluders


def _nearest(clients: int, policy: PrivacyPolicy) -> str:
    """Return advice: the cohort size next to those that are too small, if there is one."""
    for count in range(clients // (policy.minimum_cohort + 1), 0, -1):
        facts = clients // count, clients, count, policy, _colluders(clients, policy)
        found = DrawnPlan._of(*facts)
        if found.smallest >= found.least:
            return f"draw cohorts of {found.smallest} clients or more"
    return "choose fewer colluders, a smaller `corrupt` (mask), or more clients"


@lru_cache(maxsize=8)
def drawn_cohorts(seed: bytes, clients: tuple[str, ...], count: int) -> tuple[tuple[str, ...], ...]:
    """Return the cohorts that a seed draws, each sorted, in the order of their turns.

    Raises:
        OutOfRange: fewer clients than cohorts, or a seed of fewer than 16 bytes.
    """
    parts = partition(len(clients), count, seed)
    return tuple(tuple(clients[place] for place in part) for part in parts)


def turn(cohorts: Sequence[_T], round: int) -> _T:
    """Return the cohort whose turn a round is; rounds begin at 1, and cohorts take turns."""
    return cohorts[(round - 1) % len(cohorts)]


def clear_seed(plan_seed: int, clients: Sequence[str]) -> bytes:
    """Return the public seed of cohorts whose sums leave in clear: such runs can be repeated."""
    content = canonical([plan_seed, list(clients)])
    return hashlib.sha256(b"secure-fgl/cohorts in clear\0" + content).digest()


# --- What a plan says of who reads sums over its neighbours: edges, weights, and the floor (O5)
# ---


class TopologyPlan(Strict):
    """Who reads a sum over whom, with which weights, and on how many others combinations rest.

    Attributes:
        kind, degree: as the form says; see `protocols.neighbourhoods.Topology`.
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


# --- What a plan says of a form that splits its clients into clusters (O5) ---


class SplitPlan(Strict):
    """How clusters come about.

    Attributes:
        message: whose cosines decide.
        cut, guard: see `protocols.forms.Splits`.
        signed: the key authority computes every cut from what it opened, and signs it; else a
            split is the aggregator's word.
    """

    message: str
    cut: CutRule
    guard: CutGuard
    signed: bool


# --- How a form's clusters come about under a policy (O5) ---


def plan_splits(form: Form[Any], policy: PrivacyPolicy) -> SplitPlan | None:
    """Return how a form's clusters come about; None if it never splits its clients."""
    if form.splits is None:
        return None
    return SplitPlan(
        message=form.splits.kind.__name__,
        cut=form.splits.cut,
        guard=form.splits.guard,
        signed=evaluated(policy.rules.get(Disclosure.SIMILARITY, ())) is not None,
    )
