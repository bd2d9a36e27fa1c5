"""Slots of an epoch: which sums masks were made for, and which epoch a round is in."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from crypto.graph import (
    COMPLETE_BELOW,
    Degree,
    choose_degree,
    honest_majority,
    neighbourhoods,
    part_of,
    thinnest_window,
)
from crypto.samplers import derive
from crypto.signing import canonical
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import Mask
from protocols.errors import NotInPlan, PolicyError
from protocols.plan.cohorts import DrawnPlan
from protocols.plan.plan import Item, times_in_round
from protocols.plan.steps import Step
from protocols.policy.guard import find, guard_of
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roster import by_names, shared


def epoch_of(round: int, policy: PrivacyPolicy) -> int:
    """Return the number of the epoch in which a round lies; what comes before round 1 is in 0."""
    return max(0, round - 1) // policy.rekey_rounds


def epochs(rounds: int, policy: PrivacyPolicy) -> int:
    """Return how many epochs a run of `rounds` rounds has."""
    return epoch_of(rounds, policy) + 1


@dataclass(frozen=True)
class Slot:
    """One place for a masked sum in an epoch; every slot has seeds of its own, used once (O6).

    Attributes:
        item: label of the upload's plan item.
        round: the round; 0 for what the plan does not count by rounds.
        ordinal: how many sums of this item came before it in that round.
    """

    item: str
    round: int
    ordinal: int

    @property
    def label(self) -> str:
        """The slot as text."""
        return f"{self.item}/{self.round}/{self.ordinal}"

    @classmethod
    def of_label(cls, label: str) -> Slot:
        """Return the slot that `label` is the text of."""
        item, round, ordinal = label.rsplit("/", 2)
        return cls(item, int(round), int(ordinal))


def slot_of(item: Item, round: int, ordinal: int) -> Slot:
    """Return the slot of an upload."""
    return Slot(item.label, round if item.per_round else 0, ordinal)


def slots(
    items: Sequence[Item],
    rounds: int,
    policy: PrivacyPolicy,
    epoch: int,
    part: Disclosure = Disclosure.SUM,
) -> tuple[Slot, ...]:
    """Return every slot of an epoch, in an order that all parties share.

    Those of a `part` other than SUM have pair secrets alone: nobody shares seeds of them, so what
    is masked there is never unmasked for whoever is missing (ADR 0053).

    Every epoch has equally many, so that messages are of one size in runs of any length; the last
    one's may be for rounds that never come.
    """
    first = epoch * policy.rekey_rounds + 1
    last = first + policy.rekey_rounds - 1
    found: list[Slot] = []
    for item in (i for i in items if (i.part, i.step) == (part, Step.UP)):
        # Outside the rounds anything may be asked in any epoch; an unused slot costs 64 bytes.
        places = [(0, times_in_round(item, 0, rounds))]
        if item.per_round:
            places += [(round, item.per_round) for round in range(first, last + 1)]
        found += [Slot(item.label, r, k) for r, count in places for k in range(count)]
    return tuple(found)


# --- Who is joined to whom in a group of clients, for all who ask for the same in a process ---


class Neighbours:
    """Who is joined to whom, for all groups of a process that are of the same clients and seed."""

    def __init__(self, called: tuple[str, ...], degree: int, seed: bytes) -> None:
        self._called, self._degree, self._seed = called, degree, seed
        self.complete = degree >= len(called) - 1
        self.neighbours = self._near(degree)
        self.holders = _with_itself(self.neighbours)
        self.thinnest = by_names(self._thinnest)

    @staticmethod
    def of(rows: Mapping[str, tuple[str, ...]], name: str) -> tuple[str, ...]:
        """Return a client's row; raises NotInPlan for one that was not called."""
        if name not in rows:
            raise NotInPlan("A client that was not called for this epoch's keys is named.")
        return rows[name]

    def voters(self, name: str) -> tuple[str, ...]:
        """Return who holds shares of anybody whose shares `name` holds, sorted."""
        return self.of(self._voters, name)

    @cached_property
    def _voters(self) -> dict[str, tuple[str, ...]]:
        # Neighbours are the nearest on a circle, so theirs are those within twice the distance.
        return _with_itself(self._near(2 * self._degree))

    def _near(self, degree: int) -> dict[str, tuple[str, ...]]:
        """Return who stands within degree/2 of each client on the circle, sorted."""
        called = self._called
        rows = zip(called, neighbourhoods(len(called), degree, self._seed), strict=True)
        return {name: tuple([called[place] for place in row]) for name, row in rows}

    def _thinnest(self, names: tuple[str, ...]) -> int:
        survivors = set(names)
        there = {place for place, name in enumerate(self._called) if name in survivors}
        return thinnest_window(len(self._called), self._degree, self._seed, there)


