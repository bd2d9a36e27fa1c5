"""The numbers behind an account: what was planned, what the ledgers show, and the worst of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property

from audits.accounting import models as m
from audits.accounting.coverage import coverage, derived, left_bare, objection, unread
from audits.accounting.engines import GAUSSIAN, Drawn, Meter, check_noise, sound
from audits.accounting.spending import Openings, Spend, spends
from audits.evidence.steps import Case
from protocols.disclosures.names import Disclosure
from protocols.plan.noise import NoisePlan
from protocols.plan.plan import Item, times_in_round
from protocols.policy.guard import find
from protocols.policy.guards import Quantise

_WIDEST = Quantise(bits=32)


class Tally:
    """Counts the noised vectors of one run and turns them into epsilons.

    Args:
        case: the run.

    Raises:
        EvidenceError: a document cannot be read, or the plan states noise that is none.
    """

    def __init__(self, case: Case) -> None:
        self.case, self.plan, self.policy = case, case.plan, case.policy
        yardstick = case.yardstick
        self.covered, self.not_covered = coverage(case.ledger_index, yardstick)
        self.unread = unread(case.ledger_index, yardstick)
        # Noise of one's own is of all that a client sends, so nothing may leave without it.
        own = any(find(chain, "own_noise") for chain in self.policy.rules.values())
        self.bare = left_bare(case.ledger_index, yardstick) if own else ()
        planned = [item for item in derived(case.plan) if objection(item) is None]
        self.noises: dict[str, NoisePlan] = {}
        grid = find(self.policy.rules.get(Disclosure.SUM, ()), "quantise")
        for item in planned:
            if item.noise is not None:
                check_noise(item.id, item.noise, len(case.plan.clients))
                exact = sound(item.noise, grid if isinstance(grid, Quantise) else _WIDEST)
                self.noises[item.id] = exact
        self.items: list[Item] = planned
        self.delta = min((float(n.delta) for n in self.noises.values()), default=0.0)
        self.meter = Meter(self.noises, self.delta, len(case.plan.clients))
        self.target = min((float(n.epsilon) for n in self.noises.values()), default=math.inf)
        drawn = self.plan.drawn  # masks count on more corrupt clients than `colluders` says
        self.colluders = max(self.policy.colluders, drawn.within if drawn is not None else 0)
        self.spends = spends(case.ledger_index, yardstick, planned, self.colluders)
        self.openings = Openings(case.ledger_index)

    @property
    def local(self) -> bool:
        """Tell whether only a client's own noise is counted on."""
        gaussian = all(noise.mechanism == GAUSSIAN for noise in self.noises.values())
        return self.own or not gaussian or any(item.unsafe for item in self.items)

    @property
    def own(self) -> bool:
        """Tell whether a client's own noise hides which of any two data sets it has."""
        return bool(self.noises) and all(noise.local for noise in self.noises.values())

    @property
    def together(self) -> int:
        """How many clients a total is of at least, if nobody is away.

        Where lots cut them into cohorts, a cohort; where they fall into clusters, as many as a
        survivor list holds. Readers, who add no noise, are counted.
        """
        if self.plan.drawn is not None:
            return self.plan.drawn.smallest
        if self.plan.splits is not None:
            return min(noise.honest for noise in self.noises.values()) + self.colluders
        return len(self.plan.clients)

    @cached_property
    def groups(self) -> dict[NoisePlan, list[Item]]:
        """Items by their noise; those that share one also share its releases."""
        found: dict[NoisePlan, list[Item]] = {}
        for item in self.items:
            found.setdefault(self.noises[item.id], []).append(item)
        return found

    @property
    def scope(self) -> m.Scope:
        """What the sum of all noised vectors is a statement about (O16)."""
        return "covered messages" if self.not_covered else "run"

    # --- planned --------------------------------------------------------------------------------

    def planned(self, honest: int | None = None) -> dict[Drawn, int]:
        """Return the run as planned, or with another number of honest shares."""
        return {
            self._vector(items[0], honest): noise.releases for noise, items in self.groups.items()
        }

    def _vector(self, item: Item, honest: int | None = None) -> Drawn:
        shares = self.noises[item.id].honest if honest is None else honest
        return item.id, 1 if item.unsafe else shares

    def planned_message(self, item: Item) -> float:
        """Return epsilon of one vector of an item, at the planned share of noise."""
        return self.meter.own({self._vector(item): 1})

    def planned_round(self) -> float:
        """Return epsilon of the fullest round; round 0 is what stands outside the rounds."""
        rounds = self.plan.rounds
        return max(
            self.meter.own({self._vector(i): times_in_round(i, n, rounds) for i in self.items})
            for n in (0, 1)
        )

    # --- recorded -------------------------------------------------------------------------------

    def recorded(self, found: Iterable[Spend]) -> float:
        """Return epsilon of recorded vectors against the aggregator."""
        return self.meter.own(Counter((spend.item, spend.honest) for spend in found))

    @cached_property
    def worst(self) -> list[Spend]:
        """What the client with the largest epsilon spent."""
        return max(self.spends.values(), key=self.recorded, default=[])

    def recorded_round(self) -> float:
        """Return the largest epsilon of one client in one round."""
        parts: dict[tuple[str, int], list[Spend]] = {}
        for client, found in self.spends.items():
            for spend in found:
                parts.setdefault((client, spend.round), []).append(spend)
        return max(map(self.recorded, parts.values()), default=0.0)

    def recorded_message(self) -> float:
        """Return the largest epsilon of one recorded vector."""
        return max((self.recorded([spend]) for spend in self._all()), default=0.0)

    def _all(self) -> Iterator[Spend]:
        for found in self.spends.values():
            yield from found

    def recorded_times(self, item: Item) -> int:
        """Return how many vectors of an item the busiest client released."""
        counts = (sum(s.item == item.id for s in found) for found in self.spends.values())
        return max(counts, default=0)

    def opened(self, item: Item) -> tuple[int, int]:
        """Return how many totals of an item were opened, and how few clients one of them held."""
        sums = {
            (sent.exchange, str(sent.facts["cohort"]))
            for sent in self.case.ledger_index.releases()
            if sent.item == item.id
        }
        held = [self.openings.survivors(key) for key in sums if key in self.openings.times]
        return sum(self.openings.times.get(key, 0) for key in sums), min(held, default=0)
