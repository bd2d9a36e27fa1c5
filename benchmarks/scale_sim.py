"""One masked round of up to 10^5 one-user clients, event by event, before anybody builds it.

    python benchmarks/scale_sim.py [--clients 1000 10000 100000] [--group 256] [--per-server 4]
                                   [--away 0.05] [--values 107777] [--seed 1]

What is simulated is the plan of docs/scale.md: lots cut the clients into groups (the rule of
ADR 0045, computed by the code of the product), each group sums under masks of its own, a leaf
aggregator of one core and one line serves some groups, the root adds the groups' totals. Beside it
stands one flat aggregator with one sparse graph over all clients (ADR 0019).

Every client's steps (download, training, masking, upload, vote, shares) and every envelope that an
aggregator seals, opens, verifies and adds is an event. An aggregator's core and its line each take
one at a time. Seconds of primitives are measured on this machine (`_primitives.py`), seconds that
are no cryptography come from `bench_envelope.py`. Lines and training times are drawn (lognormal,
a fixed seed), and so is who vanishes: a share `--away`, half before the upload, a quarter before
the vote and a quarter before the shares. A step ends when all have answered, or at the deadline.

    groups, size       how many groups, of how many clients
    colluders          of a tenth that collude, the most in any group but for a chance of 2^-40
    round_s            from the Ask to the root's new model
    lost               groups whose total stays closed; their clients' round is lost
    client_s, up_kb, down_kb    of one client: processor, and bytes each way
    leaf_s, root_s     processor of the busiest leaf aggregator, and of the root
    leaf_gb            what the busiest leaf sends and receives
    events, wall_s     of the simulation itself

What it does not know: congestion between leaves, packets, clients' processors that are slower than
this machine's, clients that lie. It is a plan's arithmetic, not a run.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._primitives import Costs, measured
from benchmarks._shape import Flags, Shape
from crypto.graph import choose_degree
from protocols.plan.cohorts import DrawnPlan
from protocols.policy.policy import PrivacyPolicy

Floats = npt.NDArray[np.float64]
SESSION = 100e-6
"""Seconds of one envelope at one end without cryptography: ADR 0038, make and open."""
HEADER, EVIDENCE, SHARE = 700, 100, 32
"""Bytes of an envelope without its body, of one client's signed upload in a list, of one share."""
CORRUPT, DROPPED = 0.1, 0.05
LINE = 125e6  # bytes a second of an aggregator, each way: 1 Gbit/s
STEPS = ("ask", "list", "votes")


@dataclass(frozen=True)
class Clients:
    """What was drawn of every client, (n,) each: seconds a byte down and up, training, vanishing.

    `until` is the number of steps that a client answers before it vanishes; 3: all.
    """

    down: Floats
    up: Floats
    training: Floats
    until: npt.NDArray[np.int64]

    @classmethod
    def drawn(cls, count: int, away: float, seed: int) -> Clients:
        """Draw lines of about 10 and 5 Mbit/s, training of about 2 s, and who vanishes when."""
        rng = np.random.default_rng(seed)
        down, up, training = (rng.lognormal(0.0, 0.5, count) for _ in range(3))
        shares = [away / 2, away / 4, away / 4, 1.0 - away]
        until = rng.choice(4, size=count, p=shares)
        return cls(8 / 10e6 * down, 8 / 5e6 * up, 2.0 * training, until)


@dataclass
class Group:
    """One sum: its members, and who answered each of three steps."""

    members: npt.NDArray[np.int64]
    shape: Shape
    step: int = 0
    pending: int = 0
    answered: list[Flags] = field(default_factory=list)


@dataclass
class Leaf:
    """An aggregator: one core and one line, each taking one thing at a time."""

    costs: Costs
    values: int
    core: float = 0.0
    out: float = 0.0
    into: float = 0.0
    busy: float = 0.0
    moved: float = 0.0

    def works(self, at: float, seconds: float) -> float:
        """Return when work that is ready at a time is done."""
        self.core = max(self.core, at) + seconds
        self.busy += seconds
        return self.core

    def sends(self, at: float, size: float) -> float:
        """Return when so many bytes have left."""
        self.out = max(self.out, at) + size / LINE
        self.moved += size
        return self.out

    def receives(self, at: float, size: float) -> float:
        """Return when so many bytes are there."""
        self.into = max(self.into, at) + size / LINE
        self.moved += size
        return self.into