def _with_itself(near: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(sorted((*row, name))) for name, row in near.items()}


@lru_cache(maxsize=32)  # as many as a run has groups
def graph_of(called: tuple[str, ...], degree: int, seed: bytes) -> Neighbours:
    """Return the graph of these clients; see `crypto.graph.neighbourhoods`."""
    return Neighbours(called, degree, seed)


# --- Who may be summed in one epoch: who is paired with whom, who holds whose shares, in which
# slots ---
#
# An epoch is `rekey_rounds` rounds of the policy. Everything here follows from public facts, so
# every party computes the same. Below 100 clients everybody is paired with everybody; above, with
# the neighbours of a random k-regular graph (Bell et al., CCS 2020).

Within = int | None
"""How many of a cohort that lots drew may be corrupt; None where a group is all clients."""

LEAST_COUNTED = 1
"""Holders that thresholds count as corrupt under any policy: a client of the aggregator's own.

It costs one share more where the number of holders is odd. Without it 2 t = n + 1 there, and one
holder that answers both ways has two lists of one sum opened (O7).
"""


def planned_voters(count: int, policy: PrivacyPolicy, within: Within = None) -> int:
    """Return how many clients' votes a holder is shown among `count` clients."""
    return min(count, 2 * planned_degree(count, policy, within) + 1)


def planned_degree(count: int, policy: PrivacyPolicy, within: Within = None) -> int:
    """Return how many neighbours a client has among `count` clients."""
    return _degree(count, policy, within).neighbours


def planned_corrupt(count: int, policy: PrivacyPolicy, within: Within = None) -> int:
    """Return how many neighbours of a client may be corrupt among `count` clients."""
    return _degree(count, policy, within).corrupt


def _degree(count: int, policy: PrivacyPolicy, within: Within) -> Degree:
    if within is not None:  # all pairs: the lot's bad luck is in `within`, nothing is left to more
        least, corrupt = fewest_survivors(count, policy, within), max(within, LEAST_COUNTED)
        return Degree(count - 1, honest_majority(count, corrupt), corrupt, least)
    mask = find(policy.rules.get(Disclosure.SUM, ()), "mask")
    if count < COMPLETE_BELOW or not isinstance(mask, Mask):
        corrupt = max(policy.colluders, LEAST_COUNTED)
        least = honest_majority(count, corrupt)
        return Degree(count - 1, least, corrupt, policy.smallest_cohort)
    corrupt_share = max(mask.corrupt, policy.colluders / count, LEAST_COUNTED / count)
    return _chosen(count, corrupt_share, mask.dropped)


def withstood(count: int, policy: PrivacyPolicy, drawn: DrawnPlan | None = None) -> int:
    """Return how many clients may help a lying aggregator before it opens another one's upload.

    With all pairs both inequalities of `one_answer` hold for so many holders that answer both ways,
    and the smallest total that is opened still has two clients more. On a sparse graph, and in
    cohorts that lots drew, it is what they were sized for, but for a chance of 2^-40.

    Args:
        count: clients of the run.
        policy: of the run; its sums are masked.
        drawn: of cohorts that are drawn by lot; None: a round asks all clients.
    """
    if drawn is not None:
        return max(drawn.colluders, LEAST_COUNTED)
    chosen = _degree(count, policy, None)
    if chosen.neighbours < count - 1:
        mask = guard_of(policy.rules[Disclosure.SUM], Mask)
        sized = part_of(count, mask.corrupt) if mask else 0
        return max(sized, policy.colluders, LEAST_COUNTED)
    shares = max(chosen.threshold, policy.smallest_cohort)
    return max(0, min(2 * shares - count - 1, fewest_survivors(count, policy) - 2))


def fewest_survivors(count: int, policy: PrivacyPolicy, within: Within = None) -> int:
    """Return how many clients a survivor list among `count` clients holds at least (O10, O18).

    The policy's minimum of others and one more, beside all that may be corrupt: these can subtract
    what they sent, and their noise with it. From 100 clients on the mask's `corrupt` counts too.

    Raises:
        PolicyError: more than there are clients.
    """
    mask = find(policy.rules.get(Disclosure.SUM, ()), "mask")
    corrupt = policy.colluders if within is None else within
    if within is None and count >= COMPLETE_BELOW and isinstance(mask, Mask):
        corrupt = max(corrupt, part_of(count, mask.corrupt))
    least = policy.minimum_cohort + 1 + corrupt
    if least > count:
        raise PolicyError(
            f"Policy {policy.name!r} asks for {least} survivors (minimum_cohort "
            f"{policy.minimum_cohort} others and one, beside {corrupt} that may be corrupt); "
            f"there are {count} clients.",
            fix="choose a smaller minimum_cohort, fewer colluders or a smaller `corrupt` (mask)",
        )
    return least


def withstands(
    items: Sequence[Item], count: int, policy: PrivacyPolicy, drawn: DrawnPlan | None
) -> int | None:
    """Return what a plan says of `withstood`; None where its sums carry no masks, or it has none.

    Without masks whoever opens a total can open a single upload, and needs no client for that.
    """
    summed = any((item.part, item.step) == (Disclosure.SUM, Step.UP) for item in items)
    masked = find(policy.rules.get(Disclosure.SUM, ()), "mask") is not None
    return withstood(count, policy, drawn) if summed and masked else None


def fewest_apart(clients: int, policy: PrivacyPolicy, drawn: DrawnPlan | None) -> int:
    """Return of how many clients totals of a run may be told apart (`cohort_changes: floor`).

    As many as a survivor list holds, for the same reason: the corrupt subtract what they sent.
    """
    return drawn.least if drawn is not None else fewest_survivors(clients, policy)


@lru_cache(maxsize=64)
def _chosen(count: int, corrupt: float, dropped: float) -> Degree:
    return choose_degree(count, corrupt=corrupt, dropped=dropped, lying=True)