class Round:
    """One round of some groups at one leaf, event by event.

    Args:
        leaf: serves them.
        groups: its groups.
        clients: what was drawn of everybody.
        deadline: of a step, in seconds.
    """

    def __init__(self, leaf: Leaf, groups: list[Group], clients: Clients, deadline: float) -> None:
        self.leaf, self.groups, self.clients, self.deadline = leaf, groups, clients, deadline
        self.queue: list[tuple[float, int, int, int, int]] = []
        self.events, self.opened, self.end = 0, 0, 0.0

    def play(self) -> None:
        """Play all events; `opened` and `end` tell what became of it."""
        for number in range(len(self.groups)):
            self._ask(number, 0.0)
        while self.queue:
            at, _, number, step, place = heapq.heappop(self.queue)
            group = self.groups[number]
            if step != group.step:  # too late, or the deadline of a step that is over
                continue
            if place < 0:
                self._next(number, at)
            elif not group.answered[step][place]:
                self._answer(number, at, place)

    def _note(self, at: float, number: int, step: int, place: int) -> None:
        self.events += 1
        heapq.heappush(self.queue, (at, self.events, number, step, place))

    def _ask(self, number: int, at: float) -> None:
        """Send one step's envelopes, and note when each answer will be there."""
        group, leaf, costs = self.groups[number], self.leaf, self.leaf.costs
        before = group.answered[-1] if group.answered else np.ones(len(group.members), dtype=bool)
        group.answered.append(np.zeros(len(group.members), dtype=bool))
        size, answer = down_bytes(group, leaf.values), up_bytes(group, leaf.values)
        group.pending = int(before.sum())
        for place in np.flatnonzero(before):
            ready = leaf.works(at, costs.seal + costs.sign + costs.session + size * costs.byte)
            one = group.members[place]
            there = leaf.sends(ready, size) + size * self.clients.down[one]
            if self.clients.until[one] <= group.step:
                continue  # it vanished
            done = there + client_seconds(group, costs, leaf.values)
            if group.step == 0:
                done += self.clients.training[one]
            self._note(done + answer * self.clients.up[one], number, group.step, int(place))
        self._note(at + self.deadline, number, group.step, -1)

    def _answer(self, number: int, at: float, place: int) -> None:
        group, leaf, costs = self.groups[number], self.leaf, self.leaf.costs
        size = up_bytes(group, leaf.values)
        work = costs.open + costs.verify + costs.session + size * costs.byte
        work += leaf.values * costs.add if group.step == 0 else 0.0
        done = leaf.works(leaf.receives(at, size), work)
        group.answered[group.step][place] = True
        group.pending -= 1
        if not group.pending:
            self._next(number, done)

    def _next(self, number: int, at: float) -> None:
        group = self.groups[number]
        group.step += 1
        if group.step < len(STEPS):
            self._ask(number, at)
            return
        uploaded, voted, gave = group.answered
        if group.shape.opens(uploaded, voted, gave):
            self.opened += 1
            at = self.leaf.works(at, self._opening(group, int(uploaded.sum())))
        self.end = max(self.end, at)

    def _opening(self, group: Group, there: int) -> float:
        """Return the seconds that take the masks off one total."""
        costs, missing = self.leaf.costs, len(group.members) - there
        stream, shape = self.leaf.values * costs.mask, group.shape
        seeds = (there + missing) * costs.rebuild(shape.threshold)
        return seeds + (there + missing * shape.neighbours) * stream


def down_bytes(group: Group, values: int) -> int:
    """Return the bytes of one envelope of a group's step to a client."""
    body = (4 * values, group.shape.seen * EVIDENCE, group.shape.seen * EVIDENCE)
    return HEADER + body[group.step]


def up_bytes(group: Group, values: int) -> int:
    """Return the bytes of one client's answer."""
    body = (4 * values, 0, group.shape.holders * SHARE)
    return HEADER + body[group.step]