@dataclass(frozen=True)
class Group:
    """The clients that were called to agree on keys for one epoch.

    Attributes:
        run: the run's name.
        epoch: its number.
        called: sorted names.
        degree: neighbours of each client.
        threshold: how many shares rebuild a seed. More than half of the holders, the corrupt ones
            added (O7); with all pairs never fewer than the policy's smallest cohort. On a sparse
            graph that may be more than all holders of a client: there every holder counts the
            survivor list itself, and what is opened is one such list (see `voters`).
        least: how many clients a survivor list holds: all that may be corrupt, the policy's minimum
            of others, and one (O10).
        window: what a survivor list must leave standing, so that it cannot cut the graph in two;
            with all pairs a window is a whole list, and this is `least` or more.
        quorum: how many of each client's holders must have voted for a survivor list before shares
            are given; more than half, the corrupt ones added, so that no two lists of one sum can
            both be served (see `voters`).
        colluders: how many clients may work together, by the policy; of a drawn cohort, in it.
        drawn: whether lots drew it: a cohort of the run, and all pairs of it.
    """

    run: str
    epoch: int
    called: tuple[str, ...]
    degree: int
    threshold: int
    least: int
    window: int
    quorum: int
    colluders: int
    drawn: bool = False

    @property
    def within(self) -> Within:
        """How many may be corrupt, if lots drew this group."""
        return self.colluders if self.drawn else None

    @property
    def complete(self) -> bool:
        """Whether everybody is everybody's neighbour."""
        return self.degree == len(self.called) - 1

    @classmethod
    def of(
        cls,
        run: str,
        epoch: int,
        called: Sequence[str],
        policy: PrivacyPolicy,
        within: Within = None,
    ) -> Group:
        """Return the group of these clients: all of a run, or a cohort that lots drew.

        Raises:
            CohortTooSmall: fewer than the policy's minimum.
            PolicyError: fewer than a survivor list holds.
        """
        policy.check_cohort(len(called))
        chosen, count = _degree(len(called), policy, within), len(called)
        holders = chosen.neighbours + 1
        # On a sparse graph the client whose holders they are may be corrupt itself: one more.
        corrupt, window, shares = chosen.corrupt + 1, chosen.window, 0
        least = fewest_survivors(count, policy, within)
        if holders == count:
            corrupt, shares = chosen.corrupt, policy.smallest_cohort if within is None else least
            window = max(window, least)
        return cls(
            run=run,
            epoch=epoch,
            called=shared(sorted(called)),
            degree=chosen.neighbours,
            threshold=max(shares, chosen.threshold),
            least=least,
            window=window,
            quorum=max(shares, honest_majority(holders, corrupt)),
            colluders=policy.colluders if within is None else within,
            drawn=within is not None,
        )

    def voters(self, name: str) -> tuple[str, ...]:
        """Return whose votes a holder is shown, sorted: all who hold what it holds shares of.

        With all pairs these are all clients. On a sparse graph a holder sees the votes of 2 degree
        + 1 successive clients of the circle and asks for a quorum in every window of degree + 1
        among them, one around each client it holds shares of. This is as good as a majority of all:

        * Of one window no two lists that contradict each other have a quorum: the honest vote for
          no two such lists of one slot or round, in whatever windows they differ, and the corrupt
          are too few to make up for them. (For lists of other cohorts or models the honest do vote
          again.)
        * Uploads open together only if they name one cohort, model and set of agreed keys: masks
          are drawn from these, and a holder asks for every member's signature over them
          (`consistency_votes.check_evidence`). Two such lists that do not contradict each other are
          equal. So all honest who give shares of one client for one sum serve one list.
        * Each of them has seen that list's quorum in all windows around itself. The honest who give
          shares of one client are threshold - corrupt at least, so they have seen it in the windows
          around as many clients on either side of that client.
        * Successive honest members of a cohort are at most degree / 2 apart (`window`), and
          2 (threshold - corrupt) - 2 is no less where corrupt <= degree / 2, which
          `crypto.graph.choose_degree` asks for: their lists meet in a window, and are one.
        * To open part of a list's honest clients, the seeds of all their honest neighbours are
          needed too, members and neighbours following each other around the circle. So they are all
          of one list, and `window` keeps that list in one piece.
        * Over two exchanges of one round (O5): whatever is opened, somebody who gave shares for it
          has seen its list's quorum in each window of the circle, by the same distances. So of two
          lists that contradict each other anywhere, only one is opened.
        """
        return self.called if self._graph.complete else self._graph.voters(name)

    def fewest(self, voters: Collection[str], around: str | None = None) -> int:
        """Return how many voted of the holders of the client with the fewest; compare `quorum`.

        Args:
            voters: who voted for one and the same list.
            around: count only for those clients whose shares this one holds; by default for all.
        """
        whose = self.called if around is None else self.holders(around)
        shown = self.called if around is None else self.voters(around)
        # Who holds shares of whom is symmetric: who did not vote is missed by whom it holds.
        silent = (name for name in shown if name not in voters)
        missed = Counter(owner for name in silent for owner in self.holders(name))
        most = max((missed[owner] for owner in missed.keys() & whose), default=0)
        return self.degree + 1 - most  # everybody has as many holders

    def thinnest(self, survivors: Sequence[str]) -> int:
        """Return what a survivor list leaves standing where it is thinnest; compare `window`."""
        return self._graph.thinnest(tuple(survivors))

    @cached_property
    def _seed(self) -> bytes:
        # Not a secret: all compute it. Who could choose the run's name could choose the graph.
        return derive(self.run.encode(), "graph", f"{self.epoch}")

    @cached_property
    def _graph(self) -> Neighbours:
        return graph_of(self.called, self.degree, self._seed)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) over run, epoch and who was called: what boxes are bound to."""
        content = [self.run, self.epoch, _names_digest(self.called)]
        return hashlib.sha256(b"secure-fgl/group\0" + canonical(content)).hexdigest()

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Return the clients that share a pair secret with `name`, sorted.

        Raises:
            NotInPlan: a client that was not called.
        """
        return self._graph.of(self._graph.neighbours, name)

    def holders(self, name: str) -> tuple[str, ...]:
        """Return who holds shares of the seeds of `name`: its neighbours and itself, sorted."""
        return self._graph.of(self._graph.holders, name)


def agreement(group: Group, there: Sequence[str], slot: Slot) -> str:
    """Return the digest of what the masks of one sum rest on.

    It stands in the signed header of every masked upload: who was told another story about who
    agreed on keys, or which slot this is, has another digest, and the others' holders see it (O7).
    """
    return _agreement(tuple(there), group.digest, slot.label)


# What follows depends on public facts only, and every client of a process asks for the same.


@lru_cache(maxsize=8)
def _names_digest(names: tuple[str, ...]) -> str:
    content = canonical(sorted(names))
    return hashlib.sha256(b"secure-fgl/names\0" + content).hexdigest()


@by_names
def _agreement(there: tuple[str, ...], group: str, slot: str) -> str:
    content = canonical([group, _names_digest(there), slot])
    return hashlib.sha256(b"secure-fgl/agreement\0" + content).hexdigest()


# --- Where holders may confirm a list that lacks nobody and serve it in one answer (ADR 0035) ---
#
# Votes go round before shares so that no two lists of one slot are both served. In one answer
# nobody has seen anybody's vote, so the number of shares that rebuild a seed must say as much as
# the number of votes does. With all pairs, n holders of which c may answer both ways, t shares, q
# votes:
#
# * 2 t > n + c: no client's self-mask and row are both rebuilt, whatever honest holders were told.
# * t + q > n + c: a row is rebuilt only if q voted for a list without its client. At most n - q of
#   the honest then answered that all are here, and with the corrupt these are fewer than t.
# * 2 q > n + c: no two lists that contradict each other both have their votes.
#
# On a sparse graph the same holds around each client, but not for the list as a whole: parts of the
# circle that serve different short lists can be kept apart by a part that serves everybody, and
# what opens is a list that nobody signed. There lists go the two steps.


def one_answer(group: Group, policy: PrivacyPolicy) -> bool:
    """Tell whether a group's holders may serve a list that lacks nobody in one answer."""
    count, shares = len(group.called), group.threshold
    corrupt = planned_corrupt(count, policy, group.within)
    enough = 2 * min(shares, group.quorum) > count + corrupt
    return group.complete and enough


def planned_one_answer(count: int, policy: PrivacyPolicy, within: int | None = None) -> bool:
    """Tell whether some list among `count` clients may be served in one answer."""
    return planned_degree(count, policy, within) == count - 1