def client_seconds(group: Group, costs: Costs, values: int) -> float:
    """Return a client's seconds of the processor in a step, without training."""
    ends = costs.open + costs.seal + costs.sign + costs.verify + 2 * costs.session
    moved = (down_bytes(group, values) + up_bytes(group, values)) * costs.byte
    own = (
        (group.shape.neighbours + 1) * values * costs.mask,
        group.shape.seen * costs.verify,
        group.shape.seen * costs.verify,
    )
    return ends + moved + own[group.step]


def groups_of(count: int, size: int | None) -> tuple[list[Group], str]:
    """Return the groups of so many clients, and what the plan says of colluders in one."""
    policy = PrivacyPolicy.preset("masks")
    order = np.random.default_rng(0).permutation(count)
    if size is None:
        degree = choose_degree(count, corrupt=CORRUPT, dropped=DROPPED, lying=True)
        least = policy.minimum_cohort + 1 + int(CORRUPT * count)
        return [Group(order, Shape.sparse(degree, least))], f"{degree.corrupt} of k"
    plan = DrawnPlan.of(size, count, policy)
    parts = [order[part :: plan.cohorts] for part in range(plan.cohorts)]
    return [Group(part, Shape.of_cohort(len(part), plan)) for part in parts], str(plan.within)


def simulated(
    count: int, size: int | None, options: argparse.Namespace, costs: Costs
) -> dict[str, Any]:
    """Return the row of one number of clients; `size` None: one flat aggregator."""
    start = time.perf_counter()
    clients = Clients.drawn(count, options.away, options.seed)
    groups, colluders = groups_of(count, size)
    step = len(groups) if size is None else options.per_server
    rounds = []
    for first in range(0, len(groups), step):
        leaf = Leaf(costs, options.values)
        rounds.append(Round(leaf, groups[first : first + step], clients, options.deadline))
        rounds[-1].play()
    opened, one = sum(each.opened for each in rounds), groups[0]
    root = opened * (costs.open + costs.verify + options.values * (4 * costs.byte + costs.add))
    client, up, down = 0.0, 0, 0
    for one.step in range(len(STEPS)):
        client += client_seconds(one, costs, options.values)
        up, down = up + up_bytes(one, options.values), down + down_bytes(one, options.values)
    return {
        "clients": count,
        "form": "flat, sparse graph" if size is None else "tree of groups",
        "groups": len(groups),
        "size": len(one.members),
        "neighbours": one.shape.neighbours,
        "colluders": colluders,
        "away": options.away,
        "round_s": round(max(each.end for each in rounds) + root, 1),
        "lost": len(groups) - opened,
        "client_s": round(client, 3),
        "up_kb": up // 1000,
        "down_kb": down // 1000,
        "leaves": len(rounds),
        "leaf_s": round(max(each.leaf.busy for each in rounds), 2),
        "root_s": round(root, 2),
        "leaf_gb": round(max(each.leaf.moved for each in rounds) / 1e9, 2),
        "events": sum(each.events for each in rounds),
        "wall_s": round(time.perf_counter() - start, 1),
    }


def rows(options: argparse.Namespace, costs: Costs) -> Iterator[dict[str, Any]]:
    """Yield one row for each number of clients, flat and as a tree."""
    for count in options.clients:
        for size in (None, options.group):
            yield simulated(count, size, options, costs)


def main() -> None:
    """Print what primitives cost here, and a JSON line a row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--group", type=int, default=256, help="clients of a group, about")
    parser.add_argument("--per-server", type=int, default=4, help="groups of one leaf aggregator")
    parser.add_argument("--away", type=float, default=0.05, help="share that vanishes in a round")
    parser.add_argument("--values", type=int, default=107_777, help="numbers of an upload")
    parser.add_argument("--deadline", type=float, default=60.0, help="of a step, seconds")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    costs = measured(SESSION)
    print(json.dumps({"seconds": {n: float(f"{v:.3g}") for n, v in vars(costs).items()}}))
    for row in rows(options, costs):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
